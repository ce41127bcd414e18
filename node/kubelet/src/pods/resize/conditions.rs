//! Conditions and events of a pod's resize.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use crate::pods::spec;

/// Condition of a resize that waits for resources of the node.
const PENDING: &str = "PodResizePending";
/// Condition of a resize that is allocated and not yet actuated.
const IN_PROGRESS: &str = "PodResizeInProgress";

/// Content of one of the two conditions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ResizeCondition {
    /// `Deferred`, `Infeasible`, `Error`, or empty.
    pub(crate) reason: String,
    /// Cause of the delay or failure.
    pub(crate) message: String,
    /// Observed generation of the pod.
    pub(crate) generation: i64,
}

/// Resize conditions of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ResizeState {
    /// Set while a resize waits for resources of the node.
    pub(crate) pending: Option<ResizeCondition>,
    /// Set while an allocated resize is carried out.
    pub(crate) in_progress: Option<ResizeCondition>,
}

impl ResizeState {
    /// Reads the conditions that an earlier agent wrote.
    pub(crate) fn of(status: &PodStatus) -> Self {
        let of = |kind: &str| {
            let mut conditions = status.conditions.iter().flatten();
            let found = conditions.find(|condition| condition.type_ == kind)?;
            Some(ResizeCondition {
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

    /// Sets, updates or removes both conditions in a pod's list.
    pub(crate) fn put_into(&self, conditions: &mut Vec<PodCondition>, now: Timestamp) {
        for (kind, content) in [(PENDING, &self.pending), (IN_PROGRESS, &self.in_progress)] {
            let found = conditions.iter_mut().find(|condition| condition.type_ == kind);
            match (found, content) {
                (found, Some(content)) => {
                    let made = condition(kind, content, found.as_deref(), now);
                    match found {
                        Some(existing) => *existing = made,
                        None => conditions.push(made),
                    }
                }
                (_, None) => conditions.retain(|condition| condition.type_ != kind),
            }
        }
    }
}

fn condition(
    kind: &str,
    content: &ResizeCondition,
    before: Option<&PodCondition>,
    now: Timestamp,
) -> PodCondition {
    let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let reason = some(&content.reason);
    // Both conditions are true while they exist, so a changed reason is what makes a transition.
    let since = before.filter(|before| before.reason == reason);
    let since = since.and_then(|before| before.last_transition_time.clone());
    PodCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason,
        message: some(&content.message),
        observed_generation: Some(content.generation),
        last_transition_time: since
            .or_else(|| Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now)))),
        ..PodCondition::default()
    }
}

/// Container of an event's text, with upstream's field names in upstream's order.
#[derive(Serialize)]
struct ContainerSummary<'a> {
    name: &'a str,
    resources: ResourceRequirements,
}

/// Pod of an event's text.
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

/// Returns the text of an event: the pod's resources, its generation, and the error if any.
pub(crate) fn event(what: &str, pod: &Pod, generation: i64, error: &str) -> String {
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
        let content = |reason: &str| ResizeCondition {
            reason: reason.to_owned(),
            message: String::new(),
            generation: 2,
        };
        let mut state = ResizeState {
            pending: Some(content("Deferred")),
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
