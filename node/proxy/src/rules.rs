//! From a service and its endpoints to the elements it wants.

use crate::choice::{Choice, Target, choose};
use crate::elements::{Key, Value, Wanted};
use crate::model::{Policy, Protocol, Service, ServicePort, Slice};
use std::net::Ipv4Addr;

/// Up to this many endpoints have one slot each.
pub const MAX_EXACT: u16 = 16;
/// More endpoints share a fixed number of slots: at 17 endpoints the luckiest has a fifteenth more than the others,
/// at 64 none has. Beyond, the larger table.
const SHARED: [(usize, u16); 2] = [(64, 256), (usize::MAX, 4096)];

/// Every number of slots that a service can have.
pub fn slot_counts() -> impl Iterator<Item = u16> {
    (1..=MAX_EXACT).chain(SHARED.into_iter().map(|(_, slots)| slots))
}

fn slots_for(endpoints: usize) -> u16 {
    match u16::try_from(endpoints) {
        Ok(exact) if exact <= MAX_EXACT => exact,
        _ => SHARED
            .into_iter()
            .find(|(most, _)| endpoints <= *most)
            .map_or(MAX_EXACT, |(_, slots)| slots),
    }
}

/// The elements of a service on this node.
pub fn wanted<'a>(service: &Service, slices: impl Iterator<Item = &'a Slice> + Clone, node: &str) -> Wanted {
    let mut wanted = Wanted::new();
    let Some(cluster_ip) = service.cluster_ip else {
        return wanted;
    };
    wanted.insert(Key::ClusterIp(cluster_ip), Value::Nothing);
    for port in &service.ports {
        let choice = choose(slices.clone(), &port.name, node);
        for (address, _) in choice.cluster.iter().chain(&choice.local) {
            wanted.insert(Key::Hairpin(*address), Value::Nothing);
        }
        frontend(
            &mut wanted,
            Frontend::Address(cluster_ip),
            service,
            port,
            &choice,
            service.internal,
        );
        for external in &service.external_ips {
            frontend(
                &mut wanted,
                Frontend::Address(*external),
                service,
                port,
                &choice,
                service.external,
            );
        }
        if port.node_port != 0 {
            frontend(
                &mut wanted,
                Frontend::NodePort,
                service,
                port,
                &choice,
                service.external,
            );
        }
    }
    wanted
}

/// Where clients knock.
#[derive(Debug, Clone, Copy)]
enum Frontend {
    Address(Ipv4Addr),
    NodePort,
}

impl Frontend {
    fn entry(self, protocol: Protocol, port: &ServicePort) -> Key {
        match self {
            Self::Address(address) => Key::Service(address, protocol, port.port),
            Self::NodePort => Key::NodePort(protocol, port.node_port),
        }
    }

    fn summary(self, protocol: Protocol, port: &ServicePort) -> Key {
        match self {
            Self::Address(address) => Key::Frontend(address),
            Self::NodePort => Key::NodePortFrontend(protocol, port.node_port),
        }
    }

    fn slot(self, protocol: Protocol, port: &ServicePort, slot: u16) -> Key {
        match self {
            Self::Address(address) => Key::Endpoint(address, protocol, port.port, slot),
            Self::NodePort => Key::NodePortEndpoint(protocol, port.node_port, slot),
        }
    }

    fn masquerade(self, protocol: Protocol, port: &ServicePort) -> Key {
        match self {
            Self::Address(address) => Key::Masquerade(address, protocol, port.port),
            Self::NodePort => Key::NodePortMasquerade(protocol, port.node_port),
        }
    }

    fn refused(self, protocol: Protocol, port: &ServicePort) -> Key {
        match self {
            Self::Address(address) => Key::Refused(address, protocol, port.port),
            Self::NodePort => Key::NodePortRefused(protocol, port.node_port),
        }
    }
}

/// A service that has endpoints, but none here where it wants local ones, is dropped in silence: a balancer in
/// front then tries another node. One without any endpoint refuses.
fn frontend(
    wanted: &mut Wanted,
    frontend: Frontend,
    service: &Service,
    port: &ServicePort,
    choice: &Choice,
    policy: Policy,
) {
    let protocol = port.protocol;
    let targets: &[Target] = if policy == Policy::Local {
        &choice.local
    } else {
        &choice.cluster
    };
    if targets.is_empty() {
        let value = if choice.cluster.is_empty() {
            Value::Reject
        } else {
            Value::Drop
        };
        wanted.insert(frontend.refused(protocol, port), value);
        return;
    }
    let slots = slots_for(targets.len());
    let spread = Value::Spread {
        slots,
        by_client: service.client_affinity,
    };
    wanted.insert(frontend.entry(protocol, port), spread);
    wanted.insert(frontend.summary(protocol, port), Value::Nothing);
    for (slot, (address, number)) in (0..slots).zip(targets.iter().cycle()) {
        wanted.insert(
            frontend.slot(protocol, port, slot),
            Value::Target(*address, *number),
        );
    }
    if policy == Policy::Cluster {
        wanted.insert(frontend.masquerade(protocol, port), Value::Nothing);
    }
}
