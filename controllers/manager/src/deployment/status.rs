//! Counts, `Available`, `Progressing`, `ReplicaFailure`. Pure.

use super::sets::SetRef;
use super::snapshot::Snapshot;
use crate::views::{Condition, DeploymentStatus, DeploymentView, find, seconds, time};
use jiff::{SignedDuration, Timestamp};

const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const NEW_AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";
const RESUMED: &str = "DeploymentResumed";

/// Step of this round that the condition `Progressing` reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing of the kind.
    None,
    /// It made the new set.
    Created(String),
    /// Making it failed.
    Failed(String),
}

/// The status that is true now. `name_taken` says that another set has the name the new one was to get.
pub(super) fn status(
    snapshot: &Snapshot,
    new: Option<&SetRef>,
    progress: &Progress,
    name_taken: bool,
    now: Timestamp,
) -> DeploymentStatus {
    let deployment = &snapshot.deployment;
    let sum = |count: fn(&SetRef) -> i32| snapshot.sets.iter().map(count).sum::<i32>();
    let available = sum(|set| set.status.available_replicas);
    let mut status = DeploymentStatus {
        observed_generation: deployment.header.generation,
        replicas: sum(|set| set.status.replicas),
        updated_replicas: new.map_or(0, |new| new.status.replicas),
        ready_replicas: sum(|set| set.status.ready_replicas),
        available_replicas: available,
        unavailable_replicas: (sum(|set| set.replicas) - available).max(0),
        terminating_replicas: Some(sum(|set| set.status.terminating_replicas.unwrap_or(0))),
        collision_count: deployment.status.collision_count,
        conditions: deployment.status.conditions.clone(),
    };
    if name_taken {
        status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
    }
    let minimum = deployment.replicas - deployment.rolling.map_or(0, |rolling| rolling.max_unavailable);
    let (value, reason, message) = if available >= minimum {
        (
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        )
    } else {
        (
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    set(
        &mut status.conditions,
        AVAILABLE,
        value,
        reason,
        message.to_owned(),
        now,
    );
    progressing(deployment, &mut status, new, progress, now);
    replica_failure(snapshot, &mut status.conditions, now);
    status
}

/// Every pod is of the new template and available, and nothing else is left.
pub(super) fn is_complete(
    deployment: &machinery_client::Object<DeploymentView>,
    status: &DeploymentStatus,
) -> bool {
    status.updated_replicas == deployment.replicas
        && status.replicas == deployment.replicas
        && status.available_replicas == deployment.replicas
        && status.observed_generation >= deployment.header.generation
}

/// A new form of the condition `Progressing`.
struct Verdict {
    status: &'static str,
    reason: &'static str,
    message: String,
    /// The deadline begins again, though status and reason are the same.
    renews: bool,
}

impl Verdict {
    fn of(status: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            reason,
            message: message.into(),
            renews: false,
        }
    }

    fn progress(reason: &'static str, message: String) -> Self {
        Self {
            renews: true,
            ..Self::of("True", reason, message)
        }
    }
}

fn progressing(
    deployment: &machinery_client::Object<DeploymentView>,
    status: &mut DeploymentStatus,
    new: Option<&SetRef>,
    progress: &Progress,
    now: Timestamp,
) {
    let Some(deadline) = deployment.progress_deadline_seconds else {
        status
            .conditions
            .retain(|condition| condition.kind != PROGRESSING);
        return;
    };
    let current = find(&status.conditions, PROGRESSING).cloned();
    let reason = current.as_ref().map_or("", |current| current.reason.as_str());
    let verdict = if deployment.paused || reason == PAUSED {
        pause(deployment.paused, reason)
    } else if let Some(verdict) = attempt(progress) {
        Some(verdict)
    } else if reason == NEW_AVAILABLE && status.replicas == status.updated_replicas {
        None
    } else {
        rollout(deployment, status, new)
            .or_else(|| stalled(deployment, new, current.as_ref(), (deadline, now)))
    };
    let Some(verdict) = verdict else { return };
    let change = if verdict.renews { renew } else { set };
    change(
        &mut status.conditions,
        PROGRESSING,
        verdict.status,
        verdict.reason,
        verdict.message,
        now,
    );
}

/// A rollout that is paused, or was until now.
fn pause(is_paused: bool, reason: &str) -> Option<Verdict> {
    if !is_paused {
        return Some(Verdict::of("Unknown", RESUMED, "Deployment is resumed"));
    }
    let is_noted = reason == PAUSED || reason == TIMED_OUT;
    (!is_noted).then(|| Verdict::of("Unknown", PAUSED, "Deployment is paused"))
}

/// The outcome of creating a ReplicaSet in this round.
fn attempt(progress: &Progress) -> Option<Verdict> {
    match progress {
        Progress::Created(name) => {
            let message = format!("Created new replica set {name:?}");
            Some(Verdict::progress("NewReplicaSetCreated", message))
        }
        Progress::Failed(message) => Some(Verdict::of("False", "ReplicaSetCreateError", message.clone())),
        Progress::None => None,
    }
}

fn subject(deployment: &machinery_client::Object<DeploymentView>, new: Option<&SetRef>) -> String {
    match new {
        Some(new) => format!("ReplicaSet {:?}", new.name()),
        None => format!("Deployment {:?}", deployment.name()),
    }
}

/// A rollout that is complete, or further than it was.
fn rollout(
    deployment: &machinery_client::Object<DeploymentView>,
    status: &DeploymentStatus,
    new: Option<&SetRef>,
) -> Option<Verdict> {
    let subject = || subject(deployment, new);
    if is_complete(deployment, status) {
        let message = format!("{} has successfully progressed.", subject());
        return Some(Verdict::progress(NEW_AVAILABLE, message));
    }
    made_progress(&deployment.status, status).then(|| {
        let message = format!("{} is progressing.", subject());
        Verdict::progress("ReplicaSetUpdated", message)
    })
}

/// A rollout that has made no progress, of which nothing is known yet or for which the time is over.
fn stalled(
    deployment: &machinery_client::Object<DeploymentView>,
    new: Option<&SetRef>,
    current: Option<&Condition>,
    (deadline, now): (i32, Timestamp),
) -> Option<Verdict> {
    let Some(current) = current else {
        let message = format!("Found new replica set {:?}", new?.name());
        return Some(Verdict::progress("FoundNewReplicaSet", message));
    };
    timed_out(current, deadline, now).then(|| {
        let message = format!("{} has timed out progressing.", subject(deployment, new));
        Verdict::of("False", TIMED_OUT, message)
    })
}

/// Time at which a rollout that makes no progress is reconciled again.
pub(super) fn deadline(deployment: &DeploymentView, status: &DeploymentStatus) -> Option<Timestamp> {
    let seconds = deployment.progress_deadline_seconds?;
    let current = find(&status.conditions, PROGRESSING)?;
    if deployment.paused || matches!(current.reason.as_str(), NEW_AVAILABLE | TIMED_OUT) {
        return None;
    }
    let from = time(current.last_update_time.as_deref())?;
    // A second later, since times are kept in whole seconds.
    from.checked_add(SignedDuration::from_secs(i64::from(seconds) + 1))
        .ok()
}

fn timed_out(current: &Condition, deadline: i32, now: Timestamp) -> bool {
    if current.reason == NEW_AVAILABLE {
        return false;
    }
    if current.reason == TIMED_OUT {
        return true;
    }
    let from = time(current.last_update_time.as_deref()).unwrap_or(now);
    now.duration_since(from) > SignedDuration::from_secs(i64::from(deadline))
}

fn made_progress(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    new.updated_replicas > old.updated_replicas
        || new.replicas - new.updated_replicas < old.replicas - old.updated_replicas
        || new.ready_replicas > old.ready_replicas
        || new.available_replicas > old.available_replicas
}

fn replica_failure(snapshot: &Snapshot, conditions: &mut Vec<Condition>, now: Timestamp) {
    let new = snapshot.new_set();
    let failing = new
        .iter()
        .chain(&snapshot.sets)
        .find_map(|set| find(&set.status.conditions, REPLICA_FAILURE));
    match failing {
        Some(failing) => {
            set(
                conditions,
                REPLICA_FAILURE,
                &failing.status,
                &failing.reason,
                failing.message.clone(),
                now,
            );
        }
        None => conditions.retain(|condition| condition.kind != REPLICA_FAILURE),
    }
}

/// Sets a condition unless it says the same; the transition time moves only with the status.
fn set(
    conditions: &mut Vec<Condition>,
    kind: &str,
    value: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) {
    let same = find(conditions, kind).is_some_and(|own| own.status == value && own.reason == reason);
    if !same {
        renew(conditions, kind, value, reason, message, now);
    }
}

/// Sets a condition with a new update time.
fn renew(
    conditions: &mut Vec<Condition>,
    kind: &str,
    value: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) {
    let mut new = Condition::new(kind, value, reason, message, now);
    new.last_update_time = Some(seconds(now));
    if let Some(old) = find(conditions, kind).filter(|old| old.status == value) {
        new.last_transition_time.clone_from(&old.last_transition_time);
    }
    conditions.retain(|own| own.kind != kind);
    conditions.push(new);
}
