//! Changes to one claim or one volume: pure, in the order in which they are written.

use super::matching::{VolumeRef, best_match, mismatch};
use super::views::{
    BETA_PROVISIONER, BIND_COMPLETED, BOUND_BY_CONTROLLER, ClaimView, ClassView, MIGRATED_TO, PROVISIONED_BY,
    PROVISIONER, SELECTED_NODE, VolumeView,
};
use machinery_client::Object;
use machinery_meta::Quantity;
use serde_json::{Map, Value, json};
use std::sync::Arc;

pub(super) type ClaimRefObject = Arc<Object<ClaimView>>;

/// Objects that a plan reads beside the one that it is about.
pub(super) trait Cluster {
    fn volume(&self, name: &str) -> Option<VolumeRef>;
    fn claim(&self, namespace: &str, name: &str) -> Option<ClaimRefObject>;
    /// Volumes that name the claim, or that name none and are of its class.
    fn candidates(&self, claim: &Object<ClaimView>) -> Vec<VolumeRef>;
    fn class(&self, name: &str) -> Option<Arc<Object<ClassView>>>;
    /// The newest of the default classes.
    fn default_class(&self) -> Option<Box<str>>;
    /// Pods of the claim that have no node yet.
    fn waiting_pods(&self, claim: &Object<ClaimView>) -> Vec<String>;
}

/// A part of an object that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Volume,
    VolumeStatus,
    Claim,
    ClaimStatus,
}

/// One step of a plan. Bodies have what earlier steps changed; their resource versions are the reader's.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Write(Part, Value),
    /// An event about the plan's own object.
    Event {
        warning: bool,
        reason: &'static str,
        message: String,
    },
    /// A warning about the volume's claim.
    WarnClaim {
        uid: String,
        reason: &'static str,
        message: String,
    },
    /// The volume's claim is reconciled again.
    WakeClaim,
    /// The plan cannot be finished, and is tried again.
    Fail(String),
}

fn event(warning: bool, reason: &'static str, message: impl Into<String>) -> Step {
    Step::Event {
        warning,
        reason,
        message: message.into(),
    }
}

fn body<P>(object: &Object<P>) -> Value {
    // The bytes were decoded before, for the projection.
    serde_json::from_slice(&object.json()).unwrap_or(Value::Null)
}

/// The plan of a claim.
pub(super) fn of_claim(cluster: &dyn Cluster, claim: &Object<ClaimView>) -> Vec<Step> {
    if claim.annotations.contains_key(BIND_COMPLETED) {
        of_bound_claim(cluster, claim)
    } else if claim.volume.is_empty() {
        of_free_claim(cluster, claim)
    } else {
        of_pre_bound_claim(cluster, claim)
    }
}

/// Any volume will do.
fn of_free_claim(cluster: &dyn Cluster, claim: &Object<ClaimView>) -> Vec<Step> {
    let class = cluster.class(claim.class());
    let waits = class.as_ref().is_some_and(|class| class.waits_for_pod);
    let candidates = cluster.candidates(claim);
    match best_match(claim, &candidates, waits) {
        Err(error) => {
            let name = claim.key();
            return vec![Step::Fail(format!(
                "error finding PV for claim {name:?}: {error}"
            ))];
        }
        Ok(Some(volume)) => return bind(volume, claim),
        Ok(None) => {}
    }
    if let Some(default) = cluster.default_class().filter(|_| claim.class.is_none()) {
        let mut body = body(claim);
        body["spec"]["storageClassName"] = json!(default);
        return vec![Step::Write(Part::Claim, body)];
    }
    let why = if waits && !claim.annotations.contains_key(SELECTED_NODE) {
        waits_for_pod(cluster, claim)
    } else if !claim.class().is_empty() {
        return provision(class.as_deref(), claim);
    } else {
        let words = "no persistent volumes available for this claim and no storage class is set";
        event(false, "FailedBinding", words)
    };
    let mut steps = vec![why];
    steps.extend(claim_status(body(claim), "Pending", None));
    steps
}

