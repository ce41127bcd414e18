//! The status of a budget, from its pods and the sizes of their controllers. Pure.

use crate::views::deployment::resolve;
use crate::views::{DisruptionBudgetView, PodView};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::policy::v1::PodDisruptionBudgetStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use machinery_client::Object;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pod as plans handle it.
pub(super) type PodRef = Arc<Object<PodView>>;

/// A pod that was to go is expected to go within this time; after it the eviction counts no more, and its condition is stale.
pub(super) const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// Pods that there are to be, and how many of them healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) expected: i32,
    pub(super) desired: i32,
}

/// The counts of a budget; `scale` is what the pods' controllers request together.
pub(super) fn counts(budget: &DisruptionBudgetView, pods: usize, scale: i32) -> Counts {
    if let Some(most) = &budget.max_unavailable {
        let desired = scale.saturating_sub(resolve(Some(most), scale, true));
        return Counts {
            expected: scale,
            desired: desired.max(0),
        };
    }
    match &budget.min_available {
        Some(IntOrString::Int(desired)) => Counts {
            expected: i32::try_from(pods).unwrap_or(i32::MAX),
            desired: *desired,
        },
        Some(share) => Counts {
            expected: scale,
            desired: resolve(Some(share), scale, true),
        },
        None => Counts {
            expected: 0,
            desired: 0,
        },
    }
}

/// Changes to write.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) status: PodDisruptionBudgetStatus,
    /// Pods that were to go and did not.
    pub(super) not_deleted: Vec<PodRef>,
    /// Time at which the first of the others is overdue.
    pub(super) recheck_at: Option<Timestamp>,
}

/// The status that is true now.
pub(super) fn plan(
    budget: &Object<DisruptionBudgetView>,
    pods: &[PodRef],
    counts: Counts,
    now: Timestamp,
) -> Plan {
    let old = budget.status.get();
    let (disrupted, not_deleted) = disrupted(old.disrupted_pods.as_ref(), pods, now);
    let healthy = pods
        .iter()
        .filter(|pod| !pod.header.is_deleting() && !disrupted.contains_key(pod.name()) && pod.ready)
        .count();
    let healthy = i32::try_from(healthy).unwrap_or(i32::MAX);
    // A budget without pods allows nothing, so that the first pods are guarded before they are seen here.
    let allowed = if counts.expected <= 0 {
        0
    } else {
        healthy.saturating_sub(counts.desired).max(0)
    };
    let mut status = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(counts.desired),
        expected_pods: Some(counts.expected),
        disruptions_allowed: Some(allowed),
        observed_generation: Some(budget.header.generation),
        conditions: old.conditions.clone(),
        disrupted_pods: None,
    };
    let recheck_at = disrupted.values().map(|since| overdue_at(since.0)).min();
    status.disrupted_pods = (!disrupted.is_empty()).then_some(disrupted);
    let (word, reason) = if allowed > 0 {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    set_condition(&mut status, [word, reason, ""], now);
    Plan {
        status,
        not_deleted,
        recheck_at,
    }
}

/// The status of a budget whose counts are not known: it allows nothing.
pub(super) fn fail_safe(
    budget: &Object<DisruptionBudgetView>,
    why: &str,
    now: Timestamp,
) -> PodDisruptionBudgetStatus {
    let mut status = budget.status.get().into_owned();
    status.disruptions_allowed = Some(0);
    set_condition(&mut status, ["False", "SyncFailed", why], now);
    status
}

/// Time at which a pod that was to go since then is overdue.
pub(super) fn overdue_at(since: Timestamp) -> Timestamp {
    since.saturating_add(DELETION_TIMEOUT).unwrap_or(Timestamp::MAX)
}

/// The pods that are still to go, and those that should have gone.
fn disrupted(
    listed: Option<&BTreeMap<String, Time>>,
    pods: &[PodRef],
    now: Timestamp,
) -> (BTreeMap<String, Time>, Vec<PodRef>) {
    let (mut waiting, mut overdue) = (BTreeMap::new(), Vec::new());
    let Some(listed) = listed else {
        return (waiting, overdue);
    };
    for pod in pods.iter().filter(|pod| !pod.header.is_deleting()) {
        match listed.get(pod.name()) {
            None => {}
            Some(since) if overdue_at(since.0) < now => overdue.push(pod.clone()),
            Some(since) => {
                waiting.insert(pod.name().to_owned(), since.clone());
            }
        }
    }
    (waiting, overdue)
}

fn set_condition(status: &mut PodDisruptionBudgetStatus, [word, reason, message]: [&str; 3], now: Timestamp) {
    let generation = status.observed_generation;
    let conditions = status.conditions.get_or_insert_default();
    let old = conditions.iter().position(|own| own.type_ == DISRUPTION_ALLOWED);
    let since = old
        .map(|at| &conditions[at])
        .filter(|own| own.status == word)
        .map(|own| own.last_transition_time.clone());
    let new = Condition {
        type_: DISRUPTION_ALLOWED.to_owned(),
        status: word.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation.filter(|generation| *generation != 0),
        last_transition_time: since.unwrap_or_else(|| Time(whole_seconds(now))),
    };
    match old {
        Some(at) => conditions[at] = new,
        None => conditions.push(new),
    }
}

fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
