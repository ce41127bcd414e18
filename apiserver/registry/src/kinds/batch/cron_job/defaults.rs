//! Defaults of CronJobs.

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &[
    "spec.concurrencyPolicy=\"Allow\"",
    "spec.failedJobsHistoryLimit=1",
    "spec.successfulJobsHistoryLimit=3",
    "spec.suspend=false",
    "spec.jobTemplate.spec.podFailurePolicy.rules[].onPodConditions[].status=\"True\"",
];
