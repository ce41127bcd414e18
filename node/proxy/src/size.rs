//! Number of elements of a service, known before they are made: how it is cut down to the room there is.

use crate::slots::{slot_counts, slots_for};

/// Counts that the number of elements depends on.
#[derive(Debug)]
pub(crate) struct Size {
    /// Frontends of a port, those with two scopes twice.
    pub(crate) scopes: usize,
    /// Elements of a port for the sources that may come to it.
    pub(crate) of_sources: usize,
    /// Clients stay with their endpoint.
    pub(crate) affine: bool,
    /// Frontends of the whole service, by which slots are counted.
    pub(crate) frontends: usize,
    /// Endpoints of the whole service.
    pub(crate) endpoints: usize,
    /// Number of targets of each port.
    pub(crate) targets: Vec<usize>,
}

/// Elements of a service that fit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    /// Its first ports.
    pub(crate) ports: usize,
    /// Most slots of a frontend.
    pub(crate) slots: u16,
}

impl Size {
    /// Number of elements with room enough. At least: some are counted twice that two ports share.
    pub(crate) fn whole(&self) -> usize {
        self.of_ports(self.targets.len(), u16::MAX)
    }

    /// The sizes that fit. Fewer slots for all come before fewer ports.
    pub(crate) fn fit(&self, room: usize) -> Fit {
        let ports = self.targets.len();
        if self.whole() <= room {
            let slots = u16::MAX;
            return Fit { ports, slots };
        }
        let counts: Vec<u16> = slot_counts().collect();
        let fits = |slots: &&u16| self.of_ports(ports, **slots) <= room;
        if let Some(slots) = counts.iter().rev().find(fits) {
            let slots = *slots;
            return Fit { ports, slots };
        }
        // What `of_ports` counts grows with each port.
        let numbers: Vec<usize> = (0..=ports).collect();
        let fitting = numbers.partition_point(|ports| self.of_ports(*ports, 1) <= room);
        let ports = fitting.saturating_sub(1);
        Fit { ports, slots: 1 }
    }

    /// Number of elements of the first ports.
    fn of_ports(&self, ports: usize, most_slots: u16) -> usize {
        let (mut elements, mut reached) = (1_usize, 0_usize);
        for targets in &self.targets[..ports] {
            let slots = usize::from(slots_for(*targets, self.frontends).min(most_slots));
            let own = slots.min(*targets);
            let sticky = if self.affine { 1 + own } else { 0 };
            elements += self.of_sources + self.scopes * (3 + slots + sticky);
            reached += self.scopes * own;
        }
        // An element for each address that is reached.
        elements + reached.min(self.endpoints)
    }
}
