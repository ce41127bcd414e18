//! UDP flows that no longer go where a host port leads. Pure.
//!
//! The kernel remembers where it sent a flow's first packet. A flow from before a pod had the port, and one to a pod that
//! has it no longer, has to be forgotten, or its client's packets go nowhere for as long as it keeps trying.

use super::ports::{Entries, PortKey, Protocol, Target};
use super::table::Change;
use ipnet::Ipv4Net;
use node_sys::conntrack::Flow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// UDP ports that changed, and where all lead now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flows {
    now: Entries,
    /// Earlier targets of each changed port.
    changed: BTreeMap<u16, BTreeSet<Target>>,
}

impl Flows {
    /// Flows that a change may have made stale; `now` is what it has led to.
    pub fn of(change: &Change, now: &Entries) -> Self {
        let is_udp = |key: &PortKey| key.protocol == Protocol::Udp;
        let mut changed: BTreeMap<u16, BTreeSet<Target>> = BTreeMap::new();
        for key in change.add.keys().filter(|key| is_udp(key)) {
            changed.entry(key.port).or_default();
        }
        for (key, target) in change.delete.iter().filter(|(key, _)| is_udp(key)) {
            changed.entry(key.port).or_default().insert(*target);
        }
        let now = now.iter().filter(|(key, _)| changed.contains_key(&key.port));
        Self {
            now: now.map(|(key, target)| (*key, *target)).collect(),
            changed,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }

    /// Reports whether the flow leads to a changed port of the node, whose addresses are `own`, and to a target that the port no longer has.
    pub fn is_stale(&self, flow: &Flow, own: &BTreeSet<Ipv4Addr>, reserved: &[Ipv4Net]) -> bool {
        let (address, port) = flow.destination;
        let Some(before) = self.changed.get(&port) else {
            return false;
        };
        let (answers, answering_port) = flow.answered_by;
        let answered_by = Target {
            address: answers,
            port: answering_port,
        };
        match self.target(address, port, own, reserved) {
            Some(target) => answered_by != target,
            None => before.contains(&answered_by),
        }
    }

    fn target(
        &self,
        address: Ipv4Addr,
        port: u16,
        own: &BTreeSet<Ipv4Addr>,
        reserved: &[Ipv4Net],
    ) -> Option<Target> {
        // Addresses of the loopback range are the node's without being listed.
        let is_own = address.is_loopback() || own.contains(&address);
        if !is_own || reserved.iter().any(|range| range.contains(&address)) {
            return None;
        }
        let at = |address| {
            self.now.get(&PortKey {
                protocol: Protocol::Udp,
                port,
                address,
            })
        };
        let other_loopback = address.is_loopback() && address != Ipv4Addr::LOCALHOST;
        at(Some(address))
            .or_else(|| at(None).filter(|_| !other_loopback))
            .copied()
    }
}
