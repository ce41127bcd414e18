//! Annotations of slow requests: where their time went, under upstream's names, as far as it is measured for one request.

use crate::filters::completion::Completion;
use apiserver_registry::RequestContext;
use apiserver_registry::latency::{LatencyPart, LatencyTracker};
use machinery_meta::go_duration;
use machinery_runtime::Runtime;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A request that took no longer says nothing.
const THRESHOLD: Duration = Duration::from_millis(500);
const TOTAL: &str = "apiserver.latency.k8s.io/total";
const QUEUE: &str = "apiserver.latency.k8s.io/apf-queue-wait";

/// Times of a request under way.
#[derive(Debug, Clone)]
pub(super) struct Latency {
    runtime: Runtime,
    begun: Duration,
    /// Nanoseconds.
    queued: Arc<AtomicU64>,
    parts: LatencyTracker,
}

impl Latency {
    pub(super) fn of(completion: &Completion, context: &RequestContext) -> Self {
        Self {
            runtime: context.runtime.clone(),
            begun: completion.begun_at(),
            queued: completion.queued(),
            parts: context.latency.clone(),
        }
    }

    /// The annotations of a request that ends now.
    pub(super) fn annotations(&self) -> Vec<(&'static str, String)> {
        let total = self.runtime.monotonic().saturating_sub(self.begun);
        let queued = Duration::from_nanos(self.queued.load(Ordering::Relaxed));
        annotations(total, queued, &self.parts)
    }
}

fn annotations(total: Duration, queued: Duration, parts: &LatencyTracker) -> Vec<(&'static str, String)> {
    if total <= THRESHOLD {
        return Vec::new();
    }
    let parts = LatencyPart::ALL.map(|part| (part.annotation(), parts.sum(part)));
    let parts = parts.into_iter().chain([(QUEUE, queued)]);
    let taken = parts.filter(|(_, took)| !took.is_zero());
    let all = std::iter::once((TOTAL, total)).chain(taken);
    all.map(|(name, took)| (name, go_duration::write(took))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_told_of_slow_requests_alone() {
        let parts = LatencyTracker::default();
        assert_eq!(annotations(THRESHOLD, Duration::ZERO, &parts), []);
        let slow = Duration::from_millis(501);
        assert_eq!(
            annotations(slow, Duration::ZERO, &parts),
            [(TOTAL, "501ms".to_owned())]
        );
        parts.add(LatencyPart::Storage, Duration::from_millis(300));
        parts.clone().add(LatencyPart::Storage, Duration::from_millis(1));
        parts.add(LatencyPart::Impersonation, Duration::from_micros(2));
        let expected = [
            (TOTAL, "501ms"),
            ("apiserver.latency.k8s.io/impersonation", "2µs"),
            ("apiserver.latency.k8s.io/etcd", "301ms"),
            (QUEUE, "20ms"),
        ];
        assert_eq!(
            annotations(slow, Duration::from_millis(20), &parts),
            expected.map(|(name, took)| (name, took.to_owned()))
        );
    }
}
