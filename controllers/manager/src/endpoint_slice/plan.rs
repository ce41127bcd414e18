//! From pods to endpoints, and from endpoints to the fewest changes of slices. Pure.

use super::view::{Conditions, Endpoint, Identity, Port, Protocol, SliceView, TargetRef};
use super::{CONTROLLER, HEADLESS, MANAGED_BY, MAX_ENDPOINTS, SERVICE_NAME};
use crate::endpoint_shares::{ENDPOINT, port_units};
use crate::views::{PodView, ServiceView};
use machinery_client::Object;
use machinery_semantics::endpoints::{
    EndpointState, PodFacts, counts_as_endpoint, is_endpoint_address, resolve_port,
};
use machinery_semantics::shares::Part;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

pub(super) type SliceRef = Arc<Object<SliceView>>;
/// Endpoints that may share a slice: one family, one set of ports.
type Group = (String, Vec<Port>);

/// Changes to carry out.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Vec<(String, Vec<Port>, Vec<Endpoint>)>,
    pub(super) update: Vec<(SliceRef, Vec<Endpoint>)>,
    pub(super) delete: Vec<SliceRef>,
    /// Endpoints that no slice has yet.
    pub(super) added: usize,
    /// Endpoints of slices that are to go.
    pub(super) removed: usize,
    /// Pods that are no endpoints, as the ports of their group have no room.
    pub(super) left_out: usize,
    /// Units of the namespace's share.
    pub(super) part: Part,
}

/// Endpoints that a service should have.
#[derive(Debug, Default)]
pub(super) struct Desired {
    pub(super) groups: BTreeMap<Group, Vec<Endpoint>>,
    /// Pods whose ports would be too many for the service.
    pub(super) left_out: usize,
    /// Units of the namespace's share; pods beyond it are no endpoints.
    pub(super) part: Part,
}

/// Bytes of a service's labels that its slices have: each slice is written anew with each change of them, and sent to every node.
const MAX_LABEL_BYTES: usize = 64 << 10;

/// The labels that a service has itself, as far as they have room.
pub(crate) fn own_labels(service: &Object<ServiceView>) -> BTreeMap<&str, &str> {
    let mut room = MAX_LABEL_BYTES;
    let has_room = |(key, value): &(&str, &str)| {
        let left = room.checked_sub(key.len() + value.len());
        room = left.unwrap_or_default();
        left.is_some()
    };
    let own = service
        .header
        .labels
        .iter()
        .map(|(key, value)| (&**key, &**value))
        .take_while(has_room);
    own.filter(|(key, _)| *key != HEADLESS).collect()
}

/// The labels of a service's slices: its own, and those that are ours to set (upstream's `setEndpointSliceLabels`).
pub(super) fn labels(service: &Object<ServiceView>) -> BTreeMap<&str, &str> {
    let mut labels = own_labels(service);
    labels.insert(MANAGED_BY, CONTROLLER);
    labels.insert(SERVICE_NAME, service.name());
    if service.headless {
        labels.insert(HEADLESS, "");
    }
    labels
}

fn is_labelled(slice: &SliceRef, wanted: &BTreeMap<&str, &str>) -> bool {
    let own = slice.header.labels.iter().map(|(key, value)| (&**key, &**value));
    own.eq(wanted.iter().map(|(key, value)| (*key, *value)))
}

/// Ports of all groups of a service. Where pods have other numbers for one name, each group has all ports of the service:
/// slices, and what every node keeps of them, would be the product of pods and ports (decision 0095).
pub(super) const MAX_PORTS: usize = 16_384;

