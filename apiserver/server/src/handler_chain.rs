//! The filters in order, outermost first. A new filter is a file in `filters/` and a row here.

use crate::exchange::{Exchange, Response};
use crate::filters::{
    audit, authentication, authorization, body, cache_control, deadline, detach, head, impersonation,
    measure, panic_recovery, priority_and_fairness, warnings, websocket,
};
use crate::server::Core;
use futures::future::BoxFuture;
use std::sync::Arc;

/// One step of the way; it answers itself or asks the next.
pub(crate) trait Filter: Send + Sync {
    fn call(&self, exchange: Exchange, next: Next) -> BoxFuture<'static, Response>;
}

/// The filters of a server.
pub(crate) fn rows(core: &Arc<Core>) -> Vec<Box<dyn Filter>> {
    vec![
        Box::new(audit::BeforeAnswer::new(core)),
        Box::new(head::Head),
        Box::new(panic_recovery::PanicRecovery),
        Box::new(measure::Measure::new(core)),
        Box::new(cache_control::CacheControl),
        Box::new(warnings::Warnings),
        Box::new(deadline::RequestDeadline::new(core)),
        Box::new(authentication::Authentication::new(core)),
        Box::new(audit::Audit::new(core)),
        Box::new(impersonation::Impersonation::new(core)),
        Box::new(deadline::Timeout),
        Box::new(priority_and_fairness::PriorityAndFairness::new(core)),
        Box::new(authorization::Authorization::new(core)),
        Box::new(body::ReadBody::new(core)),
        Box::new(detach::Detach::new(core)),
        Box::new(websocket::WebSocket::new(core)),
    ]
}

/// What comes after a filter.
#[derive(Clone)]
pub(crate) struct Next {
    chain: Arc<HandlerChain>,
    at: usize,
}

/// Filters and what stands behind them.
pub(crate) struct HandlerChain {
    rows: Vec<Box<dyn Filter>>,
    core: Arc<Core>,
}

impl HandlerChain {
    pub(crate) fn new(core: Arc<Core>) -> Arc<Self> {
        Arc::new(Self {
            rows: rows(&core),
            core,
        })
    }

    pub(crate) fn handle(self: &Arc<Self>, exchange: Exchange) -> BoxFuture<'static, Response> {
        Next {
            chain: Arc::clone(self),
            at: 0,
        }
        .run(exchange)
    }
}

impl Next {
    pub(crate) fn run(self, exchange: Exchange) -> BoxFuture<'static, Response> {
        let chain = Arc::clone(&self.chain);
        match chain.rows.get(self.at) {
            Some(filter) => filter.call(
                exchange,
                Self {
                    at: self.at + 1,
                    ..self
                },
            ),
            None => chain.core.answer(exchange),
        }
    }
}
