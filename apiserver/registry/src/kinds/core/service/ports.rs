//! Node ports: one bitmap of the range, a `RangeAllocation` as upstream keeps it, changed with the service.

use super::port_range::PortRange;
use super::shares::{self, Pool, Taking};
use super::{allocates_node_ports, may_have_node_ports, needs_health_port};
use crate::engine::allocation::AllocationChange;
use crate::engine::context::RequestContext;
use crate::engine::error::RegistryError;
use crate::engine::metadata;
use crate::engine::registry::Registry;
use apiserver_storage::{ReadAt, Write};
use machinery_meta::{FieldError, FieldPath, GroupKind};
use machinery_schema::{Mut, Ref, Tree};
use std::collections::{BTreeSet, HashMap};

/// Takes new node ports, gives back those no longer used.
pub(super) async fn allocate(
    ctx: &RequestContext,
    registry: &Registry,
    change: AllocationChange<'_>,
    service: &mut Tree,
) -> Result<Vec<Write>, RegistryError> {
    let before = match change {
        AllocationChange::Create => BTreeSet::new(),
        AllocationChange::Update { old } => shares::node_ports(old),
        AllocationChange::Delete => shares::node_ports(service.root()),
    };
    let deleting = matches!(change, AllocationChange::Delete);
    if before.is_empty() && (deleting || !wants(service.root())) {
        return Ok(Vec::new());
    }
    let mut range = PortRange::read(registry, ReadAt::Latest).await?;
    if deleting {
        before.iter().for_each(|port| range.set(*port, false));
        return Ok(vec![range.write()?]);
    }
    let mut picker = Picker {
        ctx,
        range: &mut range,
        before: &before,
        now: BTreeSet::new(),
        errors: Vec::new(),
    };
    picker.assign(service);
    let (now, errors) = (picker.now, picker.errors);
    if !errors.is_empty() {
        let kind = GroupKind {
            group: String::new(),
            kind: "Service".into(),
        };
        return Err(RegistryError::Invalid {
            kind,
            name: metadata::name(service).to_owned(),
            errors,
        });
    }
    before.difference(&now).for_each(|port| range.set(*port, false));
    let taking = Taking {
        pool: Pool::NodePorts,
        namespace: metadata::namespace(service),
        name: metadata::name(service),
        more: now.len().saturating_sub(before.len()),
        all: range.ports().all().count(),
        taken: range.taken().count(),
    };
    shares::check(ctx, registry, taking).await?;
    if before == now {
        return Ok(Vec::new());
    }
    Ok(vec![range.write()?])
}

fn wants(service: Ref<'_>) -> bool {
    let named = || may_have_node_ports(service) && !shares::node_ports(service).is_empty();
    allocates_node_ports(service) || needs_health_port(service) || named()
}

pub(super) fn number(value: Ref<'_>, name: &str) -> i64 {
    value.get(name).and_then(Ref::as_i64).unwrap_or(0)
}

/// Gives ports their numbers, one after the other.
struct Picker<'a> {
    ctx: &'a RequestContext,
    range: &'a mut PortRange,
    before: &'a BTreeSet<i64>,
    now: BTreeSet<i64>,
    errors: Vec<FieldError>,
}

/// The ports so far by number and by node port: the first of each protocol, and its node port.
#[derive(Default)]
struct Known {
    of_port: HashMap<i64, Vec<(String, i64)>>,
    of_node: HashMap<i64, Vec<(String, i64)>>,
}

impl Known {
    fn note(&mut self, port: i64, protocol: String, node: i64) {
        for all in [
            self.of_port.entry(port).or_default(),
            self.of_node.entry(node).or_default(),
        ] {
            // There are three protocols.
            if all.iter().all(|(own, _)| *own != protocol) {
                all.push((protocol.clone(), node));
            }
        }
    }
}

impl Picker<'_> {
    fn assign(&mut self, service: &mut Tree) {
        let root = service.root();
        let (nodes, health) = (may_have_node_ports(root), needs_health_port(root));
        let allocates = allocates_node_ports(root);
        let spec_path = FieldPath::new("spec");
        service.with(&["spec"], |mut spec| {
            if nodes {
                let mut known = Known::default();
                let mut at = 0;
                spec.each("ports", |port| {
                    if allocates || number(port.as_ref(), "nodePort") != 0 {
                        self.one(port, &spec_path.child("ports").index(at), &mut known);
                    }
                    at += 1;
                });
            }
            if health && self.errors.is_empty() {
                let requested = number(spec.as_ref(), "healthCheckNodePort");
                if let Some(port) = self.take(requested, &spec_path.child("healthCheckNodePort")) {
                    spec.set("healthCheckNodePort", port);
                }
            }
        });
    }

    /// The same port under two protocols shares its number.
    fn one(&mut self, mut port: Mut<'_>, path: &FieldPath, known: &mut Known) {
        // As upstream, which ends at the first; a range that is full was searched for nothing each time.
        if !self.errors.is_empty() {
            return;
        }
        let (own, requested) = (number(port.as_ref(), "port"), number(port.as_ref(), "nodePort"));
        let protocol = port.as_ref().str("protocol").to_owned();
        let shared = match requested {
            0 => known.of_port.get(&own),
            _ => known.of_node.get(&requested),
        };
        let mut shared = shared.into_iter().flatten();
        let node = match shared.find(|(other, _)| *other != protocol) {
            Some((_, node)) => Some(*node),
            None => self.take(requested, &path.child("nodePort")),
        };
        if let Some(node) = node {
            port.set("nodePort", node);
            known.note(own, protocol, node);
        }
    }

    fn take(&mut self, requested: i64, path: &FieldPath) -> Option<i64> {
        if requested == 0 {
            let Some(free) = self.range.free(self.ctx.runtime.random_u64()) else {
                self.errors.push(FieldError::internal(
                    path,
                    "failed to allocate a nodePort: range is full",
                ));
                return None;
            };
            self.range.set(free, true);
            self.now.insert(free);
            return Some(free);
        }
        if !self.before.contains(&requested) {
            let detail = if !self.range.ports().contains(requested) {
                let ports = self.range.ports();
                format!("provided port is not in the valid range. The range of valid ports is {ports}")
            } else if self.range.is_set(requested) {
                "provided port is already allocated".to_owned()
            } else {
                String::new()
            };
            if !detail.is_empty() {
                self.errors.push(FieldError::invalid(path, requested, detail));
                return None;
            }
            self.range.set(requested, true);
        }
        self.now.insert(requested);
        Some(requested)
    }
}
