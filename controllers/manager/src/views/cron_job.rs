//! Projection of a CronJob.

use crate::views::created;
use jiff::Timestamp;
use machinery_client::{Index, Projection};
use machinery_meta::ObjectHeader;
use serde::{Deserialize, Serialize};

/// The projection of a CronJob. Its template is read from the object's bytes when a Job is made.
#[derive(Debug, Clone)]
pub struct CronJobView {
    /// `spec.schedule`.
    pub schedule: Box<str>,
    /// `spec.timeZone`.
    pub time_zone: Option<Box<str>>,
    /// `spec.concurrencyPolicy`.
    pub concurrency: Concurrency,
    /// `spec.startingDeadlineSeconds`.
    pub starting_deadline_seconds: Option<i64>,
    /// `spec.suspend`.
    pub suspend: bool,
    /// `spec.successfulJobsHistoryLimit`.
    pub successful_jobs_history_limit: Option<i32>,
    /// `spec.failedJobsHistoryLimit`.
    pub failed_jobs_history_limit: Option<i32>,
    /// Time of creation.
    pub created: Timestamp,
    /// `status`.
    pub status: CronJobStatus,
}

/// Fate of a run whose predecessor has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Concurrency {
    /// Both run.
    #[default]
    Allow,
    /// It is left out.
    Forbid,
    /// The predecessor goes.
    Replace,
}

/// `status` of a CronJob.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobStatus {
    /// Jobs at work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub active: Vec<ActiveJob>,
    /// The time of the schedule for which a Job was last made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<String>,
    /// Time at which a Job was last complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_successful_time: Option<String>,
}

/// A reference to a Job, as `status.active` has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ActiveJob {
    /// `batch/v1`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_version: Box<str>,
    /// `Job`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub kind: Box<str>,
    /// Its namespace.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: Box<str>,
    /// Its name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: Box<str>,
    /// Its uid.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub uid: Box<str>,
    /// Its version when it was listed.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub resource_version: Box<str>,
    /// A part of it; the controller writes none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub field_path: Box<str>,
}

impl Projection for CronJobView {
    const INDEXES: &'static [Index<Self>] = &[Index::NAMESPACE];
    const KEEP_BYTES: bool = true;

    fn project(header: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let CronJob { spec, status } = machinery_client::json::from_slice(json)?;
        Ok(Self {
            schedule: spec.schedule,
            time_zone: spec.time_zone,
            concurrency: spec.concurrency_policy,
            starting_deadline_seconds: spec.starting_deadline_seconds,
            suspend: spec.suspend.unwrap_or(false),
            successful_jobs_history_limit: spec.successful_jobs_history_limit,
            failed_jobs_history_limit: spec.failed_jobs_history_limit,
            created: created(header),
            status,
        })
    }
}

#[derive(Deserialize)]
struct CronJob {
    spec: Spec,
    #[serde(default)]
    status: CronJobStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    schedule: Box<str>,
    time_zone: Option<Box<str>>,
    #[serde(default)]
    concurrency_policy: Concurrency,
    starting_deadline_seconds: Option<i64>,
    suspend: Option<bool>,
    successful_jobs_history_limit: Option<i32>,
    failed_jobs_history_limit: Option<i32>,
}
