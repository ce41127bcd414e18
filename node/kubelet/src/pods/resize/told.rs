//! What conditions and events say of a change of resources.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use crate::pods::spec;

/// The condition of a change that waits for room.
const PENDING: &str = "PodResizePending";
/// The condition of a change that has been promised and not yet made.
const IN_PROGRESS: &str = "PodResizeInProgress";

/// One of the two conditions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// Empty, or a word for what is wrong.
    pub reason: String,
    /// What is wrong.
    pub message: String,
    /// The generation of the pod that it is said of.
    pub generation: i64,
}

/// What is said of a pod's resources just now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResizeState {
    /// A change waits for room.
    pub pending: Option<Told>,
    /// A change has been promised and is being made.
    pub in_progress: Option<Told>,
}

impl ResizeState {
    /// What an agent before this one said.
    pub fn of(status: &PodStatus) -> Self {
        let of = |kind: &str| {
            let mut conditions = status.conditions.iter().flatten();
            let found = conditions.find(|condition| condition.type_ == kind)?;
            Some(Told {
                reason: found.reason.clone().unwrap_or_default(),
                message: found.message.clone().unwrap_or_default(),
                generation: found.observed_generation.unwrap_or_default(),
            })
        };
        Self {
            pending: of(PENDING),
            in_progress: of(IN_PROGRESS),
        }
    }

    /// Brings a pod's conditions up to date.
    pub fn put_into(&self, conditions: &mut Vec<PodCondition>, now: Timestamp) {
        for (kind, told) in [(PENDING, &self.pending), (IN_PROGRESS, &self.in_progress)] {
            let found = conditions.iter_mut().find(|condition| condition.type_ == kind);
            match (found, told) {
                (found, Some(told)) => {
                    let made = condition(kind, told, found.as_deref(), now);
                    match found {
                        Some(place) => *place = made,
                        None => conditions.push(made),
                    }
                }
                (_, None) => conditions.retain(|condition| condition.type_ != kind),
            }
        }
    }
}

fn condition(kind: &str, told: &Told, before: Option<&PodCondition>, now: Timestamp) -> PodCondition {
    let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let reason = some(&told.reason);
    let since = before.filter(|before| before.reason == reason);
    let since = since.and_then(|before| before.last_transition_time.clone());
    PodCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason,
        message: some(&told.message),
        observed_generation: Some(told.generation),
        last_transition_time: since
            .or_else(|| Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now)))),
        ..PodCondition::default()
    }
}

/// What an event says of a container, with upstream's names in upstream's order.
#[derive(Serialize)]
struct ContainerSummary<'a> {
    name: &'a str,
    resources: ResourceRequirements,
}

/// What an event says of a pod.
#[derive(Serialize)]
struct Summary<'a> {
    #[serde(rename = "initContainers", skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<ContainerSummary<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<ContainerSummary<'a>>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

/// The text of an event: what the pod is to have, of which generation, and what went wrong.
pub fn event(what: &str, pod: &Pod, generation: i64, error: &str) -> String {
    let list = |containers| -> Vec<ContainerSummary<'_>> {
        let containers: &[Container] = containers;
        let each = containers.iter().map(|container| ContainerSummary {
            name: &container.name,
            resources: container.resources.clone().unwrap_or_default(),
        });
        each.collect()
    };
    let summary = Summary {
        init_containers: list(spec(pod).init_containers.as_deref().unwrap_or_default()),
        containers: list(&spec(pod).containers),
        generation,
        error,
    };
    let summary = serde_json::to_string(&summary).unwrap_or_default();
    format!("Pod resize {what}: {summary}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resize_events_match_upstream() {
        let pod = serde_json::json!({"metadata": {}, "spec": {"containers": [
            {"name": "c0", "resources": {"limits": {"cpu": "100m"}, "requests": {"cpu": "100m"}}}]}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert_eq!(
            event("completed", &pod, 1, ""),
            r#"Pod resize completed: {"containers":[{"name":"c0","resources":{"limits":{"cpu":"100m"},"requests":{"cpu":"100m"}}}],"generation":1}"#
        );
    }

    #[test]
    fn resize_conditions_are_set_and_removed() {
        let told = |reason: &str| Told {
            reason: reason.to_owned(),
            message: String::new(),
            generation: 2,
        };
        let mut state = ResizeState {
            pending: Some(told("Deferred")),
            in_progress: None,
        };
        let mut conditions = Vec::new();
        let at = |second| Timestamp::from_second(second).unwrap();
        state.put_into(&mut conditions, at(1));
        state.put_into(&mut conditions, at(2));
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0].last_transition_time, Some(Time(at(1))));
        let status = PodStatus {
            conditions: Some(conditions.clone()),
            ..PodStatus::default()
        };
        assert_eq!(ResizeState::of(&status), state);
        state.pending = None;
        state.put_into(&mut conditions, at(3));
        assert!(conditions.is_empty());
    }
}
