//! Volumes of a pod that has its node: assumed, and what must be written and seen before the pod is bound.

use super::Volumes;
use super::objects::{ClaimRef, Volume};
use super::pod_volumes::PodVolumes;
use crate::attempt::Attempt;
use crate::devices::{DeviceReservation, HeldClaim};
use crate::nodes::{NodeId, NodeTable};
use crate::selector::node_selector_matches;
use machinery_meta::{ObjectKey, Revision};
use std::sync::Arc;

/// Claims that are not bound yet, and those of devices that are not reserved; empty where all of a pod's are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reservation {
    pub bindings: Vec<Binding>,
    pub provisions: Vec<Provision>,
    pub devices: Vec<DeviceReservation>,
    /// Claims of devices with conditions that the pod waits for.
    pub conditions: Vec<ObjectKey>,
    /// Claims of devices that the pod gives back where it is not bound.
    pub held: Vec<HeldClaim>,
}

/// A volume that is to name its claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    pub volume: Box<str>,
    /// Version of the volume that was chosen; the version after the write once that is done.
    pub revision: Revision,
    pub claim: ObjectKey,
    pub claim_uid: Box<str>,
    pub claim_revision: Revision,
    /// The volume is marked as bound by a controller.
    pub marks: bool,
    /// Nothing is to be written, or it is.
    pub written: bool,
}

/// A claim that is to name the node for which its volume is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provision {
    pub claim: ObjectKey,
    /// As that of [`Binding`].
    pub revision: Revision,
    /// As that of [`Binding`].
    pub written: bool,
}

impl Reservation {
    pub fn is_empty(&self) -> bool {
        !self.has_volumes() && self.devices.is_empty() && self.conditions.is_empty()
    }

    /// Names a claim that was made meanwhile as it is named in the API.
    pub(crate) fn name_conditions(&mut self) {
        for own in self.devices.iter().filter(|own| own.special.is_some()) {
            let named = self.conditions.iter_mut().filter(|key| **key == own.claim);
            named.for_each(|key| key.clone_from(own.key()));
        }
    }

    pub(crate) fn has_volumes(&self) -> bool {
        !self.bindings.is_empty() || !self.provisions.is_empty()
    }

    /// Claims that the pod waits for, of volumes and of devices. One of each kind may have the same name: the pod is then
    /// looked at once more than it need be.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &ObjectKey> {
        let provisions = self.provisions.iter().map(|own| &own.claim);
        let volumes = self.bindings.iter().map(|own| &own.claim).chain(provisions);
        volumes.chain(&self.conditions)
    }
}

/// Assumes what the pod's claims get on the node.
pub(crate) fn reserve(attempt: &Attempt, nodes: &mut NodeTable, node: NodeId) -> Reservation {
    let Some(Ok(pod)) = attempt.volumes_if_known() else {
        return Reservation::default();
    };
    let found = pod.on(attempt, nodes, node);
    let mut reservation = Reservation::default();
    for (at, volume) in found.bindings {
        let binding = nodes.volumes.assume_binding(pod, at, &volume);
        reservation.bindings.push(binding);
    }
    let name = nodes.names[node].clone();
    for (at, _) in found.provisions {
        let provision = nodes.volumes.assume_provision(pod, at, &name);
        reservation.provisions.push(provision);
    }
    reservation
}

impl Volumes {
    fn assume_binding(&mut self, pod: &PodVolumes, at: usize, volume: &Arc<Volume>) -> Binding {
        let own = &pod.waiting[at];
        let (key, claim) = (&own.key, &own.claim);
        let by_name = volume.claim.is_some();
        let by_uid = volume.claim.as_ref().is_some_and(|named| named.uid == claim.uid);
        let marks = !by_name && !volume.bound_by_controller;
        if !by_uid || marks {
            let assumed = Volume {
                claim: Some(ClaimRef {
                    namespace: (*key.namespace).into(),
                    name: (*key.name).into(),
                    uid: claim.uid.clone(),
                }),
                bound_by_controller: volume.bound_by_controller || marks,
                ..Volume::clone(volume)
            };
            self.assumed_volumes
                .insert(volume.name.clone(), Arc::new(assumed));
        }
        Binding {
            volume: volume.name.clone(),
            revision: volume.revision,
            claim: key.clone(),
            claim_uid: claim.uid.clone(),
            claim_revision: claim.revision,
            marks,
            written: by_uid && !marks,
        }
    }

