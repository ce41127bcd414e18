//! Devices of a pod that has its node: assumed, and what must be written of them before the pod is bound.

use super::Devices;
use super::objects::{AllocatedDevice, ClaimStatus, DeviceClaim, DeviceId};
use super::pod_devices::{ClaimOfPod, PodDevices};
use super::views::DeviceClaimView;
use crate::attempt::Attempt;
use crate::nodes::{NodeId, NodeTable};
use machinery_client::Projection;
use machinery_meta::{ObjectHeader, ObjectKey, Revision};
use serde_json::{Value, json};
use std::sync::Arc;

/// A claim as it will be.
#[derive(Debug)]
pub(crate) struct Assumed {
    pub(crate) claim: Arc<DeviceClaim>,
    /// It is not written yet: no version of the API has it.
    pub(crate) is_pending: bool,
}

/// A claim that is to be reserved for the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceReservation {
    pub claim: ObjectKey,
    pub uid: Box<str>,
    /// Its AllocationResult, where it has none yet.
    pub allocation: Option<Value>,
    /// Devices that it has, where it has an allocation.
    pub has: Vec<DeviceId>,
    /// Version of the claim after the write.
    pub written: Option<Revision>,
}

/// Assumes the devices that the node gives to the pod's claims. An error where it does not give them any more.
pub(crate) fn reserve(
    attempt: &Attempt,
    nodes: &mut NodeTable,
    node: NodeId,
) -> Result<Vec<DeviceReservation>, String> {
    let Some(Ok(pod)) = attempt.devices_if_known() else {
        return Ok(Vec::new());
    };
    let allocations = match pod.waiting().next() {
        Some(_) => {
            let solution = pod.solve_again(attempt, nodes, node);
            let solution = solution.map_err(super::allocator::Refusal::message)?;
            solution.allocations(&nodes.names[node])
        }
        None => Vec::new(),
    };
    Ok(nodes.devices.assume(attempt.pod().uid(), pod, allocations))
}

impl Devices {
    fn assume(&mut self, pod: &str, devices: &PodDevices, allocations: Vec<Value>) -> Vec<DeviceReservation> {
        let mut reserved = Vec::new();
        let mut allocations = allocations.into_iter();
        for own in &devices.claims {
            let status = own.status();
            let allocation = match status.allocation {
                None => allocations.next(),
                Some(_) => None,
            };
            if allocation.is_none() && self.api_says_reserved(&own.key, pod) {
                continue;
            }
            if let Some(allocation) = &allocation {
                self.assume_allocation(own, allocation, pod);
            }
            *self.reserving.entry(own.key.clone()).or_default() += 1;
            reserved.push(DeviceReservation {
                claim: own.key.clone(),
                uid: own.claim.uid.clone(),
                allocation,
                has: devices_of(status),
                written: None,
            });
        }
        reserved
    }

    /// Looks at the informer's version alone: an assumed reservation may have been taken back since.
    fn api_says_reserved(&self, key: &ObjectKey, pod: &str) -> bool {
        let known = self.claims.get(key);
        known.is_some_and(|own| own.status.get().is_reserved_for(pod))
    }

    fn assume_allocation(&mut self, own: &ClaimOfPod, allocation: &Value, pod: &str) {
        let (key, claim) = (&own.key, &own.claim);
        let status = json!({"status": {"allocation": allocation, "reservedFor": [{"uid": pod}]}}).to_string();
        // It was made here: there is nothing in it that could not be read.
        let Ok(read) = DeviceClaimView::project(&ObjectHeader::default(), status.as_bytes()) else {
            return;
        };
        let assumed = DeviceClaim {
            status: read.0.status.clone(),
            ..DeviceClaim::clone(claim)
        };
        let assumed = Assumed {
            claim: Arc::new(assumed),
            is_pending: true,
        };
        self.change(key, |own| drop(own.assumed.insert(key.clone(), assumed)));
    }

    /// Reservations are written: what is assumed of them stays until the API's version is seen.
    pub(crate) fn written(&mut self, reservations: &[DeviceReservation]) {
        for own in reservations {
            self.reserving_ends(&own.claim);
            let Some(revision) = own.written else { continue };
            let seen = self.claims.get(&own.claim).map(|claim| claim.revision);
            let Some(assumed) = self.assumed.get_mut(&own.claim) else {
                continue;
            };
            if *assumed.claim.uid != *own.uid {
                continue;
            }
            assumed.is_pending = false;
            let claim = Arc::make_mut(&mut assumed.claim);
            claim.revision = revision;
            if seen.is_none_or(|seen| seen >= revision) {
                self.change(&own.claim, |devices| drop(devices.assumed.remove(&own.claim)));
            }
        }
    }

    fn reserving_ends(&mut self, key: &ObjectKey) {
        if let Some(pods) = self.reserving.get_mut(key) {
            *pods -= 1;
            if *pods == 0 {
                self.reserving.remove(key);
            }
        }
    }

    /// Forgets what was assumed and is not written. Reports whether devices are free again by that.
    pub(crate) fn revert(&mut self, reservations: &[DeviceReservation]) -> bool {
        self.written(reservations);
        let mut reverted = false;
        for own in reservations.iter().filter(|own| own.written.is_none()) {
            let assumed = self.assumed.get(&own.claim);
            let is_own = |assumed: &Assumed| assumed.is_pending && assumed.claim.uid == own.uid;
            // A claim that had devices before was not assumed for this pod.
            if own.allocation.is_some() && assumed.is_some_and(is_own) {
                self.change(&own.claim, |devices| drop(devices.assumed.remove(&own.claim)));
                reverted = true;
            }
        }
        reverted
    }
}

fn devices_of(status: &ClaimStatus) -> Vec<DeviceId> {
    let id = |own: &AllocatedDevice| DeviceId {
        driver: (&*own.driver).into(),
        pool: (&*own.pool).into(),
        device: (&*own.device).into(),
    };
    let allocation = status.allocation.iter();
    allocation.flat_map(|own| &own.devices.results).map(id).collect()
}
