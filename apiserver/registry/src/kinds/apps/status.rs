//! Validation of a workload's status: no count is negative or exceeds the number of pods, and the collision counter
//! of names only grows.

use crate::shared::validation::{Errors, Path, non_negative};
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// The members of a kind's status, in upstream's order.
struct Members {
    counts: &'static [&'static str],
    /// Counts that are a part of `replicas`.
    of_replicas: &'static [&'static str],
    /// Upstream's message when more pods are available than ready.
    not_ready: &'static str,
}

/// Every problem of a changed status of a Deployment.
pub(crate) fn validate_deployment(object: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let members = Members {
        counts: &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
        of_replicas: &["updatedReplicas", "readyReplicas", "availableReplicas"],
        not_ready: "cannot be greater than readyReplicas",
    };
    validate(&members, object, old)
}

/// Every problem of a changed status of a ReplicaSet.
pub(crate) fn validate_replica_set(object: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    validate(&LABELLED, object, old)
}

/// Every problem of a changed status of a ReplicationController.
pub(crate) fn validate_controller(object: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    validate(&LABELLED, object, old)
}

const LABELLED: Members = Members {
    counts: &[
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ],
    of_replicas: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    not_ready: "cannot be greater than readyReplicas",
};

/// Every problem of a changed status of a StatefulSet.
pub(crate) fn validate_stateful_set(object: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let members = Members {
        counts: &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ],
        of_replicas: &[
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
        ],
        not_ready: "cannot be greater than status.readyReplicas",
    };
    validate(&members, object, old)
}

/// Every problem of a changed status of a DaemonSet.
pub(crate) fn validate_daemon_set(object: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let members = Members {
        counts: &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ],
        of_replicas: &[],
        not_ready: "",
    };
    validate(&members, object, old)
}

fn validate(members: &Members, object: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("status");
    if let Some(status) = object.get("status") {
        for name in members.counts {
            non_negative(&mut errors, &path, status, name);
        }
        out_of_replicas(&mut errors, &path, status, members);
    }
    collisions(&mut errors, &path.child("collisionCount"), object, old);
    errors.into_list()
}

fn out_of_replicas(errors: &mut Errors, path: &Path<'_>, status: Ref<'_>, members: &Members) {
    let count = |name: &str| status.get(name).and_then(Ref::as_i64).unwrap_or_default();
    for name in members.of_replicas {
        if count(name) > count("replicas") {
            errors.invalid(
                &path.child(name),
                count(name),
                "cannot be greater than status.replicas",
            );
        }
    }
    let available = count("availableReplicas");
    if !members.of_replicas.is_empty() && available > count("readyReplicas") {
        errors.invalid(&path.child("availableReplicas"), available, members.not_ready);
    }
}

fn collisions(errors: &mut Errors, path: &Path<'_>, object: Ref<'_>, old: Ref<'_>) {
    let count = |object: Ref<'_>| object.at(&["status", "collisionCount"]).and_then(Ref::as_i64);
    let now = count(object).unwrap_or_default();
    if count(old).is_some_and(|was| count(object).is_none() || now < was) {
        errors.invalid(path, now, "cannot be decremented");
    }
}
