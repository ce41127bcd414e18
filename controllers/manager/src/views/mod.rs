//! Fields of each kind that controllers read: one projection per kind, made once per event, shared by all that read it.
//!
//! A projection is decoded from the object's JSON through a private struct that names only the fields read. A new
//! reader that needs one more field adds it here, and all pay for it once.

pub mod cron_job;
pub mod daemon_set;
pub mod deployment;
pub mod device_claims;
pub mod disruption_budget;
pub mod job;
pub mod namespace;
pub mod node;
pub mod pod;
pub mod replica_set;
pub mod selector;
pub mod service;
pub mod stateful_set;
pub mod template;

pub use cron_job::{CronJobStatus, CronJobView};
pub use daemon_set::{DaemonSetStatus, DaemonSetView};
pub use deployment::{DeploymentStatus, DeploymentView};
pub use device_claims::{DeviceClaimSource, MadeClaim};
pub use disruption_budget::DisruptionBudgetView;
pub use job::{JobStatus, JobView};
pub use namespace::NamespaceView;
pub use node::NodeView;
pub use pod::{Phase, PodClaim, PodView};
pub use replica_set::{ReplicaSetStatus, ReplicaSetView, ReplicationControllerView, SetView};
pub use selector::Selector;
pub use service::ServiceView;
pub use stateful_set::{StatefulSetStatus, StatefulSetView};
pub use template::PodTemplate;

use jiff::Timestamp;
use machinery_meta::ObjectHeader;

/// The time an RFC 3339 text names.
pub(crate) fn time(text: Option<&str>) -> Option<Timestamp> {
    text?.parse().ok()
}

/// Time at which an object was created.
pub(crate) fn created(header: &ObjectHeader) -> Timestamp {
    time(header.creation_timestamp.as_deref()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A condition as most kinds write it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Time of its last update, where the kind has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<String>,
    /// Time of its last probe, where the kind has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<String>,
    /// Time at which `status` changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// One word on why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A sentence on why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Condition {
    /// A condition that changed now.
    pub fn new(kind: &str, status: &str, reason: &str, message: impl Into<String>, now: Timestamp) -> Self {
        Self {
            kind: kind.to_owned(),
            status: status.to_owned(),
            last_update_time: None,
            last_probe_time: None,
            last_transition_time: Some(seconds(now)),
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    /// Reports whether it holds.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// The condition of a type.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// A time as objects write it.
pub fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
