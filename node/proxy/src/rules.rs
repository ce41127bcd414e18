//! From a service and its endpoints to the elements it wants.

use crate::affinity::step;
use crate::choice::{Choice, Endpoints, Target, choose};
use crate::elements::{Frontend, Key, Scope, Summary, Value, Wanted};
use crate::size::{Fit, Size};
use crate::slots::{MAX_OF_SERVICE, assign, slots_for};
use ipnet::Ipv4Net;
use machinery_views::{Policy, Service, ServicePort, Slice};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Frontends that a service has on a node; ports beyond them are not served.
const MAX_FRONTENDS: usize = 4_096;

/// Facts about the node that rules depend on.
#[derive(Debug, Clone, Copy)]
pub struct NodeFacts<'a> {
    pub node: &'a str,
    pub node_ip: Option<Ipv4Addr>,
}

/// Elements of a service.
#[derive(Debug, Default)]
pub struct Planned {
    pub elements: Wanted,
    /// Number of elements with room enough: as many as there are, or more.
    pub needs: usize,
}

/// The elements of a service on this node. Slots stay with the endpoints that had them in `before`, the service's elements so far.
pub fn wanted<'a>(
    service: &Service,
    slices: impl Iterator<Item = &'a Slice>,
    here: NodeFacts<'_>,
    before: &Wanted,
) -> Wanted {
    planned(service, slices, here, before, usize::MAX).elements
}

/// The same where there is room for so many. Where they are more, frontends have fewer slots; where one for each is too
/// much, the last ports have none. The address itself is there in any case.
pub fn planned<'a>(
    service: &Service,
    slices: impl Iterator<Item = &'a Slice>,
    here: NodeFacts<'_>,
    before: &Wanted,
    room: usize,
) -> Planned {
    let Some(cluster_ip) = service.cluster_ip else {
        return Planned::default();
    };
    let endpoints = Endpoints::of(slices);
    let served = MAX_FRONTENDS / of_each_port(service);
    let ports = service.ports.iter().take(served.max(1));
    let ports: Vec<(&ServicePort, Choice)> = ports
        .map(|port| (port, choose(&endpoints, &port.name, here.node)))
        .collect();
    let mut rules = Rules {
        service,
        before,
        frontends: frontends(service),
        most_slots: u16::MAX,
        cut: false,
        sources: sources(service, here.node_ip),
        wanted: Wanted::new(),
    };
    let size = rules.size(&ports, endpoints.count());
    let Fit {
        ports: fitting,
        slots,
    } = size.fit(room);
    (rules.most_slots, rules.cut) = (slots, fitting < ports.len());
    rules.add(Key::ClusterIp(cluster_ip));
    for (port, choice) in &ports[..fitting] {
        rules.port(cluster_ip, port, choice);
    }
    let elements = rules.wanted;
    let needs = if rules.cut {
        size.whole().max(elements.len() + 1)
    } else {
        elements.len()
    };
    Planned { elements, needs }
}

/// Frontends that each port of a service has, at most.
fn of_each_port(service: &Service) -> usize {
    let node_port = usize::from(service.ports.iter().any(|port| port.node_port != 0));
    let external = node_port + service.external_ips.len() + service.balancer_ips.len();
    match service.external {
        Policy::Cluster => 1 + external,
        Policy::Local => 1 + external * 2,
    }
}

/// Frontends of a service; their two scopes count as two.
fn frontends(service: &Service) -> usize {
    let all = service.ports.len().saturating_mul(of_each_port(service));
    all.min(MAX_FRONTENDS)
}

struct Rules<'a> {
    service: &'a Service,
    before: &'a Wanted,
    /// Frontends of the service; see [`frontends`].
    frontends: usize,
    /// Slots that a frontend has at most.
    most_slots: u16,
    /// Something was left out for want of room.
    cut: bool,
    /// Sources that may use the balancer's addresses, where not all may.
    sources: Vec<Ipv4Net>,
    wanted: Wanted,
}

