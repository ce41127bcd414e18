//! Claims, volumes and what else of storage decides where a pod may go.
//!
//! Events keep [`Volumes`] current. An attempt sorts its pod's claims once ([`pod_volumes`]): those that are bound, and those
//! of a class that waits for its first pod, with the volumes that each may have ([`matching`]). Filters ask node by node.
//! Once the pod has a node its volumes are reserved ([`reservation`]): assumed here, written by the driver, and waited for
//! ([`waiting`]) until both sides of every claim say that they are bound.
//!
//! Invariant: what is assumed of an object is forgotten as soon as a newer version of it comes, or it goes.

pub(crate) mod matching;
pub(crate) mod objects;
pub(crate) mod pod_volumes;
pub(crate) mod reservation;
pub(crate) mod scheduling;
pub(crate) mod views;
pub(crate) mod waiting;

pub use objects::{Attachment, Capacity, Claim, ClaimRef, Class, CsiNode, Driver, Volume};
pub use reservation::{Binding, Provision, Reservation};

use crate::cluster_events::ClusterEvents;
use crate::pod::PodInfo;
use machinery_meta::ObjectKey;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Known objects of each kind; all but claims and capacities by name.
#[derive(Debug, Default)]
pub struct Volumes {
    claims: HashMap<ObjectKey, Arc<Claim>>,
    volumes: HashMap<Box<str>, Arc<Volume>>,
    of_class: HashMap<Box<str>, BTreeSet<Box<str>>>,
    classes: HashMap<Box<str>, Arc<Class>>,
    csi_nodes: HashMap<Box<str>, CsiNode>,
    drivers: HashMap<Box<str>, Driver>,
    capacities: HashMap<ObjectKey, Capacity>,
    attachments: HashMap<Box<str>, Attachment>,
    attached_to: HashMap<Box<str>, BTreeSet<Box<str>>>,
    assumed_claims: HashMap<ObjectKey, Arc<Claim>>,
    assumed_volumes: HashMap<Box<str>, Arc<Volume>>,
    /// Numbers of pods on nodes by claim that they name.
    users: HashMap<ObjectKey, usize>,
}

impl Volumes {
    /// A claim changed; `None` when it is gone. Returns what that is to pods that use it.
    pub fn set_claim(&mut self, key: &ObjectKey, claim: Option<Claim>) -> ClusterEvents {
        let assumed = self.assumed_claims.get(key);
        let newer = |claim: &Claim| assumed.is_some_and(|own| claim.revision > own.revision);
        if claim.as_ref().is_none_or(newer) {
            self.assumed_claims.remove(key);
        }
        let came = claim.is_some();
        let changed = replace(&mut self.claims, key.clone(), claim.map(Arc::new));
        events(&[(came && changed, ClusterEvents::CLAIM)])
    }

    /// A volume changed; `None` when it is gone.
    pub fn set_volume(&mut self, name: &str, volume: Option<Volume>) -> ClusterEvents {
        let assumed = self.assumed_volumes.get(name);
        let newer = |volume: &Volume| assumed.is_some_and(|own| volume.revision > own.revision);
        if volume.as_ref().is_none_or(newer) {
            self.assumed_volumes.remove(name);
        }
        let before = self.volumes.get(name).cloned();
        if let Some(before) = &before {
            set_member(&mut self.of_class, &before.class, name, false);
        }
        let volume = volume.map(Arc::new);
        if let Some(volume) = &volume {
            set_member(&mut self.of_class, &volume.class, name, true);
        }
        let zones = |volume: &Option<Arc<Volume>>| volume.as_ref().map(|own| own.zones());
        let moved = volume.is_some() && zones(&before) != zones(&volume);
        let came = volume.is_some();
        let changed = replace(&mut self.volumes, name.into(), volume);
        events(&[
            (came && changed, ClusterEvents::VOLUME),
            (moved, ClusterEvents::VOLUME_ZONE),
        ])
    }

    /// A storage class changed.
    pub fn set_class(&mut self, name: &str, class: Option<Class>) -> ClusterEvents {
        let before = self.classes.get(name).cloned();
        let class = class.map(Arc::new);
        let added = before.is_none() && class.is_some();
        let widened = class
            .as_ref()
            .zip(before.as_ref())
            .is_some_and(|(new, old)| new.topologies != old.topologies);
        let waits = class.as_ref().is_some_and(|class| class.waits == Some(true));
        replace(&mut self.classes, name.into(), class);
        events(&[
            (added || widened, ClusterEvents::CLASS),
            (added && waits, ClusterEvents::CLASS_WAITS),
        ])
    }

    /// A CSINode changed. Raised limits may help.
    pub fn set_csi_node(&mut self, name: &str, node: Option<CsiNode>) -> ClusterEvents {
        let before = self.csi_nodes.get(name);
        let helps = node
            .as_ref()
            .is_some_and(|node| before.is_none_or(|before| node.allows_more_than(before)));
        replace(&mut self.csi_nodes, name.into(), node);
        events(&[(helps, ClusterEvents::CSI_NODE)])
    }

