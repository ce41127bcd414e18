//! `job_controller_*` (upstream's `pkg/controller/job/metrics`).

use super::has_finalizer;
use super::indexes;
use super::plan::Plan;
use super::snapshot::Snapshot;
use crate::views::{JobStatus, JobView, PodView, find};
use machinery_client::{Change, Object};
use machinery_runtime::metrics::{ComponentMetrics, Counters, Family, Histograms};
use serde::Deserialize;

const SYNC: &[&str] = &["completion_mode", "result", "action"];

const SYNC_DURATION: Family = Family::new(
    "job_controller_job_sync_duration_seconds",
    "[STABLE] The time it took to sync a job",
    SYNC,
)
.exponential(0.004, 2.0, 15);
const SYNCS: Family = Family::new(
    "job_controller_job_syncs_total",
    "[STABLE] The number of job syncs",
    SYNC,
);
const FINISHED: Family = Family::new(
    "job_controller_jobs_finished_total",
    "[STABLE] The number of finished jobs",
    &["completion_mode", "result", "reason"],
);
const PODS_FINISHED: Family = Family::new(
    "job_controller_job_pods_finished_total",
    "[STABLE] The number of finished Pods that are fully tracked",
    &["completion_mode", "result"],
);
const BY_POLICY: Family = Family::new(
    "job_controller_pod_failures_handled_by_failure_policy_total",
    "[BETA] The number of failed Pods handled by failure policy with\n\t\t\trespect to the failure policy action applied \
     based on the matched\n\t\t\trule. Possible values of the action label correspond to the\n\t\t\tpossible values for \
     the failure policy rule action, which are:\n\t\t\t\"FailJob\", \"Ignore\" and \"Count\".",
    &["action"],
);
const TRACKED: Family = Family::new(
    "job_controller_terminated_pods_tracking_finalizer_total",
    "[BETA] The number of terminated pods (phase=Failed|Succeeded)\nthat have the finalizer \
     batch.kubernetes.io/job-tracking\nThe event label can be \"add\" or \"delete\".",
    &["event"],
);
const INDEXES: Family = Family::new(
    "job_controller_job_finished_indexes_total",
    "[ALPHA] The number of finished indexes. Possible values for the\n\t\t\tstatus label are: \"succeeded\", \"failed\". \
     Possible values for the\n\t\t\tbackoffLimit label are: \"perIndex\" and \"global\"",
    &["status", "backoffLimit"],
);
const CREATIONS: Family = Family::new(
    "job_controller_job_pods_creation_total",
    "[ALPHA] The number of Pods created by the Job controller labelled with a reason for the Pod creation.\nThis metric \
     also distinguishes between Pods created using different PodReplacementPolicy settings.\nPossible values of the \
     \"reason\" label are:\n\"new\", \"recreate_terminating_or_failed\", \"recreate_failed\".\nPossible values of the \
     \"status\" label are:\n\"succeeded\", \"failed\".",
    &["reason", "status"],
);
const ELSEWHERE: Family = Family::new(
    "job_controller_jobs_by_external_controller_total",
    "[ALPHA] The number of Jobs managed by an external controller",
    &["controller_name"],
);

/// The vectors.
#[derive(Clone)]
pub(super) struct JobMetrics {
    sync_duration: Histograms,
    syncs: Counters,
    finished: Counters,
    pods_finished: Counters,
    by_policy: Counters,
    tracked: Counters,
    indexes: Counters,
    creations: Counters,
    elsewhere: Counters,
}

#[derive(Deserialize)]
struct Managed {
    spec: ManagedSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedSpec {
    managed_by: String,
}

impl JobMetrics {
    pub(super) fn new(metrics: &ComponentMetrics) -> Self {
        Self {
            sync_duration: metrics.histograms(&SYNC_DURATION),
            syncs: metrics.counters(&SYNCS),
            finished: metrics.counters(&FINISHED),
            pods_finished: metrics.counters(&PODS_FINISHED),
            by_policy: metrics.counters(&BY_POLICY),
            tracked: metrics.counters(&TRACKED),
            indexes: metrics.counters(&INDEXES),
            creations: metrics.counters(&CREATIONS),
            elsewhere: metrics.counters(&ELSEWHERE),
        }
    }

