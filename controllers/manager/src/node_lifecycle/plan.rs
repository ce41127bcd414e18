//! Conditions of a silent node, and taints of a node by its conditions. Pure.

use crate::views::{Condition, NodeView, find, seconds};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery_meta::ObjectHeader;
use machinery_semantics::taints::{NO_EXECUTE, NO_SCHEDULE};
use serde_json::{Value, json};

pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The `NoSchedule` taints this controller owns; others it leaves alone.
const OWNED: [&str; 7] = [
    NOT_READY,
    UNREACHABLE,
    UNSCHEDULABLE,
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/network-unavailable",
];

/// Conditions that taint when they are true.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
];

/// Conditions that become `Unknown` with a silent node.
const VOUCHED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Reasons of the conditions that this controller writes.
const NODE_SILENT: &str = "NodeStatusUnknown";
const NODE_STATUS_NEVER_UPDATED: &str = "NodeStatusNeverUpdated";

/// The conditions of a node that has been silent for too long, where its `Ready` is not that already.
pub(super) fn silenced(node: &NodeView, now: Timestamp) -> Option<Vec<Condition>> {
    let mut conditions = node.conditions.clone();
    let mut changed = false;
    for kind in VOUCHED {
        match conditions.iter_mut().find(|condition| condition.kind == kind) {
            // Already so: a new transition time would hide since when.
            Some(condition) if condition.status == "Unknown" => {}
            Some(condition) => {
                condition.status = "Unknown".to_owned();
                condition.reason = NODE_SILENT.to_owned();
                condition.message = "Kubelet stopped posting node status.".to_owned();
                condition.last_transition_time = Some(seconds(now));
                changed |= kind == "Ready";
            }
            None => {
                let message = "Kubelet never posted node status.";
                conditions.push(Condition::new(
                    kind,
                    "Unknown",
                    NODE_STATUS_NEVER_UPDATED,
                    message,
                    now,
                ));
                changed |= kind == "Ready";
            }
        }
    }
    changed.then_some(conditions)
}

/// The conditions as they are written: those that the node never had were last probed when it was made.
pub(super) fn conditions_as_written(conditions: &[Condition], header: &ObjectHeader) -> Vec<Value> {
    let written = conditions.iter().map(|own| {
        let mut written = json!(own);
        if own.reason == NODE_STATUS_NEVER_UPDATED {
            written["lastHeartbeatTime"] = json!(header.creation_timestamp);
        }
        written
    });
    written.collect()
}

/// The value of `Ready`, `Unknown` where there is none.
pub(super) fn readiness(node: &NodeView) -> &str {
    find(&node.conditions, "Ready").map_or("Unknown", |ready| ready.status.as_str())
}

/// Reports whether it was this controller that set the node's `Ready` to `Unknown`. One that has never reported has no
/// pods that are ready.
pub(super) fn is_given_up_on(node: &NodeView) -> bool {
    find(&node.conditions, "Ready")
        .is_some_and(|ready| ready.status == "Unknown" && ready.reason == NODE_SILENT)
}

/// Decision on the `NoExecute` taint of a node that is not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EvictionTaint {
    /// It gets one: its pods are to leave.
    Yes,
    /// It keeps what it has; one for the wrong reason becomes one for the right.
    NotYet,
    /// It has none: no node renews.
    Stopped,
}

/// The taint that says why a node is not ready. One that has not reported yet has none: it gets its conditions from
/// [`silenced`] when the time to report is over.
pub(super) fn reason(node: &NodeView) -> Option<&'static str> {
    match find(&node.conditions, "Ready")?.status.as_str() {
        "True" => None,
        "False" => Some(NOT_READY),
        _ => Some(UNREACHABLE),
    }
}

/// Reports whether the node has a `NoExecute` taint of this controller.
pub(super) fn is_tainted_no_execute(node: &NodeView) -> bool {
    node.taints.iter().any(is_giving_up)
}

fn is_giving_up(taint: &Taint) -> bool {
    taint.effect == NO_EXECUTE && [NOT_READY, UNREACHABLE].contains(&taint.key.as_str())
}

/// The taints a node is to have, where they are not what it has.
pub(super) fn taints(node: &NodeView, give_up: EvictionTaint, now: Timestamp) -> Option<Vec<Taint>> {
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    wanted.extend(reason(node).map(|key| (key, NO_SCHEDULE)));
    for (kind, key) in PRESSURES {
        if find(&node.conditions, kind).is_some_and(Condition::is_true) {
            wanted.push((key, NO_SCHEDULE));
        }
    }
    if node.unschedulable {
        wanted.push((UNSCHEDULABLE, NO_SCHEDULE));
    }
    let leave = match give_up {
        EvictionTaint::Yes => true,
        // A taint that is there stays: removing and adding it again would restart the toleration windows of the
        // node's pods.
        EvictionTaint::NotYet => is_tainted_no_execute(node),
        EvictionTaint::Stopped => false,
    };
    wanted.extend(reason(node).filter(|_| leave).map(|key| (key, NO_EXECUTE)));
    let owned = |taint: &Taint| {
        (taint.effect == NO_SCHEDULE && OWNED.contains(&taint.key.as_str())) || is_giving_up(taint)
    };
    let has = |own: &(&str, &str)| {
        node.taints
            .iter()
            .any(|taint| (taint.key.as_str(), taint.effect.as_str()) == *own)
    };
    let is_wanted = |taint: &Taint| wanted.contains(&(taint.key.as_str(), taint.effect.as_str()));
    if wanted.iter().all(has) && node.taints.iter().all(|taint| !owned(taint) || is_wanted(taint)) {
        return None;
    }
    let mut taints: Vec<Taint> = node
        .taints
        .iter()
        .filter(|taint| !owned(taint) || is_wanted(taint))
        .cloned()
        .collect();
    for (key, effect) in wanted.iter().filter(|own| !has(own)) {
        taints.push(Taint {
            key: (*key).to_owned(),
            effect: (*effect).to_owned(),
            value: None,
            time_added: Some(Time(now)),
        });
    }
    Some(taints)
}
