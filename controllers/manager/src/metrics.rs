//! Metrics that several controllers have in the same form. Families that one controller has stand in its own folder.

use crate::context::ControllerContext;
use machinery_client::ClientError;
use machinery_reconcile::{Outcome, ReconcileError, WriteTracker};
use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Counters, Family, Histograms};
use std::time::Duration;

/// Rounds of a publisher by the code of their last answer: count and duration.
pub(crate) struct SyncMetrics {
    runtime: Runtime,
    total: Counters,
    took: Histograms,
}

impl SyncMetrics {
    pub(crate) fn new(runtime: &Runtime, total: &Family, took: &Family) -> Self {
        Self {
            total: runtime.metrics().counters(total),
            took: runtime.metrics().histograms(took),
            runtime: runtime.clone(),
        }
    }

    /// Awaits a round and counts it.
    pub(crate) async fn record(
        &self,
        round: impl Future<Output = Result<Outcome, ReconcileError>>,
    ) -> Result<Outcome, ReconcileError> {
        let begun = self.runtime.monotonic();
        let outcome = round.await;
        let code = code(outcome.as_ref().err()).to_string();
        self.total.of(&[&code]).inc();
        let took = since(&self.runtime, begun);
        self.took.of(&[&code]).observe(took);
        outcome
    }
}

/// 200 without an error, the answer's code where there was an answer, else 500.
fn code(error: Option<&ReconcileError>) -> i32 {
    let of = |error: &ClientError| Some(error.code()).filter(|code| *code > 0);
    match error {
        None => 200,
        Some(ReconcileError::Request { source, .. } | ReconcileError::Partly { first: source, .. }) => {
            of(source).unwrap_or(500)
        }
        Some(ReconcileError::Unusable(_)) => 500,
    }
}

/// Seconds since a moment of the monotonic clock.
pub(crate) fn since(runtime: &Runtime, begun: Duration) -> f64 {
    runtime.monotonic().saturating_sub(begun).as_secs_f64()
}

/// A tracker whose looks that are left out are counted (`…_stale_sync_skips_total`), by group and resource.
pub(crate) fn own_writes(context: &ControllerContext, skips: &Family, resource: [&str; 2]) -> WriteTracker {
    WriteTracker::counting(context.runtime.metrics().counters(skips).of(&resource))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_answers() {
        assert_eq!(code(None), 200);
        assert_eq!(code(Some(&ReconcileError::Unusable("x".to_owned()))), 500);
    }
}
