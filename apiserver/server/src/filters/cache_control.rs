//! Nothing that depends on the user may be kept by a cache on the way.

use super::filter::{Filter, Next};
use crate::exchange::{RequestExchange, Response};
use futures::future::BoxFuture;
use http::HeaderValue;
use http::header::CACHE_CONTROL;

pub(crate) struct CacheControl;

impl Filter for CacheControl {
    /// A handler that knows better has set the header itself.
    fn call(&self, exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response> {
        Box::pin(async move {
            let mut response = next.run(exchange).await;
            response
                .headers_mut()
                .entry(CACHE_CONTROL)
                .or_insert(HeaderValue::from_static("no-cache, private"));
            response
        })
    }
}