fn waits_for_pod(cluster: &dyn Cluster, claim: &Object<ClaimView>) -> Step {
    let pods = cluster.waiting_pods(claim);
    let message = match pods.as_slice() {
        [] => {
            let words = "waiting for first consumer to be created before binding";
            return event(false, "WaitForFirstConsumer", words);
        }
        [pod] => format!("waiting for pod {pod} to be scheduled"),
        pods => format!("waiting for pods {} to be scheduled", pods.join(",")),
    };
    event(false, "WaitForPodScheduled", message)
}

/// Hands the claim to the provisioner of its class.
fn provision(class: Option<&Object<ClassView>>, claim: &Object<ClaimView>) -> Vec<Step> {
    let failed = |message: String| vec![event(true, "ProvisioningFailed", message)];
    let Some(class) = class else {
        let name = claim.class();
        return failed(format!("storageclass.storage.k8s.io {name:?} not found"));
    };
    let provisioner = &*class.provisioner;
    if provisioner.starts_with("kubernetes.io/") {
        return failed(format!("no volume plugin matched name: {provisioner}"));
    }
    let mut steps = Vec::new();
    if claim.annotations.get(PROVISIONER).map(|own| &**own) != Some(provisioner) {
        let mut body = body(claim);
        annotate(&mut body, BETA_PROVISIONER, provisioner);
        annotate(&mut body, PROVISIONER, provisioner);
        steps.push(Step::Write(Part::Claim, body));
    }
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
    );
    steps.push(event(false, "ExternalProvisioning", message));
    steps
}

/// The claim requests one volume.
fn of_pre_bound_claim(cluster: &dyn Cluster, claim: &Object<ClaimView>) -> Vec<Step> {
    let pending = || claim_status(body(claim), "Pending", None);
    let Some(volume) = cluster.volume(&claim.volume) else {
        return pending();
    };
    let name = volume.name();
    let Some(own) = &volume.claim else {
        let Some(reason) = mismatch(claim, &volume) else {
            return bind(&volume, claim);
        };
        let message = format!("Cannot bind to requested volume {name:?}: {reason}");
        let mut steps = vec![event(true, "VolumeMismatch", message)];
        steps.extend(pending());
        return steps;
    };
    if own.means(&claim.header) {
        return bind(&volume, claim);
    }
    let message = format!("volume {name:?} already bound to a different claim.");
    let mut steps = vec![event(true, "FailedBinding", message)];
    if claim.annotations.contains_key(BOUND_BY_CONTROLLER) {
        let (key, other) = (claim.key(), format!("{}/{}", own.namespace, own.name));
        steps.push(Step::Fail(format!(
            "invalid binding of claim {key:?} to volume {name:?}: volume already claimed by {other:?}"
        )));
    } else {
        steps.extend(pending());
    }
    steps
}

/// The claim was bound before.
fn of_bound_claim(cluster: &dyn Cluster, claim: &Object<ClaimView>) -> Vec<Step> {
    let lost = |reason: &'static str, message: &str| {
        if &*claim.phase == "Lost" {
            return Vec::new();
        }
        let mut steps = claim_status(body(claim), "Lost", None);
        steps.push(event(true, reason, message));
        steps
    };
    if claim.volume.is_empty() {
        let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
        return lost("ClaimLost", message);
    }
    let Some(volume) = cluster.volume(&claim.volume) else {
        let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        return lost("ClaimLost", message);
    };
    match &volume.claim {
        Some(own) if *own.uid != *claim.uid().0 => {
            let message = "Two claims are bound to the same volume, this one is bound incorrectly";
            lost("ClaimMisbound", message)
        }
        _ => bind(&volume, claim),
    }
}

