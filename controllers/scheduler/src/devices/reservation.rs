//! Devices of a pod that has its node: assumed, and what must be written of them before the pod is bound.

use super::Devices;
use super::extended::{NewClaim, assumed_key};
use super::objects::{AllocatedDevice, ClaimStatus, DeviceClaim, DeviceId};
use super::pod_devices::PodDevices;
use super::views::DeviceClaimView;
use crate::attempt::Attempt;
use crate::nodes::{NodeId, NodeTable};
use crate::pod::PodInfo;
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
    /// The claim is to be made, for extended resources: until then it has a name that is assumed.
    pub special: Option<SpecialReservation>,
}

/// A claim that is made for extended resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecialReservation {
    pub spec: Value,
    /// The requests from which containers have their resources.
    pub mappings: Value,
    /// Name and uid, once it is made.
    pub made: Option<(ObjectKey, Box<str>)>,
}

impl DeviceReservation {
    /// The claim in the API.
    pub(crate) fn key(&self) -> &ObjectKey {
        self.made().map_or(&self.claim, |(key, _)| key)
    }

    /// The uid of the claim in the API.
    pub(crate) fn uid(&self) -> &str {
        self.made().map_or(&*self.uid, |(_, uid)| uid)
    }

    fn made(&self) -> Option<&(ObjectKey, Box<str>)> {
        self.special.as_ref()?.made.as_ref()
    }

    /// The claim that was made, as the pod holds it.
    pub(crate) fn held(&self) -> Option<HeldClaim> {
        let (claim, uid) = self.made()?.clone();
        Some(HeldClaim {
            claim,
            uid,
            is_special: true,
        })
    }
}

/// A claim of a pod that is about to be bound. Another may have the name once it is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldClaim {
    pub claim: ObjectKey,
    pub uid: Box<str>,
    /// It was made for extended resources: it goes.
    pub is_special: bool,
}

/// Work on the pod's claims of devices that comes before the pod is bound.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    pub(crate) devices: Vec<DeviceReservation>,
    /// Claims with conditions that the pod waits for.
    pub(crate) conditions: Vec<ObjectKey>,
    /// All claims of the pod.
    pub(crate) held: Vec<HeldClaim>,
}

/// Assumes the devices that the node gives to the pod's claims. An error where it does not give them any more.
pub(crate) fn reserve(attempt: &Attempt, nodes: &mut NodeTable, node: NodeId) -> Result<Reserved, String> {
    let Some(Ok(pod)) = attempt.devices_if_known() else {
        return Ok(Reserved::default());
    };
    let new = pod.new_claim(attempt, nodes, node);
    let new = new.map_err(|why| why.reasons.join(", "))?;
    let mut allocations = Vec::new();
    if new.is_some() || pod.waiting().next().is_some() {
        let name = &nodes.names[node];
        let found = pod.solve_again(attempt, nodes, node, new.as_ref(), |own| own.allocations(name));
        allocations = found.map_err(|why| why.message())?;
    }
    let special = new.and_then(|new| Some((new, allocations.pop()?)));
    let mut devices = nodes.devices.assume(attempt.pod().uid(), pod, allocations);
    let mut keys: Vec<ObjectKey> = pod.claims.iter().map(|own| own.key.clone()).collect();
    if let Some((new, allocation)) = special {
        let own = nodes.devices.assume_special(attempt.pod(), &new, allocation);
        keys.push(own.claim.clone());
        devices.push(own);
    }
    let known = &nodes.devices;
    let waits = |key: &ObjectKey| {
        let claim = known.claim(key);
        claim.is_some_and(|own| own.status.get().has_conditions())
    };
    keys.retain(waits);
    let held = pod.claims.iter().map(|own| HeldClaim {
        claim: own.key.clone(),
        uid: own.claim.uid.clone(),
        is_special: false,
    });
    Ok(Reserved {
        devices,
        conditions: keys,
        held: held.collect(),
    })
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
                self.assume_allocation(&own.key, &own.claim, allocation, pod);
            }
            *self.reserving.entry(own.key.clone()).or_default() += 1;
            reserved.push(DeviceReservation {
                claim: own.key.clone(),
                uid: own.claim.uid.clone(),
                allocation,
                has: devices_of(status),
                written: None,
                special: None,
            });
        }
        reserved
    }

    /// Assumes the claim of the pod's extended resources, which is no object yet.
    fn assume_special(&mut self, pod: &PodInfo, new: &NewClaim, allocation: Value) -> DeviceReservation {
        let claim = assumed_key(pod);
        let uid: Box<str> = (*claim.name).into();
        let assumed = DeviceClaim {
            uid: uid.clone(),
            owner: pod.uid().into(),
            is_special: true,
            ..DeviceClaim::default()
        };
        self.assume_allocation(&claim, &assumed, &allocation, pod.uid());
        *self.reserving.entry(claim.clone()).or_default() += 1;
        DeviceReservation {
            claim,
            uid,
            allocation: Some(allocation),
            has: Vec::new(),
            written: None,
            special: Some(SpecialReservation {
                spec: new.spec_value(),
                mappings: json!(new.mappings),
                made: None,
            }),
        }
    }

    /// The claim is an object now: what is assumed of it is of that object.
    fn assume_made(&mut self, own: &DeviceReservation, revision: Revision) {
        let Some((key, uid)) = own.made() else {
            return;
        };
        let seen = self.claims.get(key).map(|claim| claim.revision);
        let Some(assumed) = self.assumed.get(&own.claim) else {
            return;
        };
        let claim = DeviceClaim {
            uid: uid.clone(),
            revision,
            ..DeviceClaim::clone(&assumed.claim)
        };
        self.change(&own.claim, |devices| drop(devices.assumed.remove(&own.claim)));
        if seen.is_some_and(|seen| seen >= revision) {
            return;
        }
        let assumed = Assumed {
            claim: Arc::new(claim),
            is_pending: false,
        };
        self.change(key, |devices| drop(devices.assumed.insert(key.clone(), assumed)));
    }

    /// Looks at the informer's version alone: an assumed reservation may have been taken back since.
    fn api_says_reserved(&self, key: &ObjectKey, pod: &str) -> bool {
        let known = self.claims.get(key);
        known.is_some_and(|own| own.status.get().is_reserved_for(pod))
    }

    fn assume_allocation(&mut self, key: &ObjectKey, claim: &DeviceClaim, allocation: &Value, pod: &str) {
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
            if own.special.is_some() {
                self.assume_made(own, revision);
                continue;
            }
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

    /// Forgets the claim that was made for a pod which leaves its node, where it was never seen: it may be gone already.
    pub(crate) fn forget_special(&mut self, pod: &PodInfo) {
        if pod.extended.is_empty() {
            return;
        }
        let is_own = |(key, own): (&ObjectKey, &Assumed)| {
            let is_left = own.claim.is_special && !own.is_pending && *own.claim.owner == *pod.uid();
            (is_left && !self.claims.contains_key(key)).then(|| key.clone())
        };
        let own: Vec<ObjectKey> = self.assumed.iter().filter_map(is_own).collect();
        for key in own {
            self.change(&key, |devices| drop(devices.assumed.remove(&key)));
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
