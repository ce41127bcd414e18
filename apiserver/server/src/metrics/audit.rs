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
            events: IntCounter::new(
                "apiserver_audit_event_total",
                "[ALPHA] Counter of audit events generated and sent to the audit backend.",
            )?,
            levels: IntCounterVec::new(
                Opts::new(
                    "apiserver_audit_level_total",
                    "[ALPHA] Counter of policy levels for audit events (1 per request).",
                ),
                &["level"],
            )?,
            errors: IntCounterVec::new(
                Opts::new(
                    "apiserver_audit_error_total",
                    "[ALPHA] Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.",
                ),
                &["plugin"],
            )?,
            rejected: IntCounter::new(
                "apiserver_audit_requests_rejected_total",
                "[ALPHA] Counter of apiserver requests rejected due to an error in audit logging backend.",
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
