//! Time that one request spends in parts of the server, for its audit event.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A part of the server that takes its time for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatencyPart {
    Authentication,
    Authorization,
    Impersonation,
    /// From the hand-over of a write until storage has it or has refused it.
    Storage,
    /// Calls of mutating webhooks.
    MutatingWebhook,
    /// Calls of validating webhooks, those at once counted once.
    ValidatingWebhook,
}

impl LatencyPart {
    pub const ALL: [Self; 6] = [
        Self::Authentication,
        Self::Authorization,
        Self::Impersonation,
        Self::Storage,
        Self::MutatingWebhook,
        Self::ValidatingWebhook,
    ];

    /// The annotation that has it (upstream's `AuditAnnotationsFromLatencyTrackers`).
    pub fn annotation(self) -> &'static str {
        match self {
            Self::Authentication => "apiserver.latency.k8s.io/authentication",
            Self::Authorization => "apiserver.latency.k8s.io/authorization",
            Self::Impersonation => "apiserver.latency.k8s.io/impersonation",
            Self::Storage => "apiserver.latency.k8s.io/etcd",
            Self::MutatingWebhook => "apiserver.latency.k8s.io/mutating-webhook",
            Self::ValidatingWebhook => "apiserver.latency.k8s.io/validating-webhook",
        }
    }
}

/// Sums of time by part. Clones are of the same request.
#[derive(Debug, Clone, Default)]
pub struct LatencyTracker(Arc<[AtomicU64; LatencyPart::ALL.len()]>);

impl LatencyTracker {
    pub fn add(&self, part: LatencyPart, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0[part as usize].fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// The sum so far; zero where the request has not come to that part.
    pub fn sum(&self, part: LatencyPart) -> Duration {
        Duration::from_nanos(self.0[part as usize].load(Ordering::Relaxed))
    }
}
