//! NUMA nodes of which the devices of a container, or of a whole pod, could be taken: upstream's `topology_hints`.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod};
use machinery_semantics::resources::pod_limits;

use super::claims::requests;
use super::manager::DeviceManager;
use super::state::State;
use crate::pods::{all_containers, spec, uid};
use crate::resource_managers::hints::{Hint, Hints, NodeMask, preferring};

impl DeviceManager {
    /// Possible places of a container's devices, on a machine with these NUMA nodes.
    pub(crate) fn container_hints(&self, pod: &Pod, container: &Container, nodes: &[u32]) -> Hints {
        let state = self.state.lock();
        let requested = requests(container).filter(|(resource, _)| state.has(resource));
        let hints = requested.map(|(resource, count)| {
            let own = state
                .allocations
                .devices_of(uid(pod), &container.name, resource)
                .unwrap_or_default();
            let reusable = state.allocations.reusable(pod, &container.name, resource);
            let reusable = reusable.iter().map(String::as_str).collect();
            (
                resource.to_owned(),
                state.hints(resource, count, &own, &reusable, nodes),
            )
        });
        hints.collect()
    }

    /// Possible places of all devices of a pod.
    pub(crate) fn pod_hints(&self, pod: &Pod, nodes: &[u32]) -> Hints {
        let state = self.state.lock();
        let limits = pod_limits(spec(pod));
        let all = all_containers(pod).flat_map(|(_, container)| requests(container));
        let names: BTreeSet<&str> = all.map(|(resource, _)| resource).collect();
        let requested = names.into_iter().filter(|resource| state.has(resource));
        let hints = requested.map(|resource| {
            let count = usize::try_from(limits.get(resource).units()).unwrap_or(0);
            let own = all_containers(pod)
                .filter_map(|(_, own)| state.allocations.devices_of(uid(pod), &own.name, resource))
                .flatten()
                .collect();
            (
                resource.to_owned(),
                state.hints(resource, count, &own, &BTreeSet::new(), nodes),
            )
        });
        hints.collect()
    }
}

impl State {
    /// `None` where the devices of a resource have no places.
    fn hints(
        &self,
        resource: &str,
        count: usize,
        own: &BTreeSet<&str>,
        reusable: &BTreeSet<&str>,
        nodes: &[u32],
    ) -> Option<Vec<Hint>> {
        if !self.inventory.has_places(resource) {
            return None;
        }
        if !own.is_empty() {
            let is_as_before = own.len() == count;
            let found = is_as_before.then(|| self.places(resource, count, own, &BTreeSet::new(), nodes));
            return Some(found.unwrap_or_default());
        }
        let healthy = self.inventory.healthy(resource).unwrap_or_default();
        let allocated = self.allocations.allocated(resource);
        let available: BTreeSet<&str> = healthy.difference(&allocated).copied().collect();
        let is_enough = available.union(reusable).count() >= count;
        let found = is_enough.then(|| self.places(resource, count, &available, reusable, nodes));
        Some(found.unwrap_or_default())
    }

    /// Sets of NUMA nodes that have so many devices: all that may be reused, and enough of the available ones.
    fn places(
        &self,
        resource: &str,
        count: usize,
        available: &BTreeSet<&str>,
        reusable: &BTreeSet<&str>,
        nodes: &[u32],
    ) -> Vec<Hint> {
        let all = self.inventory.places(resource);
        let mask = |id: &&str| self.inventory.device(resource, id).map(|device| device.mask());
        let (available, reusable): (Vec<NodeMask>, Vec<NodeMask>) = (
            available.iter().filter_map(mask).collect(),
            reusable
                .iter()
                .filter_map(mask)
                .filter(|own| own.count() > 0)
                .collect(),
        );
        let in_mask =
            |of: &[NodeMask], mask: NodeMask| of.iter().filter(|own| own.and(mask).count() > 0).count();
        let used = nodes
            .iter()
            .copied()
            .filter(|node| all.iter().any(|own| own.contains(*node)));
        let used: Vec<u32> = used.collect();
        let used = if used.is_empty() { nodes } else { &used };
        let mut fewest = used.len();
        let mut masks = Vec::new();
        for mask in NodeMask::all_of(used) {
            if in_mask(&all, mask) >= count {
                fewest = fewest.min(mask.count());
            }
            let has_reused = in_mask(&reusable, mask) == reusable.len();
            if has_reused && reusable.len() + in_mask(&available, mask) >= count {
                masks.push(mask);
            }
        }
        preferring(masks, fewest)
    }
}
