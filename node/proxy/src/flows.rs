//! Connections without an end of their own: UDP flows that still go where a service no longer leads.
//!
//! The kernel remembers where it sent a flow's first packet. When that endpoint is gone, or when a service that
//! refused now has endpoints, the memory has to go, or the client's packets go nowhere for as long as it keeps trying.
//! Every other flow stays, whatever else changes: endpoints that terminate or are on other nodes still count.

use crate::choice::{Endpoints, Target};
use crate::slots::MAX_OF_SERVICE;
use machinery_views::{Protocol, Service, Slice};
use node_sys::conntrack::Flow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Allowed targets of the UDP flows of frontends. Flows of other frontends are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flows {
    addresses: BTreeMap<(Ipv4Addr, u16), BTreeSet<Target>>,
    node_ports: BTreeMap<u16, BTreeSet<Target>>,
}

/// Targets of a service that are looked at even if it has next to no elements: those that end are in none.
const ALWAYS: usize = 256;

impl Flows {
    /// Flows of one service: of as many of its ports as [`MAX_OF_SERVICE`] targets allow, and about as many as it has
    /// elements. Flows of other ports end by themselves.
    pub fn of<'a>(service: &Service, slices: impl Iterator<Item = &'a Slice>, elements: usize) -> Self {
        let mut flows = Self::default();
        let Some(cluster_ip) = service.cluster_ip else {
            return flows;
        };
        let udp = service.ports.iter().filter(|port| port.protocol == Protocol::Udp);
        let mut udp = udp.peekable();
        if udp.peek().is_none() {
            return flows;
        }
        let endpoints = Endpoints::of(slices);
        let frontends = service.proxied_addresses(cluster_ip).count() + 1;
        let mut room = MAX_OF_SERVICE.min(elements.saturating_mul(4) + ALWAYS);
        for port in udp {
            let targets = endpoints.serving(&port.name);
            let Some(left) = room.checked_sub((targets.len() + 1).saturating_mul(frontends)) else {
                break;
            };
            room = left;
            for address in service.proxied_addresses(cluster_ip) {
                flows.addresses.insert((address, port.port), targets.clone());
            }
            if port.node_port != 0 {
                flows.node_ports.insert(port.node_port, targets);
            }
        }
        flows
    }

    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.node_ports.is_empty()
    }

    /// Frontends of `after` whose flows may have to go: an endpoint is gone, or the first one came. Frontends that
    /// are gone lead nowhere.
    pub fn changed(before: &Self, after: &Self) -> Self {
        Self {
            addresses: changed(&before.addresses, &after.addresses),
            node_ports: changed(&before.node_ports, &after.node_ports),
        }
    }

    pub fn append(&mut self, mut other: Self) {
        self.addresses.append(&mut other.addresses);
        self.node_ports.append(&mut other.node_ports);
    }

    /// Reports whether the flow is of these frontends and has a target that is not allowed. A port of the node is one of its own addresses:
    /// what others do with that number elsewhere is theirs.
    pub fn is_stale(&self, flow: &Flow, own: &BTreeSet<Ipv4Addr>) -> bool {
        let (address, port) = flow.destination;
        if let Some(targets) = self.addresses.get(&(address, port)) {
            return !targets.contains(&flow.answered_by);
        }
        let targets = self.node_ports.get(&port).filter(|_| own.contains(&address));
        // Without an endpoint the port may be a program's on the node.
        targets.is_some_and(|targets| !targets.is_empty() && !targets.contains(&flow.answered_by))
    }
}

fn changed<K: Ord + Copy>(
    before: &BTreeMap<K, BTreeSet<Target>>,
    after: &BTreeMap<K, BTreeSet<Target>>,
) -> BTreeMap<K, BTreeSet<Target>> {
    let none = BTreeSet::new();
    let now = |key: &K| after.get(key).unwrap_or(&none);
    let mut out: BTreeMap<K, BTreeSet<Target>> = before
        .iter()
        .filter(|(key, old)| !old.is_subset(now(key)))
        .map(|(key, _)| (*key, now(key).clone()))
        .collect();
    let began = after
        .iter()
        .filter(|(key, new)| !new.is_empty() && before.get(key).is_none_or(BTreeSet::is_empty));
    out.extend(began.map(|(key, new)| (*key, new.clone())));
    out
}
