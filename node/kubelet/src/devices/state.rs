//! Everything about devices that changes, under one lock.

use super::allocations::Allocations;
use super::checkpoint::Data;
use super::inventory::Inventory;

/// Everything that changes.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) inventory: Inventory,
    pub(super) allocations: Allocations,
    /// Number of changes of what is saved.
    pub(super) generation: u64,
    /// No checkpoint was read, and the Node object has not been looked at.
    pub(super) is_unread: bool,
}

impl State {
    /// Reports whether a resource is of a plugin that is there, or of devices that pods have.
    pub(super) fn has(&self, resource: &str) -> bool {
        self.inventory.is_registered(resource) || self.allocations.has(resource)
    }

    /// Everything that outlives the agent.
    pub(super) fn data(&self) -> Data {
        Data::new(&self.inventory, &self.allocations)
    }

    /// A plugin has listed: remembers which containers' devices are there and healthy.
    pub(super) fn see(&mut self, resource: &str) {
        let healthy = self.inventory.healthy(resource).unwrap_or_default();
        self.allocations.see(resource, |device| healthy.contains(device));
    }
}
