//! Endpoints of a service that receive traffic: upstream's `CategorizeEndpoints`.

use machinery_views::{Endpoint, Slice};
use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;

/// Target of a connection.
pub type Target = (Ipv4Addr, u16);

/// Endpoints of one service port, sorted and without doubles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// For traffic that may go to any node.
    pub cluster: Vec<Target>,
    /// For traffic that must stay on this node.
    pub local: Vec<Target>,
}

impl Choice {
    /// Number of targets of the larger of both.
    pub fn most(&self) -> usize {
        self.cluster.len().max(self.local.len())
    }
}

/// Slices of a service, with what finds a port of each by its name.
#[derive(Debug)]
pub struct Endpoints<'a>(Vec<(HashMap<&'a str, u16>, &'a Slice)>);

impl<'a> Endpoints<'a> {
    /// Endpoints of these slices. Where two ports of one have the same name the first counts.
    pub fn of(slices: impl Iterator<Item = &'a Slice>) -> Self {
        let with_ports = |slice: &'a Slice| {
            let named = slice.ports.iter().rev();
            let named = named.filter_map(|port| Some((&*port.name, port.port?)));
            (named.collect(), slice)
        };
        Self(slices.map(with_ports).collect())
    }

    /// Number of endpoints, whatever their state.
    pub fn count(&self) -> usize {
        self.0.iter().map(|(_, slice)| slice.endpoints.len()).sum()
    }

    /// Every target of a port that still serves; traffic policies do not count, as upstream's.
    pub fn serving(&self, port_name: &str) -> BTreeSet<Target> {
        let mut targets = BTreeSet::new();
        for (ports, slice) in &self.0 {
            let Some(port) = ports.get(port_name) else {
                continue;
            };
            let serving = slice.endpoints.iter().filter(|one| one.ready || one.serving);
            targets.extend(serving.filter_map(|one| Some((one.ipv4()?, *port))));
        }
        targets
    }
}

/// Ready endpoints; where there are none, those that still serve while they terminate.
pub fn choose(endpoints: &Endpoints<'_>, port_name: &str, node: &str) -> Choice {
    Choice {
        cluster: usable(endpoints, port_name, |_| true),
        local: usable(endpoints, port_name, |endpoint| endpoint.node() == Some(node)),
    }
}

fn usable(endpoints: &Endpoints<'_>, port_name: &str, counts: impl Fn(&Endpoint) -> bool) -> Vec<Target> {
    let having = |state: fn(&Endpoint) -> bool| {
        let mut targets = Vec::new();
        for (ports, slice) in &endpoints.0 {
            let Some(port) = ports.get(port_name) else {
                continue;
            };
            let matching = slice.endpoints.iter().filter(|one| counts(one) && state(one));
            targets.extend(matching.filter_map(|one| Some((one.ipv4()?, *port))));
        }
        targets.sort_unstable();
        targets.dedup();
        targets
    };
    let ready = having(|one| one.ready);
    if ready.is_empty() {
        having(|one| one.serving && one.terminating)
    } else {
        ready
    }
}

/// Number of ready endpoints of this node, whatever their ports, as reported to load balancers.
pub fn ready_here<'a>(slices: impl Iterator<Item = &'a Slice>, node: &str) -> usize {
    let here = |one: &&Endpoint| one.ready && one.node() == Some(node);
    let addresses = slices.flat_map(|slice| slice.endpoints.iter().filter(here));
    addresses.map(|one| one.address).collect::<BTreeSet<_>>().len()
}
