//! Everything about devices that changes, under one lock.

use std::io;
use std::path::Path;

use super::allocations::Allocations;
use super::checkpoint::{Data, FILE};
use super::inventory::Inventory;
use crate::saving::Checkpointed;

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

    /// A plugin has listed: remembers which containers' devices are there and healthy.
    pub(super) fn see(&mut self, resource: &str) {
        let healthy = self.inventory.healthy(resource).unwrap_or_default();
        self.allocations.see(resource, |device| healthy.contains(device));
    }
}

impl Checkpointed for State {
    type Data = Data;

    const FILE: &'static str = FILE;

    fn generation(&self) -> u64 {
        self.generation
    }

    fn data(&self) -> Data {
        Data::new(&self.inventory, &self.allocations)
    }

    fn store(data: Data, folder: &Path) -> io::Result<()> {
        data.store(folder)
    }
}
