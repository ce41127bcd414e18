//! The scheduler's part: changes of storage, and pods whose claims are being bound.

use super::reservation::{self, Reservation};
use super::waiting::{Ends, WaitingPods};
use super::{Attachment, Capacity, Claim, Class, CsiNode, Driver, Volume};
use crate::cluster_events::ClusterEvents;
use crate::decision::Decision;
use crate::devices::conditions::BINDING_SUCCESS;
use crate::pod::PodInfo;
use crate::scheduler::Scheduler;
use machinery_meta::ObjectKey;
use std::collections::HashSet;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Pods whose claims are being bound, and what was decided about them.
#[derive(Debug, Default)]
pub(crate) struct BindingPods {
    pub(crate) waiting: WaitingPods,
    pub(crate) decided: VecDeque<Decision>,
}

impl Scheduler {
    /// A claim changed; `None` when it is gone. Only pods that use it are woken.
    pub fn claim_changed(&mut self, key: &ObjectKey, claim: Option<Claim>, now: Duration) {
        let events = self.nodes.volumes.set_claim(key, claim);
        self.queue.happened_to(events, now, |pod| pod.uses_claim(key));
        let waiting = self.binding.waiting.of_claim(key);
        self.look_again(waiting);
    }

    /// A volume changed; `None` when it is gone.
    pub fn volume_changed(&mut self, name: &str, volume: Option<Volume>, now: Duration) {
        let claim = |volume: Option<&Volume>| {
            let own = volume?.claim.as_ref()?;
            Some(ObjectKey::new(&*own.namespace, &*own.name))
        };
        let before = claim(self.nodes.volumes.volume(name).map(|own| &**own));
        let after = claim(volume.as_ref());
        let events = self.nodes.volumes.set_volume(name, volume);
        self.queue.happened(events, now);
        for key in before
            .iter()
            .chain(after.iter().filter(|key| before.as_ref() != Some(*key)))
        {
            let waiting = self.binding.waiting.of_claim(key);
            self.look_again(waiting);
        }
    }

    /// A storage class changed; `None` when it is gone.
    pub fn class_changed(&mut self, name: &str, class: Option<Class>, now: Duration) {
        let events = self.nodes.volumes.set_class(name, class);
        self.queue.happened(events, now);
    }

    /// A CSINode changed; `None` when it is gone.
    pub fn csi_node_changed(&mut self, name: &str, node: Option<CsiNode>, now: Duration) {
        let events = self.nodes.volumes.set_csi_node(name, node);
        self.queue.happened(events, now);
    }

    /// A CSIDriver changed; `None` when it is gone.
    pub fn driver_changed(&mut self, name: &str, driver: Option<Driver>, now: Duration) {
        let events = self.nodes.volumes.set_driver(name, driver);
        self.queue.happened(events, now);
    }

    /// A CSIStorageCapacity changed; `None` when it is gone.
    pub fn capacity_changed(&mut self, key: &ObjectKey, capacity: Option<Capacity>, now: Duration) {
        let events = self.nodes.volumes.set_capacity(key, capacity);
        self.queue.happened(events, now);
    }

    /// A VolumeAttachment changed; `None` when it is gone.
    pub fn attachment_changed(&mut self, name: &str, attachment: Option<Attachment>, now: Duration) {
        let events = self.nodes.volumes.set_attachment(name, attachment);
        let concerns = |pod: &PodInfo| pod.claims.iter().any(|own| !own.ephemeral);
        self.queue.happened_to(events, now, concerns);
    }

    /// Wakes the pods that a pod which left its node was in the way of.
    pub(crate) fn volumes_freed(&mut self, gone: &PodInfo, now: Duration) {
        if !gone.claims.is_empty() {
            self.queue.happened(ClusterEvents::VOLUMES_GONE, now);
        }
        if !gone.claims.is_empty() || !gone.disks.is_empty() {
            let claims = lasting_claims(gone).collect();
            self.queue
                .happened_to(ClusterEvents::CLAIM_FREED, now, |pod| frees(gone, &claims, pod));
        }
    }

