//! The CPU manager's decisions beside those of upstream, recorded of its own tests.

use serde::Deserialize;
use std::collections::BTreeMap;

use super::assignment::take_packed;
use super::distributed::take_distributed;
use super::options;
use super::policy::{CpuPolicy, CpuTable};
use super::set::CpuSet;
use super::topology::{CpuPlace, CpuTopology};
use crate::pods::all_containers;
use crate::resource_managers::hints::{Hint, NodeMask};
use crate::resource_managers::rejection::AllocationError;
use k8s_openapi::api::core::v1::Pod;

/// Topologies by name: of each processor the NUMA node, the socket, the core and the cache.
type Topologies = BTreeMap<String, BTreeMap<u32, [u32; 4]>>;

fn topologies() -> BTreeMap<String, CpuTopology> {
    let text = include_str!("testdata/topologies.json");
    let all: Topologies = serde_json::from_str(text).unwrap();
    let topology = |cpus: BTreeMap<u32, [u32; 4]>| {
        let places = cpus.into_iter().map(|(cpu, [node, socket, core, cache])| {
            let place = CpuPlace {
                node,
                socket,
                core,
                cache,
            };
            (cpu, place)
        });
        CpuTopology::new(places.collect())
    };
    all.into_iter()
        .map(|(name, cpus)| (name, topology(cpus)))
        .collect()
}

fn lines<T: for<'a> Deserialize<'a>>(text: &str) -> Vec<T> {
    let lines = text.lines().map(|line| serde_json::from_str(line));
    let rows: Vec<T> = lines.map(|row| row.expect(text)).collect();
    assert!(!rows.is_empty());
    rows
}

fn set(text: &str) -> CpuSet {
    CpuSet::parse(text).unwrap()
}

#[derive(Debug, Deserialize)]
struct Taking {
    topology: String,
    available: String,
    count: usize,
    #[serde(default)]
    by_cache: bool,
    #[serde(default)]
    group: Option<usize>,
    result: String,
    error: String,
}

/// Calls of upstream's `takeByTopologyNUMAPacked` and `takeByTopologyNUMADistributed` in its tests.
#[test]
fn cpus_are_taken_as_upstreams() {
    let topologies = topologies();
    for row in lines::<Taking>(include_str!("testdata/taking.jsonl")) {
        let (topology, free) = (&topologies[&row.topology], set(&row.available));
        let found = match row.group {
            None => take_packed(topology, &free, row.count, row.by_cache),
            Some(group) => take_distributed(topology, &free, row.count, group),
        };
        match row.error.as_str() {
            "" => assert_eq!(
                found.map(|own| own.to_string()),
                Ok(row.result.clone()),
                "{row:?}"
            ),
            error => assert_eq!(found.unwrap_err(), error, "{row:?}"),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Hinting {
    topology: String,
    available: String,
    reusable: String,
    count: usize,
    hints: Vec<(Vec<u32>, bool)>,
}

fn policy(topology: &CpuTopology, reserved: &str, names: &BTreeMap<String, bool>) -> CpuPolicy {
    let given = names.iter().filter(|(_, is_on)| **is_on);
    let given = given.map(|(name, _)| (name.clone(), "true".to_owned())).collect();
    CpuPolicy {
        topology: topology.clone(),
        reserved: set(reserved),
        options: options::parse(&given).unwrap(),
    }
}

/// Calls of upstream's `generateCPUTopologyHints` in its tests.
#[test]
fn cpu_hints_are_upstreams() {
    let topologies = topologies();
    for row in lines::<Hinting>(include_str!("testdata/hints.jsonl")) {
        let policy = policy(&topologies[&row.topology], "", &BTreeMap::new());
        let found = policy.hints(&set(&row.available), &set(&row.reusable), row.count);
        let hint = |(nodes, preferred): &(Vec<u32>, bool)| Hint {
            nodes: Some(nodes.iter().copied().collect()),
            preferred: *preferred,
        };
        let expected: Vec<Hint> = row.hints.iter().map(hint).collect();
        assert_eq!(found, expected, "{row:?}");
    }
}

#[derive(Debug, Clone, Deserialize)]
struct Table {
    shared: String,
    assignments: BTreeMap<String, BTreeMap<String, String>>,
}

impl Table {
    fn read(&self) -> CpuTable {
        let pod = |own: &BTreeMap<String, String>| {
            let own = own.iter();
            own.map(|(name, text)| (name.clone(), set(text))).collect()
        };
        let pods = self.assignments.iter().filter(|(_, own)| !own.is_empty());
        CpuTable {
            shared: set(&self.shared),
            assignments: pods.map(|(uid, own)| (uid.clone(), pod(own))).collect(),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Allocating {
    topology: String,
    options: BTreeMap<String, bool>,
    reserved: String,
    before: Table,
    pod: Pod,
    container: String,
    affinity: Option<Vec<u32>>,
    after: Table,
    error: String,
}

/// Calls of upstream's `Allocate` in its tests.
#[test]
fn cpus_are_allocated_as_upstreams() {
    let topologies = topologies();
    for row in lines::<Allocating>(include_str!("testdata/allocating.jsonl")) {
        let policy = policy(&topologies[&row.topology], &row.reserved, &row.options);
        let mut table = row.before.read();
        let mut containers = all_containers(&row.pod);
        let (_, container) = containers.find(|(_, own)| own.name == row.container).unwrap();
        let nodes: Option<NodeMask> = row.affinity.as_ref().map(|nodes| nodes.iter().copied().collect());
        let found = policy.allocate(&mut table, &row.pod, container, nodes);
        let found = found.err().map(|error| match error {
            AllocationError::Unexpected(text) => text,
            other => other.to_string(),
        });
        assert_eq!(found.unwrap_or_default(), row.error, "{row:?}");
        assert_eq!(table, row.after.read(), "{row:?}");
    }
}

#[derive(Debug, Deserialize)]
struct Beginning {
    topology: String,
    options: BTreeMap<String, bool>,
    reserved: String,
    before: Table,
    after: Table,
    error: String,
}

/// Calls of upstream's `validateState` in its tests.
#[test]
fn cpu_state_is_checked_as_upstreams() {
    let topologies = topologies();
    for row in lines::<Beginning>(include_str!("testdata/beginning.jsonl")) {
        let policy = policy(&topologies[&row.topology], &row.reserved, &row.options);
        let mut table = row.before.read();
        let found = policy.begin(&mut table).err().unwrap_or_default();
        assert_eq!(found, row.error, "{row:?}");
        assert_eq!(table, row.after.read(), "{row:?}");
    }
}

#[derive(Debug, Deserialize)]
struct Removing {
    before: Table,
    pod: String,
    container: String,
    after: Table,
}

/// Calls of upstream's `RemoveContainer` in its tests.
#[test]
fn cpus_of_ended_containers_are_shared_again() {
    for row in lines::<Removing>(include_str!("testdata/removing.jsonl")) {
        let mut table = row.before.read();
        table.remove(&row.pod, &row.container);
        assert_eq!(table, row.after.read(), "{row:?}");
    }
}
