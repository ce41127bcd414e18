//! Results of health checks as metrics, which `/metrics/slis` serves on their own.

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

/// Results of each check of `/healthz`, `/livez` and `/readyz` at the last request for these paths.
#[derive(Debug)]
pub(crate) struct HealthCheckMetrics {
    registry: Registry,
    last: IntGaugeVec,
    all: IntCounterVec,
}

impl HealthCheckMetrics {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let last = Opts::new(
            "kubernetes_healthcheck",
            "[STABLE] This metric records the result of a single healthcheck.",
        );
        let all = Opts::new(
            "kubernetes_healthchecks_total",
            "[STABLE] This metric records the results of all healthcheck.",
        );
        let metrics = Self {
            last: IntGaugeVec::new(last, &["name", "type"])?,
            all: IntCounterVec::new(all, &["name", "type", "status"])?,
            registry,
        };
        metrics.registry.register(Box::new(metrics.last.clone()))?;
        metrics.registry.register(Box::new(metrics.all.clone()))?;
        Ok(metrics)
    }

    /// A result of a check; `kind` is the path without its slash.
    pub(crate) fn checked(&self, name: &str, kind: &str, succeeded: bool) {
        self.last.with_label_values(&[name, kind]).set(succeeded.into());
        let status = if succeeded { "success" } else { "error" };
        self.all.with_label_values(&[name, kind, status]).inc();
    }

    pub(crate) fn render(&self) -> Vec<u8> {
        super::rendered(&self.registry)
    }
}