    /// A CSIDriver changed. Capacity that is not looked at any more may help.
    pub fn set_driver(&mut self, name: &str, driver: Option<Driver>) -> ClusterEvents {
        let tracked = |driver: Option<&Driver>| driver.is_some_and(|driver| driver.tracks_capacity);
        let helps = driver.is_some() && tracked(self.drivers.get(name)) && !tracked(driver.as_ref());
        replace(&mut self.drivers, name.into(), driver);
        events(&[(helps, ClusterEvents::CSI_DRIVER)])
    }

    /// A CSIStorageCapacity changed. More of it may help.
    pub fn set_capacity(&mut self, key: &ObjectKey, capacity: Option<Capacity>) -> ClusterEvents {
        let before = self.capacities.get(key);
        let helps = capacity
            .as_ref()
            .is_some_and(|new| before.is_none_or(|old| new.limit > old.limit));
        replace(&mut self.capacities, key.clone(), capacity);
        events(&[(helps, ClusterEvents::CSI_CAPACITY)])
    }

    /// A VolumeAttachment changed. Pods with claims may have its place.
    pub fn set_attachment(&mut self, name: &str, attachment: Option<Attachment>) -> ClusterEvents {
        let gone = attachment.is_none();
        if let Some(before) = self.attachments.get(name).map(|own| own.node.clone()) {
            set_member(&mut self.attached_to, &before, name, false);
        }
        if let Some(attachment) = &attachment {
            set_member(&mut self.attached_to, &attachment.node, name, true);
        }
        let changed = replace(&mut self.attachments, name.into(), attachment);
        events(&[(gone && changed, ClusterEvents::ATTACHMENT_GONE)])
    }

    /// A claim, with what is assumed of it.
    pub fn claim(&self, key: &ObjectKey) -> Option<&Arc<Claim>> {
        self.assumed_claims.get(key).or_else(|| self.claims.get(key))
    }

    /// A claim as the API has it.
    pub(crate) fn known_claim(&self, key: &ObjectKey) -> Option<&Arc<Claim>> {
        self.claims.get(key)
    }

    /// A volume, with what is assumed of it.
    pub fn volume(&self, name: &str) -> Option<&Arc<Volume>> {
        self.assumed_volumes.get(name).or_else(|| self.volumes.get(name))
    }

    /// A volume as the API has it.
    pub(crate) fn known_volume(&self, name: &str) -> Option<&Arc<Volume>> {
        self.volumes.get(name)
    }

    /// Volumes of a class, in the order of their names.
    pub(crate) fn of_class(&self, class: &str) -> impl Iterator<Item = &Arc<Volume>> {
        let names = self.of_class.get(class).into_iter().flatten();
        names.filter_map(|name| self.volume(name))
    }

    pub(crate) fn class(&self, name: &str) -> Option<&Arc<Class>> {
        self.classes.get(name)
    }

    pub(crate) fn csi_node(&self, name: &str) -> Option<&CsiNode> {
        self.csi_nodes.get(name)
    }

    pub(crate) fn driver(&self, name: &str) -> Option<&Driver> {
        self.drivers.get(name)
    }

    pub(crate) fn capacities(&self) -> impl Iterator<Item = &Capacity> {
        self.capacities.values()
    }

    /// Attachments to a node.
    pub(crate) fn attached_to(&self, node: &str) -> impl Iterator<Item = &Attachment> {
        let names = self.attached_to.get(node).into_iter().flatten();
        names.filter_map(|name| self.attachments.get(name))
    }

    /// A pod came to a node, or left it.
    pub(crate) fn count_users(&mut self, pod: &PodInfo, came: bool) {
        for own in pod.claims.iter().filter(|own| !own.ephemeral) {
            let key = ObjectKey::new(&*pod.key.namespace, &*own.name);
            if came {
                *self.users.entry(key).or_default() += 1;
            } else if let Some(count) = self.users.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    self.users.remove(&key);
                }
            }
        }
    }

    /// Reports whether a pod on a node names the claim.
    pub(crate) fn is_used(&self, claim: &ObjectKey) -> bool {
        self.users.contains_key(claim)
    }
}

fn events(all: &[(bool, ClusterEvents)]) -> ClusterEvents {
    let true_ones = all.iter().filter(|(is, _)| *is);
    true_ones.fold(ClusterEvents::NONE, |all, (_, event)| all.and(*event))
}

fn set_member(sets: &mut HashMap<Box<str>, BTreeSet<Box<str>>>, set: &str, name: &str, is_in: bool) {
    if is_in {
        sets.entry(set.into()).or_default().insert(name.into());
    } else if let Some(members) = sets.get_mut(set) {
        members.remove(name);
        if members.is_empty() {
            sets.remove(set);
        }
    }
}

fn replace<K: Eq + std::hash::Hash, V: PartialEq>(all: &mut HashMap<K, V>, key: K, value: Option<V>) -> bool {
    match value {
        Some(value) if all.get(&key) == Some(&value) => false,
        Some(value) => {
            all.insert(key, value);
            true
        }
        None => all.remove(&key).is_some(),
    }
}
