//! Evaluations, exemptions and errors of the plugin PodSecurity, under upstream's names.

use super::families::Families;
use apiserver_admission::plugins::pod_security::Recorder;
use prometheus::{IntCounterVec, Opts};

const EVALUATIONS: &str = "pod_security_evaluations_total";
const EXEMPTIONS: &str = "pod_security_exemptions_total";
const ERRORS: &str = "pod_security_errors_total";

/// Reported by the plugin; shown once it is registered.
#[derive(Debug)]
pub(crate) struct PodSecurityMetrics {
    evaluations: IntCounterVec,
    exemptions: IntCounterVec,
    errors: IntCounterVec,
}

impl PodSecurityMetrics {
    pub(crate) fn new() -> Self {
        let counter = |name, help, labels: &[&str]| {
            let vector = IntCounterVec::new(Opts::new(name, help), labels);
            vector.expect("names and labels are well formed")
        };
        let own = Self {
            evaluations: counter(
                EVALUATIONS,
                "[ALPHA] Number of policy evaluations that occurred, not counting ignored or exempt requests.",
                &[
                    "decision",
                    "policy_level",
                    "policy_version",
                    "mode",
                    "request_operation",
                    "resource",
                    "subresource",
                ],
            ),
            exemptions: counter(
                EXEMPTIONS,
                "[ALPHA] Number of exempt requests, not counting ignored or out of scope requests.",
                &["request_operation", "resource", "subresource"],
            ),
            errors: counter(
                ERRORS,
                "[ALPHA] Number of errors preventing normal evaluation. Non-fatal errors may result in the latest restricted profile being used for evaluation.",
                &["fatal", "request_operation", "resource", "subresource"],
            ),
        };
        begin(&own.evaluations, &own.exemptions);
        own
    }

    pub(crate) fn register(&self, families: &Families) -> Result<(), prometheus::Error> {
        let evaluations = families.vector(self.evaluations.clone())?;
        let exemptions = families.vector(self.exemptions.clone())?;
        families.vector(self.errors.clone())?;
        families.on_reset(move || begin(&evaluations, &exemptions));
        Ok(())
    }
}

/// The series that upstream shows from the beginning.
fn begin(evaluations: &IntCounterVec, exemptions: &IntCounterVec) {
    for operation in ["create", "update"] {
        let labels = ["allow", "privileged", "latest", "enforce", operation, "pod", ""];
        evaluations.with_label_values(&labels);
        for resource in ["pod", "controller"] {
            exemptions.with_label_values(&[operation, resource, ""]);
        }
    }
}

impl Recorder for PodSecurityMetrics {
    fn evaluated(&self, labels: [&str; 7]) {
        self.evaluations.with_label_values(&labels).inc();
    }

    fn exempted(&self, labels: [&str; 3]) {
        self.exemptions.with_label_values(&labels).inc();
    }

    fn failed(&self, labels: [&str; 4]) {
        self.errors.with_label_values(&labels).inc();
    }
}
