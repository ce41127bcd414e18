//! New pods on a node that runs short: critical ones are admitted, under memory pressure alone also those that request
//! something or tolerate its taint; upstream's rule and words. Pure.

use k8s_openapi::api::core::v1::{Pod, Taint};
use machinery_semantics::taints;

use crate::containers::resources::{Qos, qos};
use crate::node::pressure::Pressure;
use crate::pods::{is_critical, spec};

const MEMORY_TAINT: &str = "node.kubernetes.io/memory-pressure";

/// Message of the rejection of a new pod.
pub(crate) fn rejection(pod: &Pod, pressure: Pressure) -> Option<String> {
    let conditions = pressure.conditions();
    if conditions.is_empty() || is_critical(pod) {
        return None;
    }
    let memory_alone = pressure.memory && conditions.len() == 1;
    if memory_alone && (qos(pod) != Qos::BestEffort || tolerates_memory_pressure(pod)) {
        return None;
    }
    Some(format!("The node had condition: [{}]. ", conditions.join(" ")))
}

fn tolerates_memory_pressure(pod: &Pod) -> bool {
    let taint = Taint {
        key: MEMORY_TAINT.to_owned(),
        effect: taints::NO_SCHEDULE.to_owned(),
        ..Taint::default()
    };
    taints::is_tolerated(&taint, spec(pod).tolerations.as_deref().unwrap_or_default())
}
