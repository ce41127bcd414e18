//! Devices, and the claims that pods have to them (upstream's `dynamicresources` and `structured`).
//!
//! Events keep [`Devices`] current: claims with what is allocated to them, classes, and the slices in which drivers offer
//! devices, as [`pools`]. An attempt sorts its pod's claims once ([`pod_devices`]); filters have the [`allocator`] look for
//! devices node by node. Once the pod has a node its allocations are assumed ([`reservation`]), written by the driver with
//! the pod's reservation ([`writes`]), and the pod is bound.
//!
//! Invariant: what is assumed of a claim is forgotten when a version comes that has it, or the claim goes.

pub(crate) mod allocated;
pub(crate) mod allocator;
pub(crate) mod binding;
pub(crate) mod class_resources;
pub(crate) mod conditions;
pub(crate) mod extended;
pub mod objects;
pub(crate) mod pod_devices;
pub(crate) mod pools;
pub(crate) mod post_filter;
pub(crate) mod reservation;
pub(crate) mod scheduling;
mod selectors;
pub(crate) mod views;
pub(crate) mod writes;

pub use objects::{DeviceClaim, DeviceClass, Slice, TaintRule};
pub use post_filter::Deallocation;
pub use reservation::{DeviceReservation, HeldClaim, SpecialReservation};

use crate::cluster_events::ClusterEvents;
use crate::extended_requests::ContainerRequests;
use crate::pod::PodInfo;
use allocated::Allocated;
use class_resources::Classes;
use jiff::Timestamp;
use machinery_meta::ObjectKey;
use objects::{Device, DeviceToleration};
use pools::Pools;
use reservation::Assumed;
use selectors::Selectors;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The plugin's name.
pub(crate) const DYNAMIC_RESOURCES: &str = "DynamicResources";

/// Taints, or rules, that are compared with a toleration in one step.
const COMPARED_A_STEP: usize = 4;

/// Known objects of each kind.
#[derive(Debug, Default)]
pub struct Devices {
    claims: HashMap<ObjectKey, Arc<DeviceClaim>>,
    assumed: HashMap<ObjectKey, Assumed>,
    /// Numbers of pods for which claims are being reserved.
    reserving: HashMap<ObjectKey, usize>,
    /// Claims that were made for extended resources, by the uid of their pod.
    special: HashMap<Box<str>, BTreeSet<ObjectKey>>,
    pub(crate) classes: Classes,
    rules: HashMap<Box<str>, TaintRule>,
    pub(crate) pools: Pools,
    pub(crate) allocated: Allocated,
    pub(crate) selectors: Selectors,
    /// Time of the clock on the wall, by which devices are waited for.
    pub(crate) wall_time: Timestamp,
}

/// Pods that a change of a claim may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimChange {
    None,
    /// Pods that use it.
    Own,
    /// All with claims: devices are free again.
    Freed,
}

impl Devices {
    /// A claim, with what is assumed of it.
    pub(crate) fn claim(&self, key: &ObjectKey) -> Option<&Arc<DeviceClaim>> {
        let assumed = self.assumed.get(key).map(|own| &own.claim);
        assumed.or_else(|| self.claims.get(key))
    }

    /// Reports whether an allocation of the claim is being written.
    pub(crate) fn is_pending(&self, key: &ObjectKey) -> bool {
        self.assumed.get(key).is_some_and(|own| own.is_pending)
    }

    /// Reports whether the claim has more, or soon will have, than the API's version that is known.
    pub(crate) fn is_in_writing(&self, key: &ObjectKey) -> bool {
        self.assumed.contains_key(key) || self.reserving.contains_key(key)
    }

    /// A claim changed; `None` when it is gone.
    pub(crate) fn set_claim(&mut self, key: &ObjectKey, claim: Option<Arc<DeviceClaim>>) -> ClaimChange {
        let before = self.claims.get(key).cloned();
        if before == claim {
            return ClaimChange::None;
        }
        let ends = |own: &Assumed| {
            let newer = |claim: &Arc<DeviceClaim>| claim.revision >= own.claim.revision && !own.is_pending;
            claim
                .as_ref()
                .is_none_or(|claim| claim.uid != own.claim.uid || newer(claim))
        };
        let ends = self.assumed.get(key).is_some_and(ends);
        for (own, comes) in [(&before, false), (&claim, true)] {
            self.file_special(key, own.as_deref(), comes);
        }
        self.change(key, |own| {
            if ends {
                own.assumed.remove(key);
            }
            match &claim {
                Some(claim) => drop(own.claims.insert(key.clone(), Arc::clone(claim))),
                None => drop(own.claims.remove(key)),
            }
        });
        let has_devices = |claim: &Option<Arc<DeviceClaim>>| {
            claim
                .as_ref()
                .is_some_and(|own| own.status.get().allocation.is_some())
        };
        if has_devices(&before) && !has_devices(&claim) {
            return ClaimChange::Freed;
        }
        let status = |claim: &Option<Arc<DeviceClaim>>| claim.as_ref().map(|own| own.status.clone());
        match claim.is_some() && status(&before) != status(&claim) {
            true => ClaimChange::Own,
            false => ClaimChange::None,
        }
    }