impl Rules<'_> {
    /// The number of elements with these ports, of so many endpoints in all.
    fn size(&self, ports: &[(&ServicePort, Choice)], endpoints: usize) -> Size {
        let balancers = self.service.balancer_ips.len().min(MAX_FRONTENDS);
        let of_sources = match self.sources.len().min(self.most_sources()) {
            0 => 0,
            sources => balancers * (1 + sources),
        };
        Size {
            scopes: of_each_port(self.service),
            of_sources,
            affine: self.service.affinity_seconds.is_some(),
            frontends: self.frontends,
            endpoints,
            targets: ports.iter().map(|(_, choice)| choice.most()).collect(),
        }
    }

    fn port(&mut self, cluster_ip: Ipv4Addr, port: &ServicePort, choice: &Choice) {
        self.internal(Frontend::Address(cluster_ip, port.protocol, port.port), choice);
        let service = self.service;
        let external = service.external_ips.iter().chain(&service.balancer_ips);
        for external in external.take(MAX_FRONTENDS) {
            self.external(Frontend::Address(*external, port.protocol, port.port), choice);
        }
        if port.node_port != 0 {
            self.external(Frontend::NodePort(port.protocol, port.node_port), choice);
        }
        self.source_ranges(port);
    }

    fn add(&mut self, key: Key) {
        self.wanted.insert(key, Value::Nothing);
    }

    fn internal(&mut self, frontend: Frontend, choice: &Choice) {
        match self.service.internal {
            Policy::Cluster => self.everywhere(frontend, choice, true),
            // Such traffic stays here whatever its source, and has nowhere else to come back from.
            Policy::Local => self.only(frontend, &choice.local, &choice.cluster, false),
        }
    }

    /// With policy `Local`, pods and the node itself still reach every endpoint, as if their traffic had gone out to a
    /// balancer and come back to the right node.
    fn external(&mut self, frontend: Frontend, choice: &Choice) {
        if self.service.external == Policy::Cluster {
            return self.everywhere(frontend, choice, true);
        }
        if choice.cluster.is_empty() && choice.local.is_empty() {
            return self.everywhere(frontend, choice, false);
        }
        self.add(Key::Local(frontend));
        if !choice.cluster.is_empty() {
            self.spread(frontend, Scope::Cluster, &choice.cluster);
        }
        if choice.local.is_empty() {
            self.wanted.insert(Key::Refused(frontend), Value::Drop);
        } else {
            self.spread(frontend, Scope::Local, &choice.local);
        }
    }

    fn everywhere(&mut self, frontend: Frontend, choice: &Choice, masquerade: bool) {
        self.only(frontend, &choice.cluster, &choice.cluster, masquerade);
    }

    /// A service that has endpoints, but none here where it wants local ones, is dropped in silence: a balancer in
    /// front then tries another node. One without any endpoint refuses.
    fn only(&mut self, frontend: Frontend, targets: &[Target], all: &[Target], masquerade: bool) {
        if targets.is_empty() {
            let value = if all.is_empty() {
                Value::Reject
            } else {
                Value::Drop
            };
            self.wanted.insert(Key::Refused(frontend), value);
            return;
        }
        self.spread(frontend, Scope::Cluster, targets);
        if masquerade {
            self.add(Key::Masquerade(frontend));
        }
    }

    fn spread(&mut self, frontend: Frontend, scope: Scope, targets: &[Target]) {
        let slot = |slot| Key::Endpoint(frontend, scope, slot);
        let had = self.before.range(slot(0)..=slot(u16::MAX));
        let had = had.filter_map(|(key, value)| match (key, value) {
            (Key::Endpoint(.., slot), Value::Target(address, port)) => Some((*slot, (*address, *port))),
            _ => None,
        });
        let had: BTreeMap<u16, Target> = had.collect();
        let slots = slots_for(targets.len(), self.frontends);
        self.cut |= slots > self.most_slots;
        let assigned = assign(&had, targets, slots.min(self.most_slots));
        let slots = u16::try_from(assigned.len()).unwrap_or(u16::MAX);
        self.wanted
            .insert(Key::Service(frontend, scope), Value::Spread { slots });
        self.add(Key::Summary(match frontend {
            Frontend::Address(address, ..) => Summary::Address(address),
            Frontend::NodePort(protocol, port) => Summary::NodePort(protocol, port),
        }));
        let reached: BTreeSet<Target> = assigned.iter().copied().collect();
        for (address, _) in &reached {
            self.add(Key::Hairpin(*address));
        }
        for (slot, (address, port)) in (0..slots).zip(assigned) {
            self.wanted
                .insert(Key::Endpoint(frontend, scope, slot), Value::Target(address, port));
        }
        if let Some(seconds) = self.service.affinity_seconds {
            self.add(Key::Affine(frontend));
            for target in reached {
                let value = Value::Seconds(step(seconds));
                self.wanted.insert(Key::Sticky(frontend, target), value);
            }
        }
    }

    fn source_ranges(&mut self, port: &ServicePort) {
        if self.sources.is_empty() {
            return;
        }
        let most = self.most_sources();
        for address in self.service.balancer_ips.iter().take(MAX_FRONTENDS) {
            self.add(Key::Restricted(*address, port.protocol, port.port));
            for at in 0..self.sources.len().min(most) {
                self.add(Key::Allowed(*address, port.protocol, port.port, self.sources[at]));
            }
        }
    }

    /// Sources of one frontend; those that are left out may not come: no source is let in that should not be.
    fn most_sources(&self) -> usize {
        MAX_OF_SERVICE / self.frontends.max(1)
    }
}

/// Source ranges, as upstream's, for the balancer's addresses alone. A balancer's address may be one of the node itself; then its own
/// traffic has that source. None where all may come.
fn sources(service: &Service, node_ip: Option<Ipv4Addr>) -> Vec<Ipv4Net> {
    let mut ranges = service.source_ranges.clone();
    if node_ip.is_some_and(|own| ranges.iter().any(|range| range.contains(&own))) {
        ranges.extend(service.balancer_ips.iter().map(|own| Ipv4Net::from(*own)));
    }
    Ipv4Net::aggregate(&ranges)
}
