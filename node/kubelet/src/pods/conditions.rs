//! A pod's own conditions, from its status. Pure.

use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};

use super::resize::conditions::ResizeState;
use super::restarts::{RoundStage, may_restart_all, source_of_round};
use super::status::{StatusInput, seconds, terminated};
use super::{ContainerKind, init_kind, spec};

const ALL_RESTARTING: &str = "AllContainersRestarting";

/// Our own conditions, the readiness gates' effect included; those of others stay as they are.
pub(super) fn conditions(input: &StatusInput<'_>, status: &PodStatus) -> Vec<PodCondition> {
    let phase = status.phase.as_deref().unwrap_or_default();
    let ended = matches!(phase, "Succeeded" | "Failed");
    let sandbox_ready = input.observed.sandbox().is_some_and(|sandbox| sandbox.ready);
    let containers = containers_ready(input, status, phase);
    let ready = pod_ready(input, &containers);
    let verdicts = [
        (
            "PodReadyToStartContainers",
            Verdict::plain(sandbox_ready && !(ended && input.terminal)),
        ),
        ("Initialized", initialized(input, status, phase)),
        ("Ready", ready),
        ("ContainersReady", containers),
        ("PodScheduled", Verdict::plain(true)),
    ];
    // Begins with all that are there: readiness gates and the scheduler's conditions belong to others and stay.
    let mut conditions = input.previous.conditions.clone().unwrap_or_default();
    for (kind, verdict) in verdicts {
        set_condition(&mut conditions, input, kind, verdict);
    }
    if may_restart_all(input.pod) {
        let verdict = all_restarting(input, phase);
        set_condition(&mut conditions, input, ALL_RESTARTING, verdict);
    }
    if let Some(message) = input.failure.and_then(|failure| failure.disruption.clone()) {
        let disrupted = Verdict {
            truth: true,
            reason: Some("TerminationByKubelet".into()),
            message: Some(message),
        };
        set_condition(&mut conditions, input, "DisruptionTarget", disrupted);
    }
    match input.terminal {
        true => ResizeState::default().put_into(&mut conditions, input.now),
        false => input.resources.state.put_into(&mut conditions, input.now),
    }
    conditions
}

#[derive(Debug, Clone, Default)]
struct Verdict {
    truth: bool,
    reason: Option<String>,
    message: Option<String>,
}

impl Verdict {
    fn plain(truth: bool) -> Self {
        Self {
            truth,
            reason: None,
            message: None,
        }
    }

    fn no(reason: &str, message: &str) -> Self {
        let message = (!message.is_empty()).then(|| message.to_string());
        Self {
            truth: false,
            reason: Some(reason.to_string()),
            message,
        }
    }
}

fn set_condition(conditions: &mut Vec<PodCondition>, input: &StatusInput<'_>, kind: &str, verdict: Verdict) {
    let text = if verdict.truth { "True" } else { "False" };
    let found = conditions.iter_mut().find(|condition| condition.type_ == kind);
    let since = match &found {
        // A changed reason or message keeps the time: it says when the status changed.
        Some(condition) if condition.status == text => condition.last_transition_time.clone(),
        _ => Some(seconds(input.now)),
    };
    let condition = PodCondition {
        type_: kind.to_string(),
        status: text.to_string(),
        reason: verdict.reason,
        message: verdict.message,
        last_probe_time: None,
        last_transition_time: since,
        observed_generation: input.pod.metadata.generation,
    };
    match found {
        Some(place) => *place = condition,
        None => conditions.push(condition),
    }
}

