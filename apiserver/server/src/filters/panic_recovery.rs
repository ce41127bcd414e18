//! A panic while answering becomes a 500 and a line in the log; the connection and the server go on.

use super::filter::{Filter, Next};
use super::refuse;
use crate::exchange::{RequestExchange, Response};
use apiserver_registry::RegistryError;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

pub(crate) struct PanicRecovery;

impl Filter for PanicRecovery {
    fn call(&self, exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response> {
        let info = Arc::clone(&exchange.info);
        Box::pin(async move {
            match AssertUnwindSafe(next.run(exchange)).catch_unwind().await {
                Ok(response) => response,
                Err(_) => {
                    tracing::error!(request = %info, "a request panicked");
                    refuse(&panicked())
                }
            }
        })
    }
}

pub(crate) fn panicked() -> RegistryError {
    RegistryError::Internal("this request caused the server to panic; look in its log".to_owned())
}
