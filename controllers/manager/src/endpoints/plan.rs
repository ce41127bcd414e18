//! From pods to subsets, in upstream's canonical form. Pure.

use crate::endpoint_shares::{ENDPOINT, port_units};
use crate::views::{PodView, ServiceView};
use machinery_client::Object;
use machinery_semantics::endpoints::{PodFacts, counts_as_endpoint, is_endpoint_address, resolve_port};
use machinery_semantics::shares::Part;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Addresses beyond this are left out, and an annotation says so.
const MAX_ADDRESSES: usize = 1_000;
/// Ports of all subsets, as of a service's slices: pods that have other numbers for one name make a subset each, with all ports of the
/// service. Long names count as several.
const MAX_PORTS: usize = 16_384;

/// Addresses that share their ports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Subset {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) addresses: Vec<Address>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) not_ready_addresses: Vec<Address>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) ports: Vec<Port>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Address {
    pub(super) ip: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hostname: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target_ref: Option<TargetRef>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct TargetRef {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Port {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    name: String,
    port: i32,
    #[serde(default)]
    protocol: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    app_protocol: Option<String>,
}

/// Subsets of a service.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) subsets: Vec<Subset>,
    /// Some addresses had no room.
    pub(super) truncated: bool,
    /// Units of the namespace's share.
    pub(super) part: Part,
}

/// Units that an object takes of its namespace's share.
pub(super) fn object_units(subsets: &[Subset]) -> usize {
    let of = |subset: &Subset| {
        let addresses = subset.addresses.len() + subset.not_ready_addresses.len();
        ENDPOINT * addresses + units_of(&subset.ports)
    };
    subsets.iter().map(of).sum()
}

fn units_of(ports: &[Port]) -> usize {
    let names = |port: &Port| port.name.len() + port.app_protocol.as_ref().map_or(0, String::len);
    ports.iter().map(|port| port_units(names(port))).sum()
}

/// Room of a service and of its namespace.
struct Room {
    /// Units of the service's own ports.
    ports: usize,
    namespace: usize,
    known: HashSet<Vec<Port>>,
    part: Part,
}

impl Room {
    /// Takes the room of an address, and of its ports where no other has the same.
    fn take(&mut self, ports: &[Port]) -> bool {
        let is_known = self.known.contains(ports);
        let of_ports = if is_known { 0 } else { units_of(ports) };
        let Some(left) = self.ports.checked_sub(of_ports) else {
            return false;
        };
        let units = ENDPOINT + of_ports;
        self.part.needs += units;
        if self.part.has + units > self.namespace {
            return false;
        }
        self.part.has += units;
        self.ports = left;
        if !is_known {
            self.known.insert(ports.to_vec());
        }
        true
    }
}

/// The subsets of a service with so many units of its namespace's share. Endpoints know no terminating addresses.
pub(super) fn subsets(service: &Object<ServiceView>, pods: &[Arc<Object<PodView>>], room: usize) -> Planned {
    // Addresses by their ports, so that equal port lists share a subset.
    let mut by_address: BTreeMap<(Address, bool), Vec<Port>> = BTreeMap::new();
    let mut truncated = false;
    let service_ports = service.ports.items();
    let mut room = Room {
        ports: port_units(0) * MAX_PORTS,
        namespace: room,
        known: HashSet::new(),
        part: Part::default(),
    };
    let selected = pods.iter().filter(|pod| service.selects(&pod.header));
    let addressed = selected.filter_map(|pod| Some((address(service, pod)?, pod)));
    let with_state = addressed.map(|(address, pod)| (pod.ready || service.publish_not_ready, address, pod));
    // Ready ones have room first, as of upstream's `truncateEndpoints`; it cuts each subset in proportion, this the last pods.
    let (ready, not_ready): (Vec<_>, Vec<_>) = with_state.partition(|(ready, ..)| *ready);
    for (ready, address, pod) in ready.into_iter().chain(not_ready) {
        let ports: Vec<Port> = service_ports
            .iter()
            .filter_map(|port| resolve_port(port, &pod.ports))
            .map(port)
            .collect();
        if ports.is_empty() && !(service_ports.is_empty() && service.headless) {
            continue;
        }
        if by_address.len() >= MAX_ADDRESSES {
            truncated = true;
            break;
        }
        if !room.take(&ports) {
            truncated = true;
            continue;
        }
        by_address.entry((address, ready)).or_default().extend(ports);
    }
    Planned {
        subsets: canonical(by_address),
        truncated,
        part: room.part,
    }
}

fn canonical(by_address: BTreeMap<(Address, bool), Vec<Port>>) -> Vec<Subset> {
    let mut by_ports: BTreeMap<Vec<Port>, Subset> = BTreeMap::new();
    for ((address, ready), mut ports) in by_address {
        ports.sort();
        ports.dedup();
        let subset = by_ports.entry(ports.clone()).or_insert_with(|| Subset {
            ports,
            ..Subset::default()
        });
        if ready {
            subset.addresses.push(address)
        } else {
            subset.not_ready_addresses.push(address)
        }
    }
    by_ports.into_values().collect()
}

