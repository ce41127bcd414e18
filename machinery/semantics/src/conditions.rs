//! Looking conditions up, whichever kind carries them.

use k8s_openapi::api::core::v1::{NodeCondition, NodeStatus, PodCondition, PodStatus};

/// A pod's condition of a type.
pub fn pod_condition<'a>(status: Option<&'a PodStatus>, kind: &str) -> Option<&'a PodCondition> {
    status?
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == kind)
}

/// A node's condition of a type.
pub fn node_condition<'a>(status: Option<&'a NodeStatus>, kind: &str) -> Option<&'a NodeCondition> {
    status?
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == kind)
}