/// Writes what both sides lack: the volume's reference, its phase, the claim's reference, its status.
fn bind(volume: &Object<VolumeView>, claim: &Object<ClaimView>) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut of_volume = body(volume);
    let by_user = volume.claim.as_ref().is_some_and(|own| own.means(&claim.header));
    let written = volume.claim.as_ref().is_some_and(|own| !own.uid.is_empty()) && by_user;
    let annotated = by_user || volume.annotations.contains_key(BOUND_BY_CONTROLLER);
    if !annotated {
        annotate(&mut of_volume, BOUND_BY_CONTROLLER, "yes");
    }
    if !written {
        of_volume["spec"]["claimRef"] = json!({
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": claim.namespace(),
            "name": claim.name(), "uid": claim.uid().0, "resourceVersion": claim.revision.to_string()
        });
    }
    if !written || !annotated {
        steps.push(Step::Write(Part::Volume, of_volume.clone()));
    }
    steps.extend(volume_phase(&mut of_volume, "Bound", ""));
    let mut of_claim = body(claim);
    let before = of_claim.clone();
    if *claim.volume != *volume.name() {
        of_claim["spec"]["volumeName"] = json!(volume.name());
        annotate(&mut of_claim, BOUND_BY_CONTROLLER, "yes");
    }
    if !claim.annotations.contains_key(BIND_COMPLETED) {
        annotate(&mut of_claim, BIND_COMPLETED, "yes");
    }
    if of_claim != before {
        steps.push(Step::Write(Part::Claim, of_claim.clone()));
    }
    steps.extend(claim_status(of_claim, "Bound", Some(&of_volume)));
    steps
}

/// The step that sets a volume's phase, where it has another.
fn volume_phase(volume: &mut Value, phase: &str, message: &str) -> Vec<Step> {
    if volume["status"]["phase"] == phase {
        return Vec::new();
    }
    volume["status"]["phase"] = json!(phase);
    match message {
        "" => drop(volume["status"].as_object_mut().map(|own| own.remove("message"))),
        message => volume["status"]["message"] = json!(message),
    }
    vec![Step::Write(Part::VolumeStatus, volume.clone())]
}

/// The step that sets a claim's status, where it has another.
fn claim_status(mut claim: Value, phase: &str, volume: Option<&Value>) -> Vec<Step> {
    let mut status = claim["status"].as_object().cloned().unwrap_or_default();
    let before = status.clone();
    let old_phase = before.get("phase").cloned().unwrap_or_default();
    status.insert("phase".to_owned(), json!(phase));
    match volume {
        None => {
            for field in ["accessModes", "capacity", "currentVolumeAttributesClassName"] {
                status.remove(field);
            }
        }
        Some(volume) => {
            let spec = &volume["spec"];
            status.insert("accessModes".to_owned(), spec["accessModes"].clone());
            let amount =
                |from: Option<&Value>| -> Option<Quantity> { from?.get("storage")?.as_str()?.parse().ok() };
            if old_phase != phase && amount(spec.get("capacity")) != amount(before.get("capacity")) {
                status.insert("capacity".to_owned(), spec["capacity"].clone());
            }
            let class = &spec["volumeAttributesClassName"];
            if old_phase == "Pending" && phase == "Bound" && !class.is_null() {
                status.insert("currentVolumeAttributesClassName".to_owned(), class.clone());
            }
        }
    }
    if status == before {
        return Vec::new();
    }
    claim["status"] = Value::Object(status);
    vec![Step::Write(Part::ClaimStatus, claim)]
}

/// The plan of a volume.
pub(super) fn of_volume(cluster: &dyn Cluster, volume: &Object<VolumeView>) -> Vec<Step> {
    let Some(own) = volume.claim.as_ref().filter(|own| !own.uid.is_empty()) else {
        return volume_phase(&mut body(volume), "Available", "");
    };
    let claim = cluster.claim(&own.namespace, &own.name);
    let Some(claim) = claim.filter(|claim| *claim.uid().0 == *own.uid) else {
        return release(volume);
    };
    if claim.volume.is_empty() {
        if claim.is_block != volume.is_block {
            return mismatched_modes(volume, &claim);
        }
        return vec![Step::WakeClaim];
    }
    if *claim.volume == *volume.name() {
        return volume_phase(&mut body(volume), "Bound", "");
    }
    if volume.annotations.contains_key(PROVISIONED_BY) && &*volume.reclaim_policy == "Delete" {
        return release(volume);
    }
    unbind(volume)
}