fn address(service: &Object<ServiceView>, pod: &Object<PodView>) -> Option<Address> {
    let phase = if pod.is_terminal() { "Failed" } else { "Running" };
    let six = service.ip_families.first().is_some_and(|family| family == "IPv6");
    let ip = pod
        .ips
        .iter()
        .find(|ip| ip.contains(':') == six && is_endpoint_address(ip))?;
    let facts = PodFacts {
        phase,
        ip,
        deleting: pod.header.is_deleting(),
    };
    if !counts_as_endpoint(facts, service.publish_not_ready) {
        return None;
    }
    let named = !pod.hostname.is_empty() && *pod.subdomain == *service.name();
    Some(Address {
        ip: ip.to_string(),
        hostname: named.then(|| pod.hostname.to_string()),
        node_name: (!pod.node.is_empty()).then(|| pod.node.to_string()),
        target_ref: Some(TargetRef {
            kind: "Pod".to_owned(),
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            uid: pod.uid().0.clone(),
        }),
    })
}

fn port(target: machinery_semantics::ServicePortTarget) -> Port {
    Port {
        name: target.name,
        port: target.port,
        protocol: target.protocol,
        app_protocol: target.app_protocol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_client::object::object_of;
    use serde_json::json;

    /// Each pod that has another number for a name has a subset of its own, with all ports of the service.
    #[test]
    fn ports_of_a_services_subsets_are_bounded() {
        let check = |protocol: &str, expected: usize| {
            let ports: Vec<_> = (0..1_000)
                .map(|number| json!({"name": format!("p{number}"), "port": number + 1, "targetPort": "p", "protocol": "TCP", "appProtocol": protocol}))
                .collect();
            let service = json!({"metadata": {"name": "web", "namespace": "n"}, "spec": {"selector": {"app": "web"}, "ports": ports}});
            let pods: Vec<_> = (1..=40).map(|number| {
                let ip = format!("10.0.0.{number}");
                let pod = json!({"metadata": {"name": ip, "namespace": "n", "uid": ip, "labels": {"app": "web"}},
                    "spec": {"nodeName": "node", "containers": [{"name": "c", "ports": [{"name": "p", "containerPort": number, "protocol": "TCP"}]}]},
                    "status": {"phase": "Running", "podIPs": [{"ip": ip}]}});
                Arc::new(object_of(&pod.to_string()).unwrap())
            }).collect();
            let service = object_of(&service.to_string()).unwrap();
            let planned = subsets(&service, &pods, usize::MAX);
            assert!(planned.truncated);
            assert_eq!(planned.subsets.len(), expected);
            assert_eq!(object_units(&planned.subsets), planned.part.has);
            // With room for one of its subsets.
            let few = subsets(&service, &pods, planned.part.has / expected);
            assert!(few.truncated && few.part.needs > few.part.has);
            assert_eq!(few.subsets.len(), 1);
        };
        check("http", 16);
        check(&"x".repeat(250), 2);
    }

    /// Upstream's `TestSyncEndpointsOverCapacity`: numbers of ready and not ready addresses, desired and there.
    #[test]
    fn endpoints_that_are_ready_have_room_first() {
        let service = json!({"metadata": {"name": "web", "namespace": "n"}, "spec": {"selector": {"app": "web"},
            "ports": [{"port": 80, "targetPort": 8080, "protocol": "TCP"}]}});
        let service = object_of::<ServiceView>(&service.to_string()).unwrap();
        let pod = |at: usize, ready: bool| {
            let name = format!("p{at:05}");
            let json = json!({"metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"app": "web"}},
                "spec": {"nodeName": "x"}, "status": {"phase": "Running", "podIP": format!("10.0.{}.{}", at / 250, at % 250 + 1),
                    "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]}});
            Arc::new(object_of::<PodView>(&json.to_string()).unwrap())
        };
        let check = |desired: (usize, usize), expected: (usize, usize), truncated: bool| {
            // Those that are not ready come first by their names.
            let pods: Vec<_> = (0..desired.0 + desired.1)
                .map(|at| pod(at, at >= desired.1))
                .collect();
            let planned = subsets(&service, &pods, usize::MAX);
            let own = &planned.subsets[0];
            assert_eq!(
                (own.addresses.len(), own.not_ready_addresses.len()),
                expected,
                "{desired:?}"
            );
            assert_eq!(planned.truncated, truncated, "{desired:?}");
        };
        check((997, 4), (997, 3), true);
        check((1_000, 10), (1_000, 0), true);
        check((999, 0), (999, 0), false);
        check((1_000, 0), (1_000, 0), false);
        check((1_001, 0), (1_000, 0), true);
        check((500, 500), (500, 500), false);
    }

    #[test]
    fn addresses_share_a_subset_by_their_ports() {
        let service = json!({"metadata": {"name": "web", "namespace": "n"}, "spec": {"selector": {"app": "web"},
            "ports": [{"port": 80, "targetPort": "http", "protocol": "TCP"}]}});
        let service = object_of::<ServiceView>(&service.to_string()).unwrap();
        let pod = |ip: &str, port: i32, ready: bool| {
            let json = json!({
                "metadata": {"name": ip, "namespace": "n", "labels": {"app": "web"}},
                "spec": {"nodeName": "x", "containers": [{"ports": [{"name": "http", "containerPort": port}]}]},
                "status": {"phase": "Running", "podIP": ip,
                    "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]}});
            Arc::new(object_of::<PodView>(&json.to_string()).unwrap())
        };
        let pods = [
            pod("10.0.0.2", 8080, true),
            pod("10.0.0.1", 8080, false),
            pod("10.0.0.3", 9090, true),
        ];
        let planned = subsets(&service, &pods, usize::MAX);
        assert!(!planned.truncated);
        let subsets = planned.subsets;
        assert_eq!(subsets.len(), 2);
        assert_eq!(subsets[0].addresses[0].ip, "10.0.0.2");
        assert_eq!(subsets[0].not_ready_addresses[0].ip, "10.0.0.1");
        assert_eq!(subsets[1].ports[0].port, 9090);
    }
}
