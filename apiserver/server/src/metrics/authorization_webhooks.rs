//! Webhooks that authorize, under upstream's names.

use super::families::Families;
use apiserver_auth::authz::AuthorizationObserver;
use prometheus::{DEFAULT_BUCKETS, HistogramOpts, HistogramVec, IntCounterVec, Opts};
use std::sync::Arc;

const CONDITION_BUCKETS: [f64; 7] = [0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];
const WEBHOOK: &str = "Webhook";

/// See the module. Names are those of the configuration.
#[derive(Debug)]
pub(crate) struct AuthorizationWebhookMetrics {
    evaluations: IntCounterVec,
    durations: HistogramVec,
    fail_open: IntCounterVec,
    condition_errors: IntCounterVec,
    exclusions: IntCounterVec,
    condition_seconds: HistogramVec,
}

impl AuthorizationWebhookMetrics {
    pub(crate) fn new(families: &Families) -> Result<Arc<Self>, prometheus::Error> {
        let (calls, conditions) = (["name", "result"], ["type", "name"]);
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let name = format!("apiserver_authorization_{name}");
            families.vector(IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let histogram = |name: &str, help: &str, buckets: &[f64], labels: &[&str]| {
            let name = format!("apiserver_authorization_{name}");
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            families.vector(HistogramVec::new(options, labels)?)
        };
        Ok(Arc::new(Self {
            evaluations: counter(
                "webhook_evaluations_total",
                "[ALPHA] Round-trips to authorization webhooks.",
                &calls,
            )?,
            durations: histogram(
                "webhook_duration_seconds",
                "[ALPHA] Request latency in seconds.",
                DEFAULT_BUCKETS,
                &calls,
            )?,
            fail_open: counter(
                "webhook_evaluations_fail_open_total",
                "[ALPHA] NoOpinion results due to webhook timeout or error.",
                &calls,
            )?,
            condition_errors: counter(
                "match_condition_evaluation_errors_total",
                "[ALPHA] Total number of errors when an authorization webhook encounters a match condition error split by authorizer type and name.",
                &conditions,
            )?,
            exclusions: counter(
                "match_condition_exclusions_total",
                "[ALPHA] Total number of exclusions when an authorization webhook is skipped because match conditions exclude it.",
                &conditions,
            )?,
            condition_seconds: histogram(
                "match_condition_evaluation_seconds",
                "[ALPHA] Authorization match condition evaluation time in seconds, split by authorizer type and name.",
                &CONDITION_BUCKETS,
                &conditions,
            )?,
        }))
    }
}

impl AuthorizationObserver for AuthorizationWebhookMetrics {
    fn called(&self, name: &str, result: &str, seconds: f64) {
        self.evaluations.with_label_values(&[name, result]).inc();
        self.durations.with_label_values(&[name, result]).observe(seconds);
    }

    fn failed_open(&self, name: &str, result: &str) {
        self.fail_open.with_label_values(&[name, result]).inc();
    }

    fn matched(&self, name: &str, matched: &Result<bool, String>, seconds: f64) {
        let labels = [WEBHOOK, name];
        self.condition_seconds.with_label_values(&labels).observe(seconds);
        match matched {
            Ok(true) => {}
            Ok(false) => self.exclusions.with_label_values(&labels).inc(),
            Err(_) => self.condition_errors.with_label_values(&labels).inc(),
        }
    }
}
