//! Requests of containers for devices, and what the state of the node says to them.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use machinery_meta::Quantity;
use node_plugin_api::device_plugin::messages::ContainerAllocateResponse;

use super::ALLOCATIONS_WEIGHT_MAX;
use super::allocations::Allocation;
use super::choice::{Choice, Request, choose, no_healthy, no_longer_healthy};
use super::state::State;
use crate::pods::uid;
use crate::resource_managers::hints::NodeMask;

/// A container's request for devices of one resource.
#[derive(Clone, Copy)]
pub(super) struct Claim<'a> {
    pub(super) pod: &'a Pod,
    pub(super) container: &'a str,
    pub(super) resource: &'a str,
    pub(super) required: usize,
    /// NUMA nodes of which devices are taken first.
    pub(super) nodes: Option<NodeMask>,
}

impl State {
    /// Resources of plugins of which a container requests devices.
    pub(super) fn requested<'c>(&self, container: &'c Container) -> BTreeSet<&'c str> {
        let requested =
            requests(container).filter(|(resource, required)| *required > 0 && self.has(resource));
        requested.map(|(resource, _)| resource).collect()
    }

    /// After a restart of the machine devices may be others: nothing starts before the plugin says that they are there.
    pub(super) fn check_seen(&self, pod: &Pod, container: &Container, resource: &str) -> Result<(), String> {
        let own = self.allocations.of(uid(pod), &container.name);
        let own = own.and_then(|own| own.get(resource));
        match own.is_some_and(|own| own.is_seen) {
            true => Ok(()),
            false if self.inventory.awaits(resource) => Err(no_healthy(resource)),
            false => Err(no_longer_healthy(resource)),
        }
    }

    /// Decides which devices a container gets: see [`choose`].
    pub(super) fn choose(&self, claim: Claim<'_>) -> Result<Choice, String> {
        let Claim {
            pod,
            container,
            resource,
            required,
            nodes,
        } = claim;
        let choice = choose(&Request {
            uid: uid(pod),
            container,
            resource,
            required,
            own: self.allocations.devices_of(uid(pod), container, resource),
            reusable: self.allocations.reusable(pod, container, resource),
            healthy: self.inventory.healthy(resource),
            allocated: self.allocations.allocated(resource),
        })?;
        Ok(match (choice, nodes) {
            (Choice::Open(open), Some(nodes)) if self.inventory.has_places(resource) => {
                open.aligned(|device| self.inventory.nearness(resource, device, nodes))
            }
            (choice, _) => choice,
        })
    }

    /// Records what a container gets.
    ///
    /// # Errors
    /// Another has one of these devices, or there is no room for the answer.
    pub(super) fn give(
        &mut self,
        claim: Claim<'_>,
        chosen: impl IntoIterator<Item = String>,
        response: ContainerAllocateResponse,
    ) -> Result<(), String> {
        let chosen: BTreeSet<String> = chosen.into_iter().collect();
        self.check_free(&claim, &chosen)?;
        let nodes = |id: &str| {
            self.inventory
                .device(claim.resource, id)
                .map(|device| device.nodes.clone())
        };
        let devices = chosen
            .into_iter()
            .map(|id| {
                let nodes = nodes(&id).unwrap_or_default();
                (id, nodes)
            })
            .collect();
        let allocation = Allocation {
            devices,
            response: Arc::new(response),
            is_seen: true,
        };
        if self.allocations.weight() + allocation.weight() > ALLOCATIONS_WEIGHT_MAX {
            return Err(format!(
                "no room for what device plugins have answered, the last one for {}",
                claim.resource
            ));
        }
        self.allocations
            .insert(uid(claim.pod), claim.container, claim.resource, allocation);
        self.generation += 1;
        Ok(())
    }

    /// Refuses devices that another container has: it keeps them, whatever was decided before the plugin answered.
    fn check_free(&self, claim: &Claim<'_>, chosen: &BTreeSet<String>) -> Result<(), String> {
        let Claim {
            pod,
            container,
            resource,
            ..
        } = *claim;
        let shared = self.allocations.reusable(pod, container, resource);
        let allocated = self.allocations.allocated(resource);
        let is_taken = |device: &&String| allocated.contains(device.as_str()) && !shared.contains(*device);
        match chosen.iter().find(is_taken) {
            Some(device) => Err(format!(
                "device {device:?} of {resource} was allocated to another container meanwhile"
            )),
            None => Ok(()),
        }
    }
}

/// Devices that a container requests, by resource: its limits, which requests of such resources equal.
pub(super) fn requests(container: &Container) -> impl Iterator<Item = (&str, usize)> {
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    limits.into_iter().flatten().map(|(resource, quantity)| {
        let amount = quantity.0.parse::<Quantity>().map_or(0, Quantity::units);
        (resource.as_str(), usize::try_from(amount).unwrap_or(0))
    })
}
