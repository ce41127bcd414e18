//! Answers with a text or a document.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

/// The body of every answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A short answer of text.
pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    with_type(status, "text/plain; charset=utf-8", text.into())
}

pub(super) fn json(value: &impl serde::Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(bytes) => with_type(StatusCode::OK, "application/json", bytes.into()),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

pub(super) fn with_type(status: StatusCode, content_type: &'static str, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes).boxed_unsync());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert("content-type", http::HeaderValue::from_static(content_type));
    response
}