/// The endpoints a service should have, by group, with so many units of its namespace's share.
pub(super) fn desired(
    service: &Object<ServiceView>,
    pods: &[Arc<Object<PodView>>],
    zone: impl Fn(&str) -> Option<String>,
    room: usize,
) -> Desired {
    let mut out = Desired::default();
    let service_ports = service.ports.items();
    let mut ports_left = MAX_PORTS;
    for pod in pods
        .iter()
        .filter(|pod| service.selects(&pod.header) && counts(pod))
    {
        let ports: Vec<Port> = service_ports
            .iter()
            .filter_map(|port| resolve_port(port, &pod.ports))
            .map(port)
            .collect();
        for family in families(service) {
            let Some(address) = pod
                .ips
                .iter()
                .find(|ip| family_of(ip) == Some(family) && is_endpoint_address(ip))
            else {
                continue;
            };
            let group = (family.to_owned(), ports.clone());
            if out.has_room(&group, &mut ports_left, room) {
                let endpoint = endpoint(service, pod, address, zone(&pod.node));
                out.groups.entry(group).or_default().push(endpoint);
            } else {
                tracing::debug!(service = %service.key(), pod = pod.name(), "no endpoint: there is no room for its ports");
            }
        }
    }
    // A service without endpoints keeps one empty slice per family: it says that nothing is there.
    for family in families(service) {
        if !out.groups.keys().any(|(own, _)| own == family) {
            out.groups.insert((family.to_owned(), Vec::new()), Vec::new());
        }
    }
    out
}

impl Desired {
    /// Takes the room of another endpoint of a group, and of its ports where it is the first of a slice.
    fn has_room(&mut self, group: &Group, ports_left: &mut usize, room: usize) -> bool {
        let before = self.groups.get(group).map_or(0, Vec::len);
        let new_ports = if before == 0 { group.1.len() } else { 0 };
        let Some(left) = ports_left.checked_sub(new_ports) else {
            self.left_out += 1;
            return false;
        };
        let is_first = before.is_multiple_of(MAX_ENDPOINTS);
        let units = ENDPOINT + if is_first { units_of(&group.1) } else { 0 };
        self.part.needs += units;
        if self.part.has + units > room {
            return false;
        }
        self.part.has += units;
        *ports_left = left;
        true
    }
}

fn units_of(ports: &[Port]) -> usize {
    let names = |port: &Port| port.name.len() + port.app_protocol.as_ref().map_or(0, |own| own.len());
    ports.iter().map(|port| port_units(names(port))).sum()
}

/// Units that a slice takes of its namespace's share.
pub(super) fn slice_units(slice: &SliceView) -> usize {
    let endpoints = slice.endpoints.len();
    if endpoints == 0 {
        return 0;
    }
    ENDPOINT * endpoints + units_of(&slice.ports)
}

fn counts(pod: &Object<PodView>) -> bool {
    let phase = if pod.is_terminal() { "Failed" } else { "Running" };
    let ip = pod.ips.first().map_or("", |ip| ip);
    !pod.node.is_empty()
        && counts_as_endpoint(
            PodFacts {
                phase,
                ip,
                deleting: pod.header.is_deleting(),
            },
            true,
        )
}

fn families(service: &ServiceView) -> Vec<&'static str> {
    let known = service
        .ip_families
        .iter()
        .filter_map(|family| match family.as_str() {
            "IPv4" => Some("IPv4"),
            "IPv6" => Some("IPv6"),
            _ => None,
        });
    let all: Vec<_> = known.collect();
    if all.is_empty() { vec!["IPv4"] } else { all }
}

fn family_of(ip: &str) -> Option<&'static str> {
    Some(if ip.parse::<IpAddr>().ok()?.is_ipv4() {
        "IPv4"
    } else {
        "IPv6"
    })
}

fn port(target: machinery_semantics::ServicePortTarget) -> Port {
    Port {
        name: target.name.into(),
        protocol: Protocol::of(&target.protocol),
        port: target.port,
        app_protocol: target.app_protocol.map(Into::into),
    }
}

fn endpoint(
    service: &Object<ServiceView>,
    pod: &Object<PodView>,
    address: &str,
    zone: Option<String>,
) -> Endpoint {
    let state = EndpointState::of_pod(pod.ready, pod.header.is_deleting(), service.publish_not_ready);
    let named = !pod.hostname.is_empty() && *pod.subdomain == *service.name();
    Endpoint {
        addresses: vec![address.to_owned()],
        conditions: Conditions {
            ready: state.ready,
            serving: state.serving,
            terminating: state.terminating,
        },
        hostname: named.then(|| pod.hostname.to_string()),
        target_ref: Some(TargetRef {
            kind: "Pod".to_owned(),
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            uid: pod.uid().0.clone(),
        }),
        node_name: Some(pod.node.to_string()),
        zone,
    }
}

