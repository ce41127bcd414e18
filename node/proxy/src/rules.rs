//! From a service and its endpoints to the elements it wants.

use crate::affinity::step;
use crate::choice::{Choice, Target, choose};
use crate::elements::{Frontend, Key, Scope, Summary, Value, Wanted};
use crate::model::{Policy, Service, ServicePort, Slice};
use crate::slots::assign;
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Facts about the node that rules depend on.
#[derive(Debug, Clone, Copy)]
pub struct NodeFacts<'a> {
    pub node: &'a str,
    pub node_ip: Option<Ipv4Addr>,
}

/// The elements of a service on this node. Slots stay with who had them in `before`, the service's elements so far.
pub fn wanted<'a>(
    service: &Service,
    slices: impl Iterator<Item = &'a Slice> + Clone,
    here: NodeFacts<'_>,
    before: &Wanted,
) -> Wanted {
    let mut rules = Rules {
        service,
        before,
        wanted: Wanted::new(),
    };
    let Some(cluster_ip) = service.cluster_ip else {
        return rules.wanted;
    };
    rules.add(Key::ClusterIp(cluster_ip));
    for port in &service.ports {
        let choice = choose(slices.clone(), &port.name, here.node);
        for (address, _) in choice.cluster.iter().chain(&choice.local) {
            rules.add(Key::Hairpin(*address));
        }
        rules.internal(Frontend::Address(cluster_ip, port.protocol, port.port), &choice);
        for external in service.external_ips.iter().chain(&service.balancer_ips) {
            rules.external(Frontend::Address(*external, port.protocol, port.port), &choice);
        }
        if port.node_port != 0 {
            rules.external(Frontend::NodePort(port.protocol, port.node_port), &choice);
        }
        rules.source_ranges(port, here.node_ip);
    }
    rules.wanted
}

struct Rules<'a> {
    service: &'a Service,
    before: &'a Wanted,
    wanted: Wanted,
}

impl Rules<'_> {
    fn add(&mut self, key: Key) {
        self.wanted.insert(key, Value::Nothing);
    }

    fn internal(&mut self, frontend: Frontend, choice: &Choice) {
        match self.service.internal {
            Policy::Cluster => self.everywhere(frontend, choice, true),
            // Such traffic stays here whoever sends it, and has nowhere else to come back from.
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
        let had = self.before.iter().filter_map(|(key, value)| match (key, value) {
            (Key::Endpoint(own, of, slot), Value::Target(address, port))
                if (*own, *of) == (frontend, scope) =>
            {
                Some((*slot, (*address, *port)))
            }
            _ => None,
        });
        let had: BTreeMap<u16, Target> = had.collect();
        let assigned = assign(&had, targets);
        let slots = u16::try_from(assigned.len()).unwrap_or(u16::MAX);
        self.wanted
            .insert(Key::Service(frontend, scope), Value::Spread { slots });
        self.add(Key::Summary(match frontend {
            Frontend::Address(address, ..) => Summary::Address(address),
            Frontend::NodePort(protocol, port) => Summary::NodePort(protocol, port),
        }));
        for (slot, (address, port)) in (0..slots).zip(assigned) {
            self.wanted
                .insert(Key::Endpoint(frontend, scope, slot), Value::Target(address, port));
        }
        if let Some(seconds) = self.service.affinity_seconds {
            self.add(Key::Affine(frontend));
            for target in targets {
                let value = Value::Seconds(step(seconds));
                self.wanted.insert(Key::Sticky(frontend, *target), value);
            }
        }
    }

    /// As upstream's: for the balancer's addresses alone. A balancer's address may be one of the node itself; then its
    /// own traffic has that source.
    fn source_ranges(&mut self, port: &ServicePort, node_ip: Option<Ipv4Addr>) {
        if self.service.source_ranges.is_empty() {
            return;
        }
        let from_node = node_ip.is_some_and(|own| {
            self.service
                .source_ranges
                .iter()
                .any(|range| range.contains(&own))
        });
        let mut ranges = self.service.source_ranges.clone();
        if from_node {
            ranges.extend(self.service.balancer_ips.iter().map(|own| Ipv4Net::from(*own)));
        }
        let ranges = Ipv4Net::aggregate(&ranges);
        for address in self.service.balancer_ips.clone() {
            self.add(Key::Restricted(address, port.protocol, port.port));
            for range in &ranges {
                self.add(Key::Allowed(address, port.protocol, port.port, *range));
            }
        }
    }
}