fn initialized(input: &StatusInput<'_>, status: &PodStatus, phase: &str) -> Verdict {
    let began = status
        .container_statuses
        .iter()
        .flatten()
        .any(|status| status.container_id.is_some());
    let kinds = spec(input.pod).init_containers.iter().flatten().map(init_kind);
    let statuses = status.init_container_statuses.iter().flatten();
    let incomplete: Vec<&str> = kinds
        .zip(statuses)
        .filter(|(kind, status)| match kind {
            ContainerKind::Sidecar => status.started != Some(true) && terminated(status).is_none(),
            _ => !status.ready,
        })
        .map(|(_, status)| status.name.as_str())
        .collect();
    if phase == "Succeeded" {
        return Verdict {
            truth: true,
            reason: Some("PodCompleted".into()),
            message: None,
        };
    }
    // Once a regular container has begun, init containers count as complete, also where their records were
    // collected (upstream's `HasAnyRegularContainerStarted`).
    if incomplete.is_empty() || began {
        return Verdict::plain(true);
    }
    let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    Verdict::no("ContainersNotInitialized", &message)
}

/// Stage of the pod's round as its status shows it: that the containers end is reported once before that they have ended.
pub(super) fn round_stage(input: &StatusInput<'_>) -> RoundStage {
    let previous = input.previous;
    let Some((source, _)) = source_of_round(input.pod, input.observed) else {
        return RoundStage::Begun;
    };
    let reported = previous.conditions.iter().flatten();
    let reported = reported
        .filter(|one| one.type_ == ALL_RESTARTING && one.status == "True")
        .count()
        > 0;
    let statuses = [&previous.init_container_statuses, &previous.container_statuses];
    let mut statuses = statuses.into_iter().flatten().flatten();
    let source = statuses.find(|status| status.name == source.name);
    let removed = source
        .and_then(|status| status.state.as_ref()?.waiting.as_ref())
        .is_some();
    match RoundStage::of(input.pod, input.observed) {
        RoundStage::Ended if !reported && !removed => RoundStage::Ending,
        stage => stage,
    }
}

/// True from the end that restarts all containers until those that ran have ended, and once in any case.
fn all_restarting(input: &StatusInput<'_>, phase: &str) -> Verdict {
    match phase {
        "Succeeded" => return Verdict::no("PodCompleted", ""),
        "Failed" => return Verdict::no("PodFailed", ""),
        _ => {}
    }
    if round_stage(input) != RoundStage::Ending {
        return Verdict::plain(false);
    }
    Verdict {
        truth: true,
        reason: Some("RestartAllContainersStarted".into()),
        message: Some("container exited with restart policy rule".into()),
    }
}

fn containers_ready(input: &StatusInput<'_>, status: &PodStatus, phase: &str) -> Verdict {
    match phase {
        "Succeeded" => return Verdict::no("PodCompleted", ""),
        "Failed" => return Verdict::no("PodFailed", ""),
        _ => {}
    }
    let kinds = spec(input.pod).init_containers.iter().flatten().map(init_kind);
    let sidecars = kinds
        .zip(status.init_container_statuses.iter().flatten())
        .filter(|(kind, _)| *kind == ContainerKind::Sidecar)
        .map(|(_, status)| status);
    let all: Vec<&ContainerStatus> = sidecars
        .chain(status.container_statuses.iter().flatten())
        .collect();
    let unready: Vec<&str> = all
        .iter()
        .filter(|status| !status.ready)
        .map(|status| status.name.as_str())
        .collect();
    if unready.is_empty() {
        return Verdict::plain(true);
    }
    Verdict::no(
        "ContainersNotReady",
        &format!("containers with unready status: [{}]", unready.join(" ")),
    )
}

fn pod_ready(input: &StatusInput<'_>, containers: &Verdict) -> Verdict {
    if !containers.truth {
        return containers.clone();
    }
    let given = input.previous.conditions.iter().flatten();
    let holds = |gate: &str| {
        given
            .clone()
            .any(|found| found.type_ == gate && found.status == "True")
    };
    let gates = spec(input.pod).readiness_gates.iter().flatten();
    let missing: Vec<String> = gates
        .filter(|gate| !holds(&gate.condition_type))
        .map(|gate| {
            format!(
                "corresponding condition of pod readiness gate \"{}\" does not exist.",
                gate.condition_type
            )
        })
        .collect();
    if missing.is_empty() {
        Verdict::plain(true)
    } else {
        Verdict::no("ReadinessGatesNotReady", &missing.join(", "))
    }
}
