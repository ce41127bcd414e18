//! Reads the body of a change before anything begins: bounded in size, and in memory over all requests. A client that
//! leaves while sending has changed nothing.

use super::{refuse, too_many};
use crate::exchange::{Exchange, Response};
use crate::handler_chain::{Filter, Next};
use crate::server::Core;
use apiserver_endpoints::Body;
use apiserver_endpoints::body::ReadBodyError;
use apiserver_registry::RegistryError;
use futures::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Upstream's limit of a request body.
pub(crate) const MAX_BODY_BYTES: usize = 3 << 20;
/// How much of a body that was refused is read and forgotten before the answer.
const MAX_DISCARDED_BYTES: usize = 8 << 20;
/// Memory is counted in pieces of this size.
const PIECE_BYTES: usize = 1_024;

pub(crate) struct ReadBody(Arc<Semaphore>);

impl ReadBody {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self(Arc::new(Semaphore::new(
            core.config.body_memory_bytes / PIECE_BYTES,
        )))
    }
}

/// What the body may come to: what it says, or the most there can be.
fn weight(request: &http::Request<Body>) -> Result<u32, RegistryError> {
    let hint = http_body::Body::size_hint(request.body());
    let bytes = hint.exact().map_or(MAX_BODY_BYTES, |exact| {
        usize::try_from(exact).unwrap_or(usize::MAX)
    });
    if bytes > MAX_BODY_BYTES {
        return Err(RegistryError::TooLarge(MAX_BODY_BYTES));
    }
    Ok(u32::try_from(bytes.div_ceil(PIECE_BYTES)).unwrap_or(u32::MAX))
}

/// Most clients send all of a body before they read; an answer to one that cannot finish sending is lost to a reset.
/// What is discarded costs no memory, and the request's deadline bounds the time.
fn answer_after_discarding(mut exchange: Exchange, answer: Response) -> BoxFuture<'static, Response> {
    let body = std::mem::take(exchange.request.body_mut());
    Box::pin(async move {
        body.discard(MAX_DISCARDED_BYTES).await;
        answer
    })
}

impl Filter for ReadBody {
    fn call(&self, mut exchange: Exchange, next: Next) -> BoxFuture<'static, Response> {
        if !exchange.is_mutating() || exchange.is_long_running() {
            return next.run(exchange);
        }
        let weight = match weight(&exchange.request) {
            Ok(weight) => weight,
            Err(error) => return answer_after_discarding(exchange, refuse(&error)),
        };
        let Ok(permit) = Arc::clone(&self.0).try_acquire_many_owned(weight) else {
            return answer_after_discarding(exchange, too_many());
        };
        Box::pin(async move {
            let mut body = std::mem::take(exchange.request.body_mut());
            match body.read_up_to(MAX_BODY_BYTES).await {
                Ok(bytes) => *exchange.request.body_mut() = Body::from(bytes),
                Err(ReadBodyError::TooLarge(limit)) => {
                    drop(permit);
                    body.discard(MAX_DISCARDED_BYTES).await;
                    return refuse(&RegistryError::TooLarge(limit));
                }
                Err(ReadBodyError::Broken(why)) => return refuse(&RegistryError::BadRequest(why)),
            }
            exchange
                .request
                .extensions_mut()
                .insert(BodyPermit(Arc::new(permit)));
            next.run(exchange).await
        })
    }
}

/// Travels with the request, so that the memory is counted as long as the request lives.
#[derive(Debug, Clone)]
pub(crate) struct BodyPermit(
    #[expect(dead_code, reason = "held, never read")] Arc<tokio::sync::OwnedSemaphorePermit>,
);