    /// Everything of a reservation is written: the pod waits until its claims are bound. One that is gone does not.
    pub fn volumes_written(
        &mut self,
        pod: &Arc<PodInfo>,
        node: &str,
        mut reservation: Reservation,
        now: Duration,
    ) {
        reservation.name_conditions();
        self.nodes.devices.written(&reservation.devices);
        if self.is_assumed(pod) {
            let ends = Ends {
                volumes: reservation.has_volumes().then(|| now + self.bind_timeout(pod)),
                devices: self.conditions_end(pod, &reservation, now),
            };
            self.binding.waiting.insert(pod, node, reservation, now, ends);
            self.look_again(vec![pod.key.clone()]);
        } else {
            self.measuring.forget_pod(pod);
        }
    }

    /// Takes back what of a reservation was not written: the pod waits for its next turn.
    pub fn volumes_not_written(&mut self, pod: &PodInfo, reservation: &Reservation, now: Duration) {
        self.nodes.volumes.revert(reservation);
        if self.nodes.devices.revert(&reservation.devices) {
            self.queue
                .happened_to(ClusterEvents::DEVICE_CLAIM, now, PodInfo::may_use_devices);
        }
        self.measuring.volumes_not_bound(pod);
        self.binding_failed(pod, now);
    }

    /// Gives up on pods that have waited long enough.
    pub(crate) fn end_waiting(&mut self, now: Duration) {
        while let Some(key) = self.binding.waiting.overdue(now) {
            let Some(own) = self.binding.waiting.get(&key) else {
                return;
            };
            let by_volumes = own.ends.volumes.is_some_and(|end| end <= now);
            match reservation::check(&own.reservation, &self.nodes, &own.node) {
                _ if !by_volumes => self.conditions_are_late(&key),
                Ok(true) => self.binding.waiting.volumes_are_bound(&key),
                _ => self.fail(&key, "context deadline exceeded"),
            }
        }
    }

    /// Looks at pods on a node that changed.
    pub(crate) fn look_again_on(&mut self, node: &str) {
        let waiting = self.binding.waiting.on_node(node);
        self.look_again(waiting);
    }

    pub(crate) fn look_again(&mut self, waiting: Vec<ObjectKey>) {
        for key in waiting {
            let Some(own) = self.binding.waiting.get(&key) else {
                continue;
            };
            let volumes = reservation::check(&own.reservation, &self.nodes, &own.node);
            let conditions = self.nodes.devices.are_ready(&own.reservation.conditions);
            match (volumes, conditions) {
                (Err(why), _) => self.fail(&key, &why),
                (_, Err(unready)) => self.conditions_failed(&key, unready),
                (Ok(true), Ok(true)) => self.is_ready(&key),
                (Ok(_), Ok(_)) => {}
            }
        }
    }

    fn is_ready(&mut self, key: &ObjectKey) {
        if let Some(own) = self.binding.waiting.remove(key) {
            self.conditions_waited(&own, BINDING_SUCCESS);
            let (pod, node, held) = (own.pod, own.node, own.reservation.held);
            self.binding.decided.push_back(Decision::Bind { pod, node, held });
        }
    }

    fn fail(&mut self, key: &ObjectKey, why: &str) {
        if let Some(own) = self.binding.waiting.remove(key) {
            let message = format!("{PRE_BIND}: binding volumes: {why}");
            let (pod, held) = (own.pod, own.reservation.held);
            self.measuring.volumes_not_bound(&pod);
            self.binding
                .decided
                .push_back(Decision::Fail { pod, message, held });
        }
    }
}

/// Beginning of upstream's message where volumes were not bound.
pub(crate) const PRE_BIND: &str = "running PreBind plugin \"VolumeBinding\"";

/// Names of claims that are not made for the pod itself.
fn lasting_claims(pod: &PodInfo) -> impl Iterator<Item = &str> {
    pod.claims
        .iter()
        .filter(|own| !own.ephemeral)
        .map(|own| &*own.name)
}

/// Reports whether the pod may have waited for these claims or for disks that the pod that is gone used.
fn frees(gone: &PodInfo, claims: &HashSet<&str>, pod: &PodInfo) -> bool {
    gone.key.namespace == pod.key.namespace
        && (lasting_claims(pod).any(|own| claims.contains(own)) || pod.disks.conflict_with(&gone.disks))
}
