//! Fields of a Job that controllers read.

use crate::views::template::PodTemplate;
use crate::views::{Condition, Selector, created, find, time};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{PodFailurePolicy, SuccessPolicy};
use machinery_client::{Folded, Index, Projection};
use machinery_meta::ObjectHeader;
use serde::{Deserialize, Serialize};

/// The projection of a Job.
#[derive(Debug, Clone)]
pub struct JobView {
    /// `spec.parallelism`.
    pub parallelism: i32,
    /// `spec.completions`.
    pub completions: Option<i32>,
    /// `spec.completionMode` is `Indexed`.
    pub indexed: bool,
    /// `spec.suspend`.
    pub suspend: bool,
    /// `spec.backoffLimit`.
    pub backoff_limit: i32,
    /// `spec.backoffLimitPerIndex`.
    pub backoff_limit_per_index: Option<i32>,
    /// `spec.maxFailedIndexes`.
    pub max_failed_indexes: Option<i32>,
    /// `spec.activeDeadlineSeconds`.
    pub active_deadline_seconds: Option<i64>,
    /// `spec.ttlSecondsAfterFinished`.
    pub ttl_seconds_after_finished: Option<i32>,
    /// `spec.podReplacementPolicy` is `Failed`.
    pub replace_failed_only: bool,
    /// `spec.managedBy` names another.
    pub managed_elsewhere: bool,
    /// `spec.podFailurePolicy`.
    pub failure_policy: Option<Folded<PodFailurePolicy>>,
    /// `spec.successPolicy`.
    pub success_policy: Option<Folded<SuccessPolicy>>,
    /// `spec.template.spec.restartPolicy` is `OnFailure`.
    pub restarts_on_failure: bool,
    /// `spec.selector`.
    pub selector: Selector,
    /// `spec.template`.
    pub template: PodTemplate,
    /// Time of creation.
    pub created: Timestamp,
    /// `status`.
    pub status: JobStatus,
}

/// `status` of a Job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// `Complete`, `Failed`, `Suspended` and what comes before them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Time at which work began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// Time at which it was complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<String>,
    /// Pods at work.
    #[serde(skip_serializing_if = "super::replica_set::is_zero")]
    pub active: i32,
    /// Pods that did well.
    #[serde(skip_serializing_if = "super::replica_set::is_zero")]
    pub succeeded: i32,
    /// Pods that did not.
    #[serde(skip_serializing_if = "super::replica_set::is_zero")]
    pub failed: i32,
    /// Pods being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<i32>,
    /// Indexes that did well, such as `1,3-5`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub completed_indexes: String,
    /// Indexes that have failed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_indexes: Option<String>,
    /// Pods counted in neither number yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncounted_terminated_pods: Option<UncountedTerminatedPods>,
    /// Ready pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<i32>,
}

/// Uids of pods that have ended, hold the Job's finalizer, and are not in its counts yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UncountedTerminatedPods {
    /// Ended well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub succeeded: Vec<String>,
    /// Ended badly.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
}

impl JobView {
    /// Complete or failed.
    pub fn is_finished(&self) -> bool {
        self.finished_at().is_some()
    }

    /// Time at which it finished.
    pub fn finished_at(&self) -> Option<Timestamp> {
        let finished = ["Complete", "Failed"]
            .into_iter()
            .filter_map(|kind| find(&self.status.conditions, kind));
        let finished = finished.into_iter().find(|condition| condition.is_true())?;
        time(finished.last_transition_time.as_deref()).or(Some(Timestamp::UNIX_EPOCH))
    }
}

impl Projection for JobView {
    const INDEXES: &'static [Index<Self>] = &[Index::NAMESPACE, Index::CONTROLLER];
    const KEEP_BYTES: bool = true;

    fn project(header: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let job: Job = machinery_client::json::from_slice(json)?;
        let spec = job.spec;
        let restart: Restart = machinery_client::json::from_str(spec.template.spec.get())?;
        Ok(Self {
            parallelism: spec.parallelism.unwrap_or(1),
            completions: spec.completions,
            indexed: spec.completion_mode.as_deref() == Some("Indexed"),
            suspend: spec.suspend.unwrap_or(false),
            // Absent with a limit per index, where it means "no limit".
            backoff_limit: spec
                .backoff_limit
                .unwrap_or(if spec.backoff_limit_per_index.is_some() {
                    i32::MAX
                } else {
                    6
                }),
            backoff_limit_per_index: spec.backoff_limit_per_index,
            max_failed_indexes: spec.max_failed_indexes,
            active_deadline_seconds: spec.active_deadline_seconds,
            ttl_seconds_after_finished: spec.ttl_seconds_after_finished,
            replace_failed_only: spec.pod_replacement_policy.as_deref() == Some("Failed"),
            managed_elsewhere: spec
                .managed_by
                .is_some_and(|own| own != "kubernetes.io/job-controller"),
            failure_policy: spec.pod_failure_policy,
            success_policy: spec.success_policy,
            restarts_on_failure: restart.restart_policy == "OnFailure",
            selector: spec.selector,
            template: spec.template,
            created: created(header),
            status: job.status,
        })
    }
}

#[derive(Deserialize)]
struct Job {
    spec: Spec,
    #[serde(default)]
    status: JobStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    parallelism: Option<i32>,
    completions: Option<i32>,
    completion_mode: Option<String>,
    suspend: Option<bool>,
    backoff_limit: Option<i32>,
    backoff_limit_per_index: Option<i32>,
    max_failed_indexes: Option<i32>,
    active_deadline_seconds: Option<i64>,
    ttl_seconds_after_finished: Option<i32>,
    pod_replacement_policy: Option<String>,
    managed_by: Option<String>,
    pod_failure_policy: Option<Folded<PodFailurePolicy>>,
    success_policy: Option<Folded<SuccessPolicy>>,
    #[serde(default)]
    selector: Selector,
    template: PodTemplate,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Restart {
    restart_policy: String,
}