    /// A reconcile of a Job has ended after so many seconds.
    pub(super) fn synced(&self, job: &JobView, succeeded: bool, action: &str, seconds: f64) {
        let result = if succeeded { "success" } else { "error" };
        let labels = [mode(job), result, action];
        self.sync_duration.of(&labels).observe(seconds);
        self.syncs.of(&labels).inc();
    }

    /// A pod was made, or not.
    pub(super) fn created(&self, snapshot: &Snapshot, plan: &Plan, succeeded: bool) {
        let uncounted = plan.status.uncounted_terminated_pods.as_ref();
        let failed = plan.status.failed > 0 || uncounted.is_some_and(|own| !own.failed.is_empty());
        let terminating = plan.status.terminating.unwrap_or(0) > 0;
        let reason = match (failed, terminating) {
            (true, _) if snapshot.job.replace_failed_only => "recreate_failed",
            (true, _) | (_, true) => "recreate_terminating_or_failed",
            _ => "new",
        };
        self.creations.of(&[reason, result(succeeded)]).inc();
    }

    /// A status was written.
    pub(super) fn written(&self, job: &JobView, status: &JobStatus) {
        let (before, mode) = (&job.status, mode(job));
        let mut succeeded = more(before.succeeded.into(), status.succeeded.into());
        if job.indexed {
            let all = u32::try_from(job.completions.unwrap_or(0)).unwrap_or(0);
            let count = |text: &str| i64::try_from(indexes::parse(text, all).len()).unwrap_or(i64::MAX);
            let failed = |status: &JobStatus| count(status.failed_indexes.as_deref().unwrap_or(""));
            succeeded = more(count(&before.completed_indexes), count(&status.completed_indexes));
            let limit = match job.backoff_limit_per_index {
                Some(_) => "perIndex",
                None => "global",
            };
            self.indexes.of(&["succeeded", limit]).inc_by(succeeded);
            let failed = more(failed(before), failed(status));
            if failed > 0 {
                self.indexes.of(&["failed", limit]).inc_by(failed);
            }
        }
        self.pods_finished.of(&[mode, "succeeded"]).inc_by(succeeded);
        let failed = more(before.failed.into(), status.failed.into());
        self.pods_finished.of(&[mode, "failed"]).inc_by(failed);
        for (kind, succeeded) in [("Complete", true), ("Failed", false)] {
            let of = |status: &JobStatus| {
                find(&status.conditions, kind)
                    .filter(|own| own.is_true())
                    .cloned()
            };
            if let Some(condition) = of(status).filter(|_| of(before).is_none()) {
                let labels = [mode, result(succeeded), &condition.reason];
                self.finished.of(&labels).inc();
            }
        }
    }

    /// Failed pods were counted by these actions of the Job's policy.
    pub(super) fn handled(&self, plan: &Plan) {
        for action in &plan.policy_actions {
            self.by_policy.of(&[*action]).inc();
        }
    }

    /// A pod has ended with the finalizer, or has lost it after its end.
    pub(super) fn pod_changed(&self, change: &Change<PodView>) {
        let tracked = |pod: &std::sync::Arc<Object<PodView>>| pod.is_terminal() && has_finalizer(pod);
        let (was, is) = (
            change.old.as_ref().is_some_and(tracked),
            change.new.as_ref().is_some_and(tracked),
        );
        if was != is {
            self.tracked.of(&[if is { "add" } else { "delete" }]).inc();
        }
    }

    /// A Job has come that another manages.
    pub(super) fn job_changed(&self, change: &Change<JobView>) {
        let new = change.new.as_ref().filter(|_| change.old.is_none());
        let Some(job) = new.filter(|job| job.managed_elsewhere) else {
            return;
        };
        if let Ok(Managed { spec }) = job.decode() {
            self.elsewhere.of(&[&spec.managed_by]).inc();
        }
    }
}

fn mode(job: &JobView) -> &'static str {
    if job.indexed { "Indexed" } else { "NonIndexed" }
}

fn result(succeeded: bool) -> &'static str {
    if succeeded { "succeeded" } else { "failed" }
}

fn more(before: i64, now: i64) -> u64 {
    u64::try_from(now.saturating_sub(before)).unwrap_or(0)
}
