//! Devices by pod, container and resource. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use node_plugin_api::device_plugin::messages::ContainerAllocateResponse;
use prost::Message as _;

use crate::pods::{ContainerKind, all_containers, uid};

/// Bytes that a byte of an id may take in JSON.
const JSON_BYTES_MAX: usize = 6;

/// Devices of one resource that a container has.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Allocation {
    /// NUMA nodes by device.
    pub(super) devices: BTreeMap<String, Vec<i64>>,
    /// Answer of the plugin for them.
    pub(super) response: Arc<ContainerAllocateResponse>,
    /// This agent has given them, or has seen all of them healthy. No container starts with others: after a restart of the
    /// machine a device may be another one, or gone.
    pub(super) is_seen: bool,
}

impl Allocation {
    /// See [`Allocations::weight`]: ids are escaped in JSON and stand once for each NUMA node, answers are in base64.
    pub(super) fn weight(&self) -> usize {
        let devices = self.devices.iter();
        let ids: usize = devices
            .map(|(id, nodes)| (id.len() * JSON_BYTES_MAX + 4) * nodes.len().max(1))
            .sum();
        ids + self.response.encoded_len().div_ceil(3) * 4
    }
}

/// Allocations of a container by resource.
pub(super) type ContainerAllocations = BTreeMap<String, Allocation>;

/// All allocations of the node: by uid of the pod, and container.
#[derive(Debug, Default)]
pub(super) struct Allocations(BTreeMap<String, BTreeMap<String, ContainerAllocations>>);

impl Allocations {
    /// Everything that a container has.
    pub(super) fn of(&self, uid: &str, container: &str) -> Option<&ContainerAllocations> {
        self.0.get(uid)?.get(container)
    }

    /// The devices of one resource that a container has.
    pub(super) fn devices_of(&self, uid: &str, container: &str, resource: &str) -> Option<BTreeSet<&str>> {
        let allocation = self.of(uid, container)?.get(resource)?;
        Some(allocation.devices.keys().map(String::as_str).collect())
    }

    /// Devices of a resource that any pod has.
    pub(super) fn allocated(&self, resource: &str) -> BTreeSet<&str> {
        let all = self.0.values().flat_map(BTreeMap::values);
        all.filter_map(|container| container.get(resource))
            .flat_map(|allocation| allocation.devices.keys().map(String::as_str))
            .collect()
    }

    /// Numbers of devices that pods have, by resource.
    pub(super) fn counts(&self) -> BTreeMap<String, usize> {
        let all = self.0.values().flat_map(BTreeMap::values);
        let resources: BTreeSet<&String> = all.flat_map(BTreeMap::keys).collect();
        resources
            .into_iter()
            .map(|resource| (resource.clone(), self.allocated(resource).len()))
            .collect()
    }

    /// Reports whether any pod has devices of a resource.
    pub(super) fn has(&self, resource: &str) -> bool {
        let mut all = self.0.values().flat_map(BTreeMap::values);
        all.any(|container| container.contains_key(resource))
    }

    /// Reports whether a pod has devices.
    pub(super) fn has_pod(&self, uid: &str) -> bool {
        self.0.contains_key(uid)
    }

    /// Devices that a container may share: those of init containers that have ended by the time it starts. A sidecar, and
    /// a container of the pod's main part, keeps its own.
    pub(super) fn reusable(&self, pod: &Pod, container: &str, resource: &str) -> BTreeSet<String> {
        let mut free: BTreeSet<String> = BTreeSet::new();
        for (kind, before) in all_containers(pod).take_while(|(_, own)| own.name != container) {
            let devices = self.devices_of(uid(pod), &before.name, resource);
            let devices = devices.into_iter().flatten().map(str::to_owned);
            match kind {
                ContainerKind::Init => free.extend(devices),
                _ => devices.for_each(|device| {
                    free.remove(&device);
                }),
            }
        }
        free
    }

    /// Records what a container was given.
    pub(super) fn insert(&mut self, uid: &str, container: &str, resource: &str, allocation: Allocation) {
        let pod = self.0.entry(uid.to_owned()).or_default();
        let container = pod.entry(container.to_owned()).or_default();
        container.insert(resource.to_owned(), allocation);
    }

    /// Remembers of which containers all devices of a resource are healthy.
    pub(super) fn see(&mut self, resource: &str, is_healthy: impl Fn(&str) -> bool) {
        let all = self.0.values_mut().flat_map(BTreeMap::values_mut);
        for allocation in all.filter_map(|container| container.get_mut(resource)) {
            allocation.is_seen |= allocation.devices.keys().all(|device| is_healthy(device));
        }
    }

    /// Returns at least the number of bytes that all of it takes on the disk, but for names that the API bounds.
    pub(super) fn weight(&self) -> usize {
        self.iter().map(|(.., allocation)| allocation.weight()).sum()
    }

    /// Takes everything away from a pod; true where it had something.
    pub(super) fn release(&mut self, uid: &str) -> bool {
        self.0.remove(uid).is_some()
    }

    /// Takes the devices of one resource away from a container.
    pub(super) fn remove(&mut self, uid: &str, container: &str, resource: &str) {
        let Some(pod) = self.0.get_mut(uid) else { return };
        if let Some(own) = pod.get_mut(container) {
            own.remove(resource);
        }
        pod.retain(|_, own| !own.is_empty());
        if pod.is_empty() {
            self.0.remove(uid);
        }
    }

    /// Takes everything away from pods but these; true where one had something.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(&str) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|uid, _| stays(uid));
        self.0.len() != before
    }

    /// All of them: uid, container, resource, and what it has.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str, &str, &Allocation)> {
        self.0.iter().flat_map(|(uid, pod)| {
            pod.iter().flat_map(move |(container, resources)| {
                let of =
                    move |(resource, allocation)| (uid.as_str(), container.as_str(), resource, allocation);
                resources
                    .iter()
                    .map(|(resource, allocation)| (resource.as_str(), allocation))
                    .map(of)
            })
        })
    }
}