/// The changes that make the slices say what is desired.
pub(super) fn plan(desired: Desired, labels: &BTreeMap<&str, &str>, slices: &[SliceRef]) -> Plan {
    let mut plan = Plan {
        left_out: desired.left_out,
        part: desired.part,
        ..Plan::default()
    };
    let mut groups = desired.groups;
    let mut by_group: BTreeMap<Group, Vec<SliceRef>> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| !slice.header.is_deleting()) {
        let mut ports = slice.ports.clone();
        ports.sort();
        by_group
            .entry((slice.address_type.clone(), ports))
            .or_default()
            .push(slice.clone());
    }
    let mut sorted: BTreeMap<Group, (Vec<Port>, Vec<Endpoint>)> = BTreeMap::new();
    while let Some(((family, ports), endpoints)) = groups.pop_first() {
        let mut key = ports.clone();
        key.sort();
        sorted
            .entry((family, key))
            .or_insert_with(|| (ports, Vec::new()))
            .1
            .extend(endpoints);
    }
    for (group, (ports, endpoints)) in sorted {
        let existing = by_group.remove(&group).unwrap_or_default();
        plan_group(&mut plan, group.0, ports, endpoints, labels, &existing);
    }
    let rest: Vec<SliceRef> = by_group.into_values().flatten().collect();
    plan.removed += rest.iter().map(|slice| slice.endpoints.len()).sum::<usize>();
    plan.delete.extend(rest);
    plan
}

fn plan_group(
    plan: &mut Plan,
    family: String,
    ports: Vec<Port>,
    endpoints: Vec<Endpoint>,
    labels: &BTreeMap<&str, &str>,
    existing: &[SliceRef],
) {
    let mut missing: BTreeMap<Identity, Endpoint> = endpoints
        .into_iter()
        .map(|endpoint| (endpoint.identity(), endpoint))
        .collect();
    // First what the slices keep, in their order, brought up to date.
    let mut kept: Vec<(SliceRef, Vec<Endpoint>)> = existing
        .iter()
        .map(|slice| {
            let stay = slice
                .endpoints
                .iter()
                .filter_map(|endpoint| missing.remove(&endpoint.identity()));
            (slice.clone(), stay.collect())
        })
        .collect();
    let stay: usize = kept.iter().map(|(_, endpoints)| endpoints.len()).sum();
    let had: usize = existing.iter().map(|slice| slice.endpoints.len()).sum();
    plan.added += missing.len();
    plan.removed += had - stay;
    // Then new ones into slices that change anyway, then into any with room, then into new slices.
    for changed_only in [true, false] {
        for (slice, endpoints) in &mut kept {
            if changed_only == (*endpoints != slice.endpoints) {
                while endpoints.len() < MAX_ENDPOINTS {
                    let Some((_, endpoint)) = missing.pop_first() else {
                        break;
                    };
                    endpoints.push(endpoint);
                }
            }
        }
    }
    while !missing.is_empty() {
        let fresh: Vec<_> = std::iter::from_fn(|| missing.pop_first())
            .take(MAX_ENDPOINTS)
            .map(|(_, own)| own)
            .collect();
        plan.create.push((family.clone(), ports.clone(), fresh));
    }
    let used = kept.iter().filter(|(_, endpoints)| !endpoints.is_empty()).count() + plan.create.len();
    let mut spare = used == 0;
    let had_any = !kept.is_empty();
    for (slice, endpoints) in kept {
        if endpoints.is_empty() && !std::mem::take(&mut spare) {
            plan.delete.push(slice);
        } else if endpoints != slice.endpoints || !is_labelled(&slice, labels) {
            plan.update.push((slice, endpoints));
        }
    }
    if used == 0 && !had_any {
        plan.create.push((family, ports, Vec::new()));
    }
}

/// The addresses of a plan's endpoints, for tests.
#[cfg(test)]
pub(super) fn addresses(endpoints: &[Endpoint]) -> Vec<&str> {
    endpoints
        .iter()
        .flat_map(|endpoint| endpoint.addresses.iter().map(String::as_str))
        .collect()
}
