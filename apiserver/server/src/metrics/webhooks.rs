//! Calls of admission webhooks, under upstream's names.

use super::families::Families;
use apiserver_admission::Step;
use apiserver_admission::webhooks::{WebhookCall, WebhookObserver};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts};
use std::sync::Arc;
use std::time::Duration;

/// Upstream's buckets, in seconds.
const BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
/// Codes beyond are shown as this one, so that a broken webhook makes no series without end.
const MAX_CODE: u16 = 600;

/// See the module.
#[derive(Debug)]
pub(crate) struct WebhookMetrics {
    durations: HistogramVec,
    requests: IntCounterVec,
    rejections: IntCounterVec,
    failed_open: IntCounterVec,
}

impl WebhookMetrics {
    pub(crate) fn new(families: &Families) -> Result<Arc<Self>, prometheus::Error> {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            families.vector(IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let durations = HistogramOpts::new(
            "apiserver_admission_webhook_admission_duration_seconds",
            "[STABLE] Admission webhook latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
        );
        let durations = durations.buckets(BUCKETS.to_vec());
        let labels = ["name", "type", "operation", "rejected"];
        Ok(Arc::new(Self {
            durations: families.vector(HistogramVec::new(durations, &labels)?)?,
            requests: counter(
                "apiserver_admission_webhook_request_total",
                "[ALPHA] Admission webhook request total, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify whether the request was rejected or not and an HTTP status code. Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
                &["name", "type", "operation", "code", "rejected"],
            )?,
            rejections: counter(
                "apiserver_admission_webhook_rejection_count",
                "[ALPHA] Admission webhook rejection count, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify an error type (calling_webhook_error or apiserver_internal_error if an error occurred; no_error otherwise) and optionally a non-zero rejection code if the webhook rejects the request with an HTTP status code (honored by the apiserver when the code is greater or equal to 400). Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
                &["name", "type", "operation", "error_type", "rejection_code"],
            )?,
            failed_open: counter(
                "apiserver_admission_webhook_fail_open_count",
                "[ALPHA] Admission webhook fail open count, identified by name and broken out for each admission type (validating or admit).",
                &["name", "type"],
            )?,
        }))
    }
}

/// Upstream's word, which is not that of its steps.
fn kind(step: Step) -> &'static str {
    match step {
        Step::Admit => "admit",
        Step::Validate => "validating",
    }
}

fn flag(own: bool) -> &'static str {
    if own { "true" } else { "false" }
}

impl WebhookObserver for WebhookMetrics {
    fn called(&self, call: WebhookCall<'_>, took: Duration, rejected: bool, code: u16) {
        let (step, operation, rejected) = (kind(call.step), call.operation.as_str(), flag(rejected));
        let code = code.min(MAX_CODE).to_string();
        self.requests
            .with_label_values(&[call.webhook, step, operation, &code, rejected])
            .inc();
        self.durations
            .with_label_values(&[call.webhook, step, operation, rejected])
            .observe(took.as_secs_f64());
    }

    fn rejected(&self, call: WebhookCall<'_>, error_type: &'static str, code: u16) {
        let code = code.min(MAX_CODE).to_string();
        let labels = [
            call.webhook,
            kind(call.step),
            call.operation.as_str(),
            error_type,
            &code,
        ];
        self.rejections.with_label_values(&labels).inc();
    }

    fn failed_open(&self, call: WebhookCall<'_>) {
        let labels = [call.webhook, kind(call.step)];
        self.failed_open.with_label_values(&labels).inc();
    }
}
