//! Endpoints of a service that receive traffic: upstream's `CategorizeEndpoints`.

use crate::model::{Endpoint, Slice};
use std::collections::BTreeSet;
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

/// Ready endpoints; where there are none, those that still serve while they terminate.
pub fn choose<'a>(slices: impl Iterator<Item = &'a Slice> + Clone, port_name: &str, node: &str) -> Choice {
    Choice {
        cluster: usable(slices.clone(), port_name, |_| true),
        local: usable(slices, port_name, |endpoint| {
            endpoint.node.as_deref() == Some(node)
        }),
    }
}

fn usable<'a>(
    slices: impl Iterator<Item = &'a Slice> + Clone,
    port_name: &str,
    counts: impl Fn(&Endpoint) -> bool,
) -> Vec<Target> {
    let having = |state: fn(&Endpoint) -> bool| {
        let mut targets = Vec::new();
        for slice in slices.clone() {
            let port = slice
                .ports
                .iter()
                .find(|port| &*port.name == port_name)
                .and_then(|port| port.port);
            let Some(port) = port else { continue };
            let matching = slice.endpoints.iter().filter(|one| counts(one) && state(one));
            targets.extend(matching.map(|one| (one.address, port)));
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
    let here = |one: &&Endpoint| one.ready && one.node.as_deref() == Some(node);
    let addresses = slices.flat_map(|slice| slice.endpoints.iter().filter(here));
    addresses.map(|one| one.address).collect::<BTreeSet<_>>().len()
}