    fn assume_provision(&mut self, pod: &PodVolumes, at: usize, node: &str) -> Provision {
        let own = &pod.waiting[at];
        let selected = own.claim.selected_node.is_some();
        if !selected {
            let mut assumed = (*own.claim).clone();
            assumed.selected_node = Some(node.into());
            self.assumed_claims.insert(own.key.clone(), Arc::new(assumed));
        }
        Provision {
            claim: own.key.clone(),
            revision: own.claim.revision,
            written: selected,
        }
    }

    /// Forgets assumed bindings that are not written. Written ones are forgotten when they are seen.
    pub(crate) fn revert(&mut self, reservation: &Reservation) {
        for binding in reservation.bindings.iter().filter(|own| !own.written) {
            self.assumed_volumes.remove(&binding.volume);
        }
        for provision in reservation.provisions.iter().filter(|own| !own.written) {
            self.assumed_claims.remove(&provision.claim);
        }
    }
}

/// Reports whether all of the pod's claims are bound; an error where that will not happen on this node.
pub(crate) fn check(reservation: &Reservation, nodes: &NodeTable, node: &str) -> Result<bool, String> {
    let id = nodes.id(node);
    let id = id.ok_or_else(|| format!("failed to get node {node:?}: node {node:?} not found"))?;
    for binding in &reservation.bindings {
        if !check_binding(binding, nodes, id)? {
            return Ok(false);
        }
    }
    for provision in &reservation.provisions {
        if !check_provision(provision, nodes, id)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn check_binding(binding: &Binding, nodes: &NodeTable, node: NodeId) -> Result<bool, String> {
    let (volumes, name) = (&nodes.volumes, &binding.volume);
    let volume = volumes.known_volume(name);
    let volume = volume
        .ok_or_else(|| format!("failed to check binding: could not find v1.PersistentVolume {name:?}"))?;
    let claim = volumes.known_claim(&binding.claim);
    let claim = claim.ok_or_else(|| format!("failed to check binding: {}", missing(&binding.claim)))?;
    if volume.revision < binding.revision {
        return Ok(false);
    }
    check_affinity(volume, nodes, node)?;
    if volume.claim.as_ref().is_none_or(|own| own.uid.is_empty()) {
        return Err(format!("ClaimRef got reset for pv {name:?}"));
    }
    Ok(claim.bound)
}

fn check_provision(provision: &Provision, nodes: &NodeTable, node: NodeId) -> Result<bool, String> {
    let (volumes, name) = (&nodes.volumes, &provision.claim.name);
    let claim = volumes.known_claim(&provision.claim);
    let claim =
        claim.ok_or_else(|| format!("failed to check provisioning pvc: {}", missing(&provision.claim)))?;
    if claim.revision < provision.revision {
        return Ok(false);
    }
    // A provisioner that fails takes the node back, so that another is looked for.
    if claim.selected_node.as_deref() != Some(&*nodes.names[node]) {
        return Err(format!("provisioning failed for PVC {name:?}"));
    }
    if !claim.volume.is_empty() {
        let Some(volume) = volumes.known_volume(&claim.volume) else {
            return Ok(false);
        };
        check_affinity(volume, nodes, node)?;
    }
    Ok(claim.bound)
}

fn missing(claim: &ObjectKey) -> String {
    let name = claim.to_string();
    format!("could not find v1.PersistentVolumeClaim {name:?}")
}

fn check_affinity(volume: &Volume, nodes: &NodeTable, node: NodeId) -> Result<(), String> {
    let (name, labels) = (&nodes.names[node], &nodes.labels[node]);
    let affinity = volume.nodes.as_ref();
    if affinity.is_none_or(|own| node_selector_matches(own, name, labels)) {
        return Ok(());
    }
    let volume = &volume.name;
    Err(format!(
        "pv {volume:?} node affinity doesn't match node {name:?}: no matching NodeSelectorTerms"
    ))
}
