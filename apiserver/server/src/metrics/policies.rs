//! Expressions of admission policies, under upstream's names.

use super::families::Families;
use apiserver_admission::policies::{PolicyObserver, PolicyRun};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts};
use std::sync::Arc;

/// Upstream's buckets, in seconds.
const BUCKETS: [f64; 5] = [0.000_000_5, 0.001, 0.01, 0.1, 1.0];
const VALIDATION: [&str; 4] = ["policy", "policy_binding", "error_type", "enforcement_action"];
const MUTATION: [&str; 3] = ["policy", "policy_binding", "error_type"];

/// See the module.
#[derive(Debug)]
pub(crate) struct PolicyMetrics {
    validations: IntCounterVec,
    validation_durations: HistogramVec,
    mutations: IntCounterVec,
    mutation_durations: HistogramVec,
}

impl PolicyMetrics {
    pub(crate) fn new(families: &Families) -> Result<Arc<Self>, prometheus::Error> {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            families.vector(IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let histogram = |name: &str, help: &str, labels: &[&str]| {
            let options = HistogramOpts::new(name, help).buckets(BUCKETS.to_vec());
            families.vector(HistogramVec::new(options, labels)?)
        };
        Ok(Arc::new(Self {
            validations: counter(
                "apiserver_validating_admission_policy_check_total",
                "[BETA] Validation admission policy check total, labeled by policy and further identified by binding and enforcement action taken.",
                &VALIDATION,
            )?,
            validation_durations: histogram(
                "apiserver_validating_admission_policy_check_duration_seconds",
                "[BETA] Validation admission latency for individual validation expressions in seconds, labeled by policy and further including binding and enforcement action taken.",
                &VALIDATION,
            )?,
            mutations: counter(
                "apiserver_mutating_admission_policy_check_total",
                "[ALPHA] Mutation admission policy check total, labeled by policy and further identified by binding.",
                &MUTATION,
            )?,
            mutation_durations: histogram(
                "apiserver_mutating_admission_policy_check_duration_seconds",
                "[ALPHA] Mutation admission latency for individual mutation expressions in seconds, labeled by policy and binding.",
                &MUTATION,
            )?,
        }))
    }
}

impl PolicyObserver for PolicyMetrics {
    fn validated(&self, run: PolicyRun<'_>, action: &'static str) {
        let labels = [run.policy, run.binding, run.error.as_str(), action];
        self.validations.with_label_values(&labels).inc();
        self.validation_durations
            .with_label_values(&labels)
            .observe(run.took.as_secs_f64());
    }

    fn mutated(&self, run: PolicyRun<'_>) {
        let labels = [run.policy, run.binding, run.error.as_str()];
        self.mutations.with_label_values(&labels).inc();
        self.mutation_durations
            .with_label_values(&labels)
            .observe(run.took.as_secs_f64());
    }
}
