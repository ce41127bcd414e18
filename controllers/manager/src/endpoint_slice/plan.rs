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
    pub(super) update: Vec<(SliceRef, Vec<Port>, Vec<Endpoint>)>,
    pub(super) delete: Vec<SliceRef>,
    /// Endpoints that no slice has yet.
    pub(super) added: usize,
    /// Endpoints of slices that are to go.
    pub(super) removed: usize,
    /// Pods that are no endpoints, as the ports of their group have no room.
    pub(super) left_out: usize,
    /// Pods that are no endpoints, as their nodes are not known.
    pub(super) lost: usize,
    /// Units of the namespace's share.
    pub(super) part: Part,
}

/// Endpoints that a service should have.
#[derive(Debug, Default)]
pub(super) struct Desired {
    pub(super) groups: BTreeMap<Group, Vec<Endpoint>>,
    /// Families in which the service has slices, be it one without endpoints.
    families: Vec<&'static str>,
    /// Pods whose ports would be too many for the service.
    pub(super) left_out: usize,
    /// Pods whose nodes are not known.
    pub(super) lost: usize,
    /// Units of the namespace's share; pods beyond it are no endpoints.
    pub(super) part: Part,
}

/// A node that is known, with its zone.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeZone(pub(super) Option<String>);

/// Bytes of a service's labels that its slices have: each slice is rewritten with each change of them, and sent to every node.
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
    node: impl Fn(&str) -> Option<NodeZone>,
    room: usize,
) -> Desired {
    let mut out = Desired {
        families: families(service),
        ..Desired::default()
    };
    let service_ports = service.ports.items();
    let mut ports_left = MAX_PORTS;
    for pod in pods
        .iter()
        .filter(|pod| service.selects(&pod.header) && counts(pod))
    {
        // A pod whose node is not known may be one that is gone; where every address is to be published it counts.
        let known = node(&pod.node);
        if known.is_none() && !service.publish_not_ready {
            out.lost += 1;
            continue;
        }
        let NodeZone(zone) = known.unwrap_or_default();
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
                let endpoint = endpoint(service, pod, address, zone.clone());
                out.groups.entry(group).or_default().push(endpoint);
            } else {
                tracing::debug!(service = %service.key(), pod = pod.name(), "no endpoint: there is no room for its ports");
            }
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
    let facts = PodFacts {
        phase,
        ip,
        deleting: pod.header.is_deleting(),
    };
    counts_as_endpoint(facts, true)
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

/// An address in its canonical form, whatever form a pod's status has it in (upstream: `getEndpointAddresses`).
fn canonical(address: &str) -> String {
    address
        .parse::<IpAddr>()
        .map_or_else(|_| address.to_owned(), |own| own.to_string())
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
        addresses: vec![canonical(address)],
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

/// The changes that make the slices of a service say what is desired.
pub(super) fn plan(desired: Desired, service: &Object<ServiceView>, slices: &[SliceRef]) -> Plan {
    let labels = labels(service);
    let mut plan = Plan {
        left_out: desired.left_out,
        lost: desired.lost,
        part: desired.part,
        ..Plan::default()
    };
    let mut by_group: BTreeMap<Group, Vec<SliceRef>> = BTreeMap::new();
    let owned = |slice: &&SliceRef| {
        slice
            .header
            .controller()
            .is_some_and(|own| own.uid == *service.uid())
    };
    let staying = || slices.iter().filter(|slice| !slice.header.is_deleting());
    for slice in staying().filter(owned) {
        let mut ports = slice.ports.clone();
        ports.sort();
        let group = (slice.address_type.clone(), ports);
        by_group.entry(group).or_default().push(slice.clone());
    }
    // Those of a service before this one go, and are not written again.
    let foreign: Vec<SliceRef> = staying().filter(|slice| !owned(slice)).cloned().collect();
    let mut groups = sorted_ports(desired.groups);
    for family in &desired.families {
        let mut of_family = Plan::default();
        let before = by_group.iter().filter(|((own, _), _)| own == family);
        let before: usize = before.map(|(_, slices)| slices.len()).sum();
        for (group, (ports, endpoints)) in take_family(&mut groups, family) {
            let existing = by_group.remove(&group).unwrap_or_default();
            plan_group(&mut of_family, group.0, ports, endpoints, &labels, &existing);
        }
        for (_, rest) in take_family(&mut by_group, family) {
            of_family.removed += rest.iter().map(|slice| slice.endpoints.len()).sum::<usize>();
            of_family.delete.extend(rest);
        }
        keep_one(&mut of_family, family, &labels, before);
        reuse(&mut of_family);
        plan.add(of_family);
    }
    // Families that the service has no more.
    plan.delete
        .extend(by_group.into_values().flatten().chain(foreign));
    if service.header.is_deleting() {
        // The garbage collector may not see what is made now.
        plan.create.clear();
    }
    plan
}

impl Plan {
    fn add(&mut self, other: Self) {
        self.create.extend(other.create);
        self.update.extend(other.update);
        self.delete.extend(other.delete);
        self.added += other.added;
        self.removed += other.removed;
    }
}

/// Groups by their ports in order, with the ports as they are written.
fn sorted_ports(groups: BTreeMap<Group, Vec<Endpoint>>) -> BTreeMap<Group, (Vec<Port>, Vec<Endpoint>)> {
    let mut sorted: BTreeMap<Group, (Vec<Port>, Vec<Endpoint>)> = BTreeMap::new();
    for ((family, ports), endpoints) in groups {
        let mut key = ports.clone();
        key.sort();
        let own = sorted.entry((family, key)).or_insert_with(|| (ports, Vec::new()));
        own.1.extend(endpoints);
    }
    sorted
}

/// Takes the groups of a family.
fn take_family<T>(groups: &mut BTreeMap<Group, T>, family: &str) -> BTreeMap<Group, T> {
    let all = std::mem::take(groups).into_iter();
    let (own, others) = all.partition(|((of, _), _)| of == family);
    *groups = others;
    own
}

/// A service keeps one slice per family, which says that nothing is there.
fn keep_one(plan: &mut Plan, family: &str, labels: &BTreeMap<&str, &str>, before: usize) {
    if !plan.create.is_empty() || before != plan.delete.len() {
        return;
    }
    let says_nothing =
        |slice: &SliceRef| slice.ports.is_empty() && slice.endpoints.is_empty() && is_labelled(slice, labels);
    if plan.delete.len() == 1 && says_nothing(&plan.delete[0]) {
        plan.delete.clear();
    } else {
        plan.create.push((family.to_owned(), Vec::new(), Vec::new()));
    }
}

/// Slices that would go are rewritten where others would be made.
fn reuse(plan: &mut Plan) {
    while !plan.delete.is_empty()
        && let Some((_, ports, endpoints)) = plan.create.pop()
    {
        let slice = plan.delete.remove(0);
        plan.update.push((slice, ports, endpoints));
    }
}

/// An existing slice with the endpoints that it will have.
type Kept = (SliceRef, Vec<Endpoint>);

fn plan_group(
    plan: &mut Plan,
    family: String,
    ports: Vec<Port>,
    endpoints: Vec<Endpoint>,
    labels: &BTreeMap<&str, &str>,
    existing: &[SliceRef],
) {
    let with_identity = endpoints.into_iter().map(|own| (own.identity(), own));
    let mut missing: BTreeMap<Identity, Endpoint> = with_identity.collect();
    // First what the slices keep, in their order, brought up to date.
    let (mut changing, mut unchanged): (Vec<Kept>, Vec<Kept>) = (Vec::new(), Vec::new());
    for slice in existing {
        let own = slice.endpoints.iter();
        let stay: Vec<Endpoint> = own.filter_map(|own| missing.remove(&own.identity())).collect();
        plan.removed += slice.endpoints.len() - stay.len();
        match stay == slice.endpoints {
            false if stay.is_empty() => plan.delete.push(slice.clone()),
            true if is_labelled(slice, labels) => unchanged.push((slice.clone(), stay)),
            _ => changing.push((slice.clone(), stay)),
        }
    }
    plan.added += missing.len();
    // Then new ones into slices that change anyway, the fullest first.
    changing.sort_by_key(|(_, endpoints)| std::cmp::Reverse(endpoints.len()));
    for (_, endpoints) in &mut changing {
        fill(endpoints, &mut missing);
    }
    // Then all that are left into one that has room for them, else into new ones.
    while !missing.is_empty() {
        let mut fresh = Vec::new();
        match best_fit(&unchanged, missing.len()) {
            Some(at) => {
                let (slice, mut endpoints) = unchanged.remove(at);
                fill(&mut endpoints, &mut missing);
                changing.push((slice, endpoints));
            }
            None => {
                fill(&mut fresh, &mut missing);
                plan.create.push((family.clone(), ports.clone(), fresh));
            }
        }
    }
    let written = changing
        .into_iter()
        .map(|(slice, endpoints)| (slice, ports.clone(), endpoints));
    plan.update.extend(written);
}

fn fill(endpoints: &mut Vec<Endpoint>, missing: &mut BTreeMap<Identity, Endpoint>) {
    while endpoints.len() < MAX_ENDPOINTS
        && let Some((_, endpoint)) = missing.pop_first()
    {
        endpoints.push(endpoint);
    }
}

/// The slice that so many endpoints fill best.
fn best_fit(slices: &[Kept], more: usize) -> Option<usize> {
    let fits = |(_, (_, endpoints)): &(usize, &Kept)| endpoints.len() + more <= MAX_ENDPOINTS;
    let fitting: Vec<_> = slices.iter().enumerate().filter(fits).collect();
    let fullest = fitting
        .into_iter()
        .rev()
        .max_by_key(|(_, (_, endpoints))| endpoints.len());
    fullest.map(|(at, _)| at)
}

/// The addresses of a plan's endpoints, for tests.
#[cfg(test)]
pub(super) fn addresses(endpoints: &[Endpoint]) -> Vec<&str> {
    endpoints
        .iter()
        .flat_map(|endpoint| endpoint.addresses.iter().map(String::as_str))
        .collect()
}