/// Records events for a volume and a claim made for each other, of which one is a block device.
fn mismatched_modes(volume: &Object<VolumeView>, claim: &Object<ClaimView>) -> Vec<Step> {
    let why = "due to incompatible volumeMode.";
    let of_volume = format!(
        "Cannot bind PersistentVolume to requested PersistentVolumeClaim {:?} {why}",
        claim.name()
    );
    let of_claim = format!(
        "Cannot bind PersistentVolume {:?} to requested PersistentVolumeClaim {why}",
        volume.name()
    );
    vec![
        event(true, "VolumeMismatch", of_volume),
        Step::WarnClaim {
            uid: claim.uid().0.to_string(),
            reason: "VolumeMismatch",
            message: of_claim,
        },
    ]
}

/// The claim has gone, or has another volume.
fn release(volume: &Object<VolumeView>) -> Vec<Step> {
    let mut of_volume = body(volume);
    let mut steps = match &*volume.phase {
        "Released" | "Failed" => Vec::new(),
        _ => volume_phase(&mut of_volume, "Released", ""),
    };
    if volume.annotations.contains_key(MIGRATED_TO) {
        return steps;
    }
    match &*volume.reclaim_policy {
        "Retain" => {}
        "Recycle" => {
            let message = "No recycler plugin found for the volume!";
            steps.extend(fail(of_volume, "VolumeFailedRecycle", message));
        }
        "Delete" => steps.extend(delete(volume, of_volume)),
        _ => {
            let message = "Volume has unrecognized PersistentVolumeReclaimPolicy";
            steps.extend(fail(of_volume, "VolumeUnknownReclaimPolicy", message));
        }
    }
    steps
}

/// Volumes of other provisioners are deleted by them.
fn delete(volume: &Object<VolumeView>, of_volume: Value) -> Vec<Step> {
    let provisioner = volume.annotations.get(PROVISIONED_BY);
    let reason = match provisioner.map(|own| &**own).filter(|own| !own.is_empty()) {
        Some(own) if own.starts_with("kubernetes.io/") => format!("no volume plugin matched name: {own}"),
        Some(_) => return Vec::new(),
        None if volume.csi.is_some() => return Vec::new(),
        None => {
            let name = volume.name();
            format!(
                "error getting deleter volume plugin for volume {name:?}: no deletable volume plugin matched"
            )
        }
    };
    fail(of_volume, "VolumeFailedDelete", &reason)
}

fn fail(mut volume: Value, reason: &'static str, message: &str) -> Vec<Step> {
    let mut steps = volume_phase(&mut volume, "Failed", message);
    if !steps.is_empty() {
        steps.push(event(true, reason, message));
    }
    steps
}

/// Takes back a binding: all of the controller's own, of the user's the uid.
fn unbind(volume: &Object<VolumeView>) -> Vec<Step> {
    let mut of_volume = body(volume);
    let field = |from: &mut Value, name: &str| drop(from.as_object_mut().map(|own| own.remove(name)));
    if volume.annotations.contains_key(BOUND_BY_CONTROLLER) {
        field(&mut of_volume["spec"], "claimRef");
        field(&mut of_volume["metadata"]["annotations"], BOUND_BY_CONTROLLER);
    } else {
        field(&mut of_volume["spec"]["claimRef"], "uid");
    }
    let mut steps = vec![Step::Write(Part::Volume, of_volume.clone())];
    steps.extend(volume_phase(&mut of_volume, "Available", ""));
    steps
}

fn annotate(object: &mut Value, name: &str, value: &str) {
    let annotations = &mut object["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = Value::Object(Map::new());
    }
    annotations[name] = json!(value);
}