    fn file_special(&mut self, key: &ObjectKey, claim: Option<&DeviceClaim>, comes: bool) {
        let Some(own) = claim.filter(|own| own.is_special) else {
            return;
        };
        let claims = self.special.entry(own.owner.clone()).or_default();
        match comes {
            true => drop(claims.insert(key.clone())),
            false => drop(claims.remove(key)),
        }
        if claims.is_empty() {
            self.special.remove(&own.owner);
        }
    }

    /// The claim that an attempt before made for extended resources of the pod.
    pub(crate) fn left_over(&self, pod: &PodInfo) -> Option<(ObjectKey, Arc<DeviceClaim>)> {
        let mut keys = self.special.get(pod.uid())?.iter();
        // One of another namespace only says that it is of the pod.
        let key = keys.find(|key| key.namespace == pod.key.namespace)?;
        Some((key.clone(), Arc::clone(self.claim(key)?)))
    }

    /// The uid of the pod for whose extended resources the claim was made.
    pub(crate) fn owner_of_special(&self, key: &ObjectKey) -> Option<Box<str>> {
        let claim = self.claims.get(key).filter(|own| own.is_special)?;
        Some(claim.owner.clone())
    }

    /// Reports whether a class serves extended resources of the pod.
    pub(crate) fn serves(&self, pod: &PodInfo) -> bool {
        let mut resources = pod.extended.iter().flat_map(ContainerRequests::resources);
        resources.any(|own| self.classes.of_resource(own).is_some())
    }

    /// Changes what is known of a claim, and counts what is allocated to it anew.
    fn change(&mut self, key: &ObjectKey, change: impl FnOnce(&mut Self)) {
        self.count(key, false);
        change(self);
        self.count(key, true);
    }

    /// Counts what is assumed of the claim and what the API says of it: another scheduler may have given it other devices.
    fn count(&mut self, key: &ObjectKey, comes: bool) {
        let assumed = self.assumed.get(key).map(|own| &own.claim);
        for claim in assumed.into_iter().chain(self.claims.get(key)) {
            if let Some(allocation) = &claim.status.get().allocation {
                self.allocated.count(allocation, comes);
            }
        }
    }

    /// A class changed; `None` when it is gone. Returns the extended resources too that another class serves by that.
    pub(crate) fn set_class(
        &mut self,
        name: &str,
        class: Option<Arc<DeviceClass>>,
    ) -> (ClusterEvents, Vec<Box<str>>) {
        let changed = class.is_some() && self.classes.get(name) != class.as_ref();
        let resources = self.classes.set(name, class);
        (event(changed, ClusterEvents::DEVICE_CLASS), resources)
    }

    /// A slice changed; `None` when it is gone. One that goes may complete its pool.
    pub(crate) fn set_slice(&mut self, name: &str, slice: Option<Arc<Slice>>) -> ClusterEvents {
        event(self.pools.set(name, slice), ClusterEvents::DEVICE_SLICE)
    }

    /// A rule that taints devices changed; `None` when it is gone.
    pub(crate) fn set_rule(&mut self, name: &str, rule: Option<TaintRule>) -> ClusterEvents {
        let changed = self.rules.get(name) != rule.as_ref();
        match rule {
            Some(rule) => drop(self.rules.insert(name.into(), rule)),
            None => drop(self.rules.remove(name)),
        }
        // Upstream shows rules as changes of the slices that they taint.
        event(changed, ClusterEvents::DEVICE_SLICE)
    }

    /// Steps that [`Self::is_tainted`] takes.
    pub(crate) fn taint_steps(&self, device: &Device, tolerations: &[DeviceToleration]) -> usize {
        (device.taints.len() + self.rules.len()) * (1 + tolerations.len()) / COMPARED_A_STEP
    }

    /// Reports whether a taint, of the device or of a rule, is not tolerated.
    pub(crate) fn is_tainted(&self, device: &Device, tolerations: &[DeviceToleration]) -> bool {
        let by_rule = |rule: &TaintRule| rule.selects(&device.id) && rule.spec.taint.prevents(tolerations);
        device.taints.iter().any(|own| own.prevents(tolerations)) || self.rules.values().any(by_rule)
    }
}

fn event(is: bool, event: ClusterEvents) -> ClusterEvents {
    match is {
        true => event,
        false => ClusterEvents::NONE,
    }
}
