//! Pods that the kubelet ends without a request to delete them: preempted for a critical one, evicted, or on a node that shuts down.

use std::collections::BTreeMap;

use super::preemption;

/// Order to end a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Disruption {
    /// Reason in status and event.
    pub(crate) reason: &'static str,
    /// Message of both.
    pub(crate) message: String,
    /// Message of the condition `DisruptionTarget`, where the pod gets it.
    pub(crate) condition: Option<String>,
    /// Longest grace period, in seconds; without it the pod's own.
    pub(crate) grace_seconds: Option<i64>,
    /// Annotations of the event.
    pub(crate) annotations: BTreeMap<String, String>,
    /// An event of the pod reports it.
    pub(crate) has_event: bool,
}

impl Disruption {
    /// A critical pod needs its resources.
    pub(crate) fn preempted() -> Self {
        Self {
            reason: preemption::REASON,
            message: preemption::MESSAGE.to_owned(),
            condition: Some("Pod was preempted by Kubelet to accommodate a critical pod.".to_owned()),
            grace_seconds: None,
            annotations: BTreeMap::new(),
            has_event: true,
        }
    }
}

/// Failure of a pod as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// One word.
    pub(crate) reason: String,
    /// A sentence.
    pub(crate) message: String,
    /// Message of the condition `DisruptionTarget`, where the pod gets it.
    pub(crate) disruption: Option<String>,
}

impl Failure {
    /// A failure of the pod's own.
    pub(crate) fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            message: message.into(),
            disruption: None,
        }
    }
}

impl From<Disruption> for Failure {
    fn from(disruption: Disruption) -> Self {
        Self {
            reason: disruption.reason.to_owned(),
            message: disruption.message,
            disruption: disruption.condition,
        }
    }
}
