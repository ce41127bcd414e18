//! Connections without an end of their own: UDP flows that still go where a service no longer leads.
//!
//! The kernel remembers where it sent a flow's first packet. When that endpoint is gone, or when a service that
//! refused now has endpoints, the memory has to go, or the client talks to nobody for as long as it keeps trying.

use crate::elements::{Key, Value, Wanted};
use crate::model::Protocol;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Flows to forget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stale {
    /// Where the client sends to; `None` for node ports, which are every address of the node.
    pub destination: Option<Ipv4Addr>,
    pub port: u16,
    /// Where the flows were sent; `None` for flows that were sent nowhere.
    pub target: Option<Ipv4Addr>,
}

/// What a service's change makes stale.
pub fn stale(before: &Wanted, after: &Wanted) -> BTreeSet<Stale> {
    let (old, new) = (flows(before), flows(after));
    let mut stale: BTreeSet<Stale> = old.difference(&new).copied().collect();
    for one in &new {
        let nowhere = Stale { target: None, ..*one };
        let had_endpoints = old
            .iter()
            .any(|own| (own.destination, own.port) == (one.destination, one.port));
        if !had_endpoints {
            stale.insert(nowhere);
        }
    }
    stale
}

fn flows(wanted: &Wanted) -> BTreeSet<Stale> {
    let flow = |(key, value): (&Key, &Value)| {
        let Value::Target(target, _) = value else {
            return None;
        };
        match key {
            Key::Endpoint(address, Protocol::Udp, port, _) => Some(Stale {
                destination: Some(*address),
                port: *port,
                target: Some(*target),
            }),
            Key::NodePortEndpoint(Protocol::Udp, port, _) => Some(Stale {
                destination: None,
                port: *port,
                target: Some(*target),
            }),
            _ => None,
        }
    };
    wanted.iter().filter_map(flow).collect()
}

impl Stale {
    /// Arguments for the `conntrack` program.
    pub fn arguments(&self) -> Vec<String> {
        let mut all: Vec<String> = ["-D", "-f", "ipv4", "-p", "udp"].map(str::to_owned).to_vec();
        if let Some(destination) = self.destination {
            all.extend(["--orig-dst".to_owned(), destination.to_string()]);
        }
        all.extend(["--orig-port-dst".to_owned(), self.port.to_string()]);
        if let Some(target) = self.target {
            all.extend(["--dst-nat".to_owned(), target.to_string()]);
        }
        all
    }
}
