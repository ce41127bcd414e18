//! Filters that every request passes; the order is in `handler_chain`.

pub(crate) mod audit;
pub(crate) mod authentication;
pub(crate) mod authorization;
pub(crate) mod body;
pub(crate) mod cache_control;
pub(crate) mod completion;
pub(crate) mod count;
pub(crate) mod deadline;
pub(crate) mod detach;
pub(crate) mod filter;
pub(crate) mod head;
pub(crate) mod impersonation;
pub(crate) mod measure;
pub(crate) mod panic_recovery;
pub(crate) mod priority_and_fairness;
pub(crate) mod warnings;
pub(crate) mod websocket;

use crate::exchange::{RequestExchange, Response};
use apiserver_endpoints::negotiation::{ErrorForm, of_errors};
use apiserver_endpoints::status::{self, ApiStatus};
use apiserver_endpoints::{Body, UserClass};

/// The class of a request's user; components in this process are of the system.
pub(crate) fn class_of(exchange: &RequestExchange) -> UserClass {
    match UserClass::of(&exchange.context.user) {
        UserClass::Ordinary if exchange.peer.identity.is_some() => UserClass::System,
        class => class,
    }
}

/// The answer to an error where the accepted form is no longer known.
pub(crate) fn refuse(error: &impl ApiStatus) -> Response {
    status::response(error, ErrorForm::default())
}

/// The answer to an error in the form that the request accepts.
pub(crate) fn refuse_request(exchange: &RequestExchange, error: &impl ApiStatus) -> Response {
    status::response(error, of_errors(&exchange.request))
}

/// The answer to a user who may not do this at all; upstream's filters mark it so.
pub(crate) fn forbid(exchange: &RequestExchange, error: &impl ApiStatus) -> Response {
    let mut response = refuse_request(exchange, error);
    response.headers_mut().insert(
        "x-content-type-options",
        http::HeaderValue::from_static("nosniff"),
    );
    response
}

/// A plain-text answer, where upstream's filters give one.
pub(crate) fn plain(code: http::StatusCode, text: &'static str) -> Response {
    let mut response = http::Response::new(Body::from(text));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(
        "x-content-type-options",
        http::HeaderValue::from_static("nosniff"),
    );
    response
}

/// The answer to too much at once: come back in a second.
pub(crate) fn too_many() -> Response {
    too_many_after(1)
}

/// The answer to too much at once: come back after so many seconds.
pub(crate) fn too_many_after(seconds: u64) -> Response {
    let mut response = plain(
        http::StatusCode::TOO_MANY_REQUESTS,
        "Too many requests, please try again later.\n",
    );
    response
        .headers_mut()
        .insert(http::header::RETRY_AFTER, http::HeaderValue::from(seconds));
    response
}
