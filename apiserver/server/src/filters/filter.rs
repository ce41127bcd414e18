//! A filter, and the chain that it stands in.

use crate::exchange::{RequestExchange, Response};
use crate::metrics::FILTERS;
use crate::state::ServerState;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

/// One step of the way; it answers itself or asks the next.
pub(crate) trait Filter: Send + Sync {
    fn call(&self, exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response>;
}

/// A filter in its place.
pub(crate) struct Row {
    filter: Box<dyn Filter>,
    /// The place of its name among [`FILTERS`], where its time is counted.
    timed: Option<usize>,
}

impl Row {
    /// A filter whose time is counted under this name.
    pub(crate) fn timed(filter: impl Filter + 'static, name: &str) -> Self {
        Self {
            timed: FILTERS.iter().position(|own| *own == name),
            ..Self::of(filter)
        }
    }

    pub(crate) fn of(filter: impl Filter + 'static) -> Self {
        Self {
            filter: Box::new(filter),
            timed: None,
        }
    }
}

/// The filters and the handler after a filter.
#[derive(Clone)]
pub(crate) struct Next {
    chain: Arc<HandlerChain>,
    at: usize,
    /// Monotonic time at which the filter before was called, where its time is counted.
    since: Duration,
}

/// Filters and what stands behind them.
pub(crate) struct HandlerChain {
    rows: Vec<Row>,
    core: Arc<ServerState>,
}

impl HandlerChain {
    pub(crate) fn new(rows: Vec<Row>, core: Arc<ServerState>) -> Arc<Self> {
        Arc::new(Self { rows, core })
    }

    pub(crate) fn handle(self: &Arc<Self>, exchange: RequestExchange) -> BoxFuture<'static, Response> {
        Next {
            chain: Arc::clone(self),
            at: 0,
            since: Duration::ZERO,
        }
        .run(exchange)
    }
}

impl Next {
    pub(crate) fn run(mut self, exchange: RequestExchange) -> BoxFuture<'static, Response> {
        let chain = Arc::clone(&self.chain);
        let row = chain.rows.get(self.at);
        self.note_time(&chain, row);
        match row {
            Some(row) => row.filter.call(
                exchange,
                Self {
                    at: self.at + 1,
                    ..self
                },
            ),
            None => chain.core.answer(exchange),
        }
    }

    /// Counts the time of the filter before, which hands the request on now.
    fn note_time(&mut self, chain: &HandlerChain, row: Option<&Row>) {
        let before = self.at.checked_sub(1).and_then(|at| chain.rows.get(at)?.timed);
        if before.is_none() && row.is_none_or(|row| row.timed.is_none()) {
            return;
        }
        let now = chain.core.runtime.monotonic();
        if let Some(filter) = before {
            let took = now.saturating_sub(self.since);
            chain.core.metrics.access.filtered(filter, took);
        }
        self.since = now;
    }
}
