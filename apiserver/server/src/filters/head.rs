//! Removal of the body from answers to HEAD.

use super::filter::{Filter, Next};
use crate::exchange::{RequestExchange, Response};
use apiserver_endpoints::Body;
use futures::future::BoxFuture;
use http::header::CONTENT_LENGTH;
use http_body::Body as _;

/// Handlers answer HEAD as they answer GET; the body goes, its length stays.
pub(crate) struct Head;

impl Filter for Head {
    fn call(&self, exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response> {
        let bodiless = *exchange.request.method() == http::Method::HEAD;
        Box::pin(async move {
            let mut response = next.run(exchange).await;
            if bodiless {
                let length = response.body().size_hint().exact();
                *response.body_mut() = Body::empty();
                if let Some(length) = length {
                    response
                        .headers_mut()
                        .entry(CONTENT_LENGTH)
                        .or_insert(length.into());
                }
            }
            response
        })
    }
}
