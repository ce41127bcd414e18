//! Metrics of the audit log, under upstream's names.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

/// Events, policy levels and failures. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct AuditMetrics {
    events: IntCounter,
    levels: IntCounterVec,
    errors: IntCounterVec,
    rejected: IntCounter,
}

impl AuditMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            events: IntCounter::new("apiserver_audit_event_total", "Audit events handed to the log.")?,
            levels: IntCounterVec::new(
                Opts::new(
                    "apiserver_audit_level_total",
                    "Requests by the level that the audit policy gives them.",
                ),
                &["level"],
            )?,
            errors: IntCounterVec::new(
                Opts::new(
                    "apiserver_audit_error_total",
                    "Failures to write audit events, by plugin.",
                ),
                &["plugin"],
            )?,
            rejected: IntCounter::new(
                "apiserver_audit_requests_rejected_total",
                "Requests refused because their audit event could not be stored.",
            )?,
        };
        registry.register(Box::new(metrics.events.clone()))?;
        registry.register(Box::new(metrics.levels.clone()))?;
        registry.register(Box::new(metrics.errors.clone()))?;
        registry.register(Box::new(metrics.rejected.clone()))?;
        Ok(metrics)
    }

    pub(crate) fn decided(&self, level: &str) {
        self.levels.with_label_values(&[level]).inc();
    }

    pub(crate) fn written(&self) {
        self.events.inc();
    }

    pub(crate) fn rejected(&self) {
        self.rejected.inc();
    }

    pub(crate) fn errors(&self) -> IntCounterVec {
        self.errors.clone()
    }
}
