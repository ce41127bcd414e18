//! The scheduler's part: changes of claims and of what is offered to them.

use super::ClaimChange;
use super::objects::{DeviceClaim, DeviceClass, Slice, TaintRule};
use crate::cluster_events::ClusterEvents;
use crate::extended_requests::ContainerRequests;
use crate::pod::PodInfo;
use crate::scheduler::Scheduler;
use machinery_meta::ObjectKey;
use std::sync::Arc;
use std::time::Duration;

impl Scheduler {
    /// A claim of devices changed; `None` when it is gone.
    pub fn device_claim_changed(&mut self, key: &ObjectKey, claim: Option<Arc<DeviceClaim>>, now: Duration) {
        let gating = |own: &Self| {
            let claim = own.nodes.devices.claim(key);
            claim.map(|own| (own.uid.clone(), own.owner.clone(), own.deleting))
        };
        let before = gating(self);
        let owner = self.nodes.devices.owner_of_special(key);
        let change = self.nodes.devices.set_claim(key, claim);
        if before != gating(self) {
            self.look_at_gates(key, now);
        }
        self.conditions_changed(key);
        if let Some(owner) = owner.filter(|_| self.nodes.devices.claim(key).is_none()) {
            // Its pod waits for that alone.
            let is_owner = |pod: &PodInfo| *pod.uid() == *owner;
            self.queue.happened_to(ClusterEvents::DEVICE_CLAIM, now, is_owner);
        }
        match change {
            ClaimChange::None => {}
            ClaimChange::Own => {
                let events = ClusterEvents::DEVICE_CLAIM;
                self.queue.happened_to_users(key, events, now);
            }
            ClaimChange::Freed => {
                let has = PodInfo::may_use_devices;
                self.queue.happened_to(ClusterEvents::DEVICE_CLAIM, now, has);
            }
        }
    }

    /// A claim kept its devices, which are out of the pod's reach: it was written since it was looked at, or could not be. The
    /// pod is looked at again.
    pub fn not_deallocated(&mut self, pod: &PodInfo, now: Duration) {
        let is_pod = |own: &PodInfo| own.key == pod.key;
        self.queue.happened_to(ClusterEvents::DEVICE_CLAIM, now, is_pod);
    }

    /// Pods that are held back until the claim is there are looked at again.
    fn look_at_gates(&mut self, key: &ObjectKey, now: Duration) {
        for pod in self.queue.gated_users(key) {
            let Some(profile) = self.profile_of(&pod) else {
                continue;
            };
            let gate = profile.algorithm.plugins().gate(&pod, &self.nodes);
            self.queue.set(pod, gate, now);
        }
    }

    /// A DeviceClass changed; `None` when it is gone.
    pub fn device_class_changed(&mut self, name: &str, class: Option<Arc<DeviceClass>>, now: Duration) {
        let (events, resources) = self.nodes.devices.set_class(name, class);
        self.queue.happened(events, now);
        if resources.is_empty() {
            return;
        }
        self.nodes.forget_answers();
        let requests = |pod: &PodInfo| {
            let mut own = pod.extended.iter().flat_map(ContainerRequests::resources);
            own.any(|own| resources.iter().any(|name| **name == *own))
        };
        let events = ClusterEvents::CLASS_RESOURCE;
        self.queue.happened_to(events, now, requests);
    }

    /// A ResourceSlice changed; `None` when it is gone.
    pub fn device_slice_changed(&mut self, name: &str, slice: Option<Arc<Slice>>, now: Duration) {
        let events = self.nodes.devices.set_slice(name, slice);
        self.queue.happened(events, now);
    }

    /// A DeviceTaintRule changed; `None` when it is gone.
    pub fn device_rule_changed(&mut self, name: &str, rule: Option<TaintRule>, now: Duration) {
        let events = self.nodes.devices.set_rule(name, rule);
        self.queue.happened(events, now);
    }
}
