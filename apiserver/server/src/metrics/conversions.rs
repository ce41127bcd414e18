//! Calls of conversion webhooks, under upstream's names.

use super::families::Families;
use apiserver_registry::version_webhook::ConversionOutcome;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, exponential_buckets};
use std::sync::Arc;

/// Upstream's buckets of a call.
const SECONDS: [f64; 15] = [
    0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0,
];

/// See the module.
#[derive(Debug)]
pub(crate) struct ConversionMetrics {
    requests: IntCounterVec,
    durations: HistogramVec,
    by_definition: HistogramVec,
}

impl ConversionMetrics {
    pub(crate) fn new(families: &Families) -> Result<Arc<Self>, prometheus::Error> {
        let histogram = |name: &str, help: &str, buckets: Vec<f64>, labels: &[&str]| {
            let options = HistogramOpts::new(name, help).buckets(buckets);
            families.vector(HistogramVec::new(options, labels)?)
        };
        let results = ["result", "failure_type"];
        let requests = Opts::new(
            "apiserver_conversion_webhook_request_total",
            "[ALPHA] Counter for conversion webhook requests with success/failure and failure error type",
        );
        Ok(Arc::new(Self {
            requests: families.vector(IntCounterVec::new(requests, &results)?)?,
            durations: histogram(
                "apiserver_conversion_webhook_duration_seconds",
                "[ALPHA] Conversion webhook request latency",
                SECONDS.to_vec(),
                &results,
            )?,
            by_definition: histogram(
                "apiserver_crd_conversion_webhook_duration_seconds",
                "[ALPHA] CRD webhook conversion duration in seconds",
                exponential_buckets(0.001, 2.0, 15)?,
                &["crd_name", "from_version", "to_version", "succeeded"],
            )?,
        }))
    }

    pub(crate) fn ended(&self, outcome: ConversionOutcome<'_>) {
        let result = if outcome.failure.is_some() {
            "failure"
        } else {
            "success"
        };
        let labels = [result, outcome.failure.unwrap_or_default()];
        let seconds = outcome.took.as_secs_f64();
        self.requests.with_label_values(&labels).inc();
        self.durations.with_label_values(&labels).observe(seconds);
        let succeeded = if outcome.failure.is_some() {
            "false"
        } else {
            "true"
        };
        let labels = [outcome.definition, outcome.from, outcome.to, succeeded];
        self.by_definition.with_label_values(&labels).observe(seconds);
    }
}
