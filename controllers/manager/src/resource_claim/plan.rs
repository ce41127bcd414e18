//! Decides on the claims of a pod, and on the consumers of a claim. Pure.

use super::is_done;
use super::view::{Consumer, DeviceClaimView};
use crate::views::PodView;
use crate::views::device_claims::{DeviceClaim, DeviceClaimSource, MadeClaim};
use machinery_client::Object;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

pub(super) type ClaimRef = Arc<Object<DeviceClaimView>>;

/// The finalizer of a claim whose devices the scheduler chose.
pub(super) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// Claims that a pod controls, by the pod's own names of them: it may have thousands.
pub(super) type Owned = HashMap<Box<str>, ClaimRef>;

/// Owned claims by the pod's names for them; of two with one name the first counts.
pub(super) fn by_pod_claim(owned: impl IntoIterator<Item = ClaimRef>) -> Owned {
    let mut all = Owned::new();
    for claim in owned {
        if let Some(name) = claim.pod_claim.clone() {
            all.entry(name).or_insert(claim);
        }
    }
    all
}

/// Next step for one claim of a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PodStep {
    /// Nothing: it is there, or is not ours to make.
    Nothing,
    /// The claim that the status names is not in the cache: it is read from the server.
    Ask(Box<str>),
    /// The claim was made before and is to be noted.
    Note(String),
    /// A claim is made from this template.
    Create(Box<str>),
    /// The source is of a later release.
    Unsupported,
}

/// Decides on one claim of a pod. `noted` is the claim that the pod's status names, as the cache or the server has it, and
/// `owned` are the claims that the pod controls.
pub(super) fn of_pod(pod: &Object<PodView>, claim: &DeviceClaim, noted: Noted<'_>, owned: &Owned) -> PodStep {
    let template = match claim.source() {
        DeviceClaimSource::Unknown => return PodStep::Unsupported,
        DeviceClaimSource::Claim(_) | DeviceClaimSource::Template(_, MadeClaim::NotNeeded) => {
            return PodStep::Nothing;
        }
        DeviceClaimSource::Template(_, MadeClaim::Named(name)) if noted == Noted::Unknown => {
            return PodStep::Ask(name.into());
        }
        DeviceClaimSource::Template(template, made) => {
            let is_there = matches!(noted, Noted::OwnedBy(uid) if *uid == *pod.uid().0);
            if made != MadeClaim::NotYet && is_there {
                return PodStep::Nothing;
            }
            template
        }
    };
    // Made by a look whose status was not written.
    match owned.get(claim.name()) {
        Some(own) => PodStep::Note(own.name().to_owned()),
        None => PodStep::Create(template.into()),
    }
}

/// The claim that a pod's status names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Noted<'a> {
    /// The cache does not have it.
    Unknown,
    /// There is none of this name.
    Gone,
    /// It is controlled by the owner with this uid; empty where it has none.
    OwnedBy(&'a str),
}

/// Reports whether a claim is allocated and the pod, which has a node already, is not among its consumers.
pub(super) fn is_to_be_reserved(pod: &Object<PodView>, claim: &DeviceClaimView) -> bool {
    let uid = pod.uid();
    claim.is_allocated && !claim.reserved_for.iter().any(|own| *own.uid == *uid.0)
}

/// Verdict of the cache on a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Stays,
    Goes,
    /// The cache does not have the pod: it is read from the server.
    Ask,
}

pub(super) fn judge(consumer: &Consumer, pod: Option<&Object<PodView>>) -> Verdict {
    if !consumer.is_pod() {
        // It is unknown here, so that it stays.
        return Verdict::Stays;
    }
    match pod {
        None => Verdict::Ask,
        Some(pod) if *pod.uid().0 != *consumer.uid || is_done(pod) => Verdict::Goes,
        Some(_) => Verdict::Stays,
    }
}

/// Writes that a claim needs, in this order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ClaimPlan {
    /// The new status.
    pub(super) status: Option<Value>,
    pub(super) remove_finalizer: bool,
    pub(super) delete: bool,
}

/// Decides on a claim as the server had it, of whose consumers these stay. The owner is the pod for which the claim was
/// made, if the cache has it.
pub(super) fn of_claim(
    claim: &Object<DeviceClaimView>,
    body: &Value,
    stays: &[bool],
    owner: Option<&Object<PodView>>,
) -> ClaimPlan {
    let mut plan = ClaimPlan::default();
    let is_ours = claim.header.finalizers.iter().any(|own| &**own == FINALIZER);
    let is_unused = !stays.contains(&true);
    let mut status = body["status"].clone();
    if stays.contains(&false) {
        let consumers = status["reservedFor"].as_array().cloned().unwrap_or_default();
        let remaining = consumers.into_iter().zip(stays).filter(|(_, stays)| **stays);
        let remaining: Vec<Value> = remaining.map(|(own, _)| own).collect();
        set(
            &mut status,
            "reservedFor",
            (!remaining.is_empty()).then(|| json!(remaining)),
        );
        if is_unused && is_ours {
            set(&mut status, "allocation", None);
        }
        plan.remove_finalizer = is_ours && status.get("allocation").is_none();
        plan.status = Some(status);
    } else if is_ours && claim.header.is_deleting() && is_unused {
        if claim.is_allocated {
            set(&mut status, "allocation", None);
            plan.status = Some(status);
        }
        plan.remove_finalizer = true;
    }
    // The pod that the claim was made for may stay for long after its end.
    let pod = claim.header.controller().filter(|own| &*own.kind == "Pod");
    plan.delete =
        is_unused && pod.is_some_and(|own| owner.is_some_and(|pod| *pod.uid() != own.uid || is_done(pod)));
    plan
}

fn set(status: &mut Value, field: &str, value: Option<Value>) {
    let Some(status) = status.as_object_mut() else {
        return;
    };
    match value {
        Some(value) => drop(status.insert(field.to_owned(), value)),
        None => drop(status.remove(field)),
    }
}
