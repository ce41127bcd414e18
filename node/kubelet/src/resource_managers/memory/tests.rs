//! The memory manager's decisions beside those of upstream, recorded of its own tests.

use serde::Deserialize;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

use super::policy::MemoryPolicy;
use super::reservation::{MemoryReservation, NodeCapacity, empty, machine, problems};
use super::table::{Blocks, Machine, MemoryTable};
use crate::pods::all_containers;
use crate::resource_managers::hints::{Hint, Hints, NodeMask};

fn lines<T: for<'a> Deserialize<'a>>(text: &str) -> Vec<T> {
    let lines = text.lines().map(|line| serde_json::from_str(line));
    let rows: Vec<T> = lines.map(|row| row.expect(text)).collect();
    assert!(!rows.is_empty());
    rows
}

#[derive(Debug, Clone, Deserialize)]
struct Table {
    machine: Machine,
    entries: Blocks,
}

/// By uid, nodes as upstream writes a mask (`11`), and kind.
type RecordedReusable = BTreeMap<String, BTreeMap<String, BTreeMap<String, u64>>>;

impl Table {
    fn read(&self, reusable: Option<&RecordedReusable>) -> MemoryTable {
        let mask = |text: &str| -> NodeMask {
            let bits = u64::from_str_radix(text, 2).unwrap();
            (0..64).filter(|node| bits & (1 << node) != 0).collect()
        };
        let reusable = reusable.into_iter().flatten().map(|(pod, own)| {
            let own = own.iter();
            (
                pod.clone(),
                own.map(|(text, kinds)| (mask(text), kinds.clone())).collect(),
            )
        });
        let mut table = MemoryTable {
            machine: self.machine.clone(),
            blocks: self.entries.clone(),
            reusable: reusable.collect(),
        };
        sort(&mut table);
        table
    }
}

/// Upstream has blocks in no order, and pods without containers.
fn sort(table: &mut MemoryTable) {
    table.blocks.retain(|_, own| !own.is_empty());
    let containers = table.blocks.values_mut().flat_map(BTreeMap::values_mut);
    containers.for_each(|blocks| blocks.sort_by(|one, two| one.kind.cmp(&two.kind)));
}

fn policy() -> MemoryPolicy {
    MemoryPolicy {
        empty: Machine::new(),
    }
}

#[derive(Debug, Deserialize)]
struct Allocating {
    before: Table,
    reusable: RecordedReusable,
    pod: Pod,
    container: String,
    affinity: (Option<Vec<u32>>, bool),
    after: Table,
    error: String,
}

/// Calls of upstream's `Allocate` in its tests.
#[test]
fn memory_is_allocated_as_upstreams() {
    for row in lines::<Allocating>(include_str!("testdata/allocating.jsonl")) {
        let mut table = row.before.read(Some(&row.reusable));
        let mut containers = all_containers(&row.pod);
        let (_, container) = containers.find(|(_, own)| own.name == row.container).unwrap();
        let (nodes, preferred) = &row.affinity;
        let hint = Hint {
            nodes: nodes.as_ref().map(|nodes| nodes.iter().copied().collect()),
            preferred: *preferred,
        };
        let found = policy().allocate(&mut table, &row.pod, container, hint);
        assert_eq!(found.err().unwrap_or_default(), row.error, "{row:?}");
        sort(&mut table);
        let expected = row.after.read(None);
        assert_eq!(
            (table.machine, table.blocks),
            (expected.machine, expected.blocks),
            "{row:?}"
        );
    }
}

/// NUMA nodes, and whether they are preferred.
type RecordedHint = (Vec<u32>, bool);

#[derive(Debug, Deserialize)]
struct Hinting {
    before: Table,
    reusable: RecordedReusable,
    pod: Pod,
    container: String,
    hints: Option<BTreeMap<String, Vec<RecordedHint>>>,
}

/// Calls of upstream's `GetTopologyHints` and `GetPodTopologyHints` in its tests.
#[test]
fn memory_hints_are_upstreams() {
    for row in lines::<Hinting>(include_str!("testdata/hints.jsonl")) {
        let table = row.before.read(Some(&row.reusable));
        let mut containers = all_containers(&row.pod);
        let container = containers.find(|(_, own)| own.name == row.container);
        let found = match container {
            Some((_, container)) => policy().container_hints(&table, &row.pod, container),
            None => policy().pod_hints(&table, &row.pod),
        };
        let hint = |(nodes, preferred): &RecordedHint| Hint {
            nodes: Some(nodes.iter().copied().collect()),
            preferred: *preferred,
        };
        let expected = row.hints.iter().flatten();
        let expected: Hints = expected
            .map(|(kind, hints)| (kind.clone(), Some(hints.iter().map(hint).collect())))
            .collect();
        assert_eq!(found, expected, "{row:?}");
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
fn memory_of_ended_containers_is_free_again() {
    for row in lines::<Removing>(include_str!("testdata/removing.jsonl")) {
        let mut table = row.before.read(None);
        table.remove(&row.pod, &row.container);
        assert_eq!(table, row.after.read(None), "{row:?}");
    }
}

#[derive(Debug, Deserialize)]
struct HugePages {
    page_size: u64,
    num_pages: u64,
}

#[derive(Debug, Deserialize)]
struct RecordedNode {
    id: u32,
    memory: u64,
    hugepages: Option<Vec<HugePages>>,
}

#[derive(Debug, Deserialize)]
struct RecordedMachine {
    nodes: Vec<RecordedNode>,
    reserved: BTreeMap<u32, BTreeMap<String, u64>>,
}

#[derive(Debug, Deserialize)]
struct Beginning {
    machine: RecordedMachine,
    before: Table,
    after: Table,
    error: String,
}

/// Calls of upstream's `validateState` in its tests.
#[test]
fn memory_state_is_checked_as_upstreams() {
    for row in lines::<Beginning>(include_str!("testdata/beginning.jsonl")) {
        let reserved = |node: u32, kind: &str| {
            let own = row.machine.reserved.get(&node);
            own.and_then(|own| own.get(kind)).copied().unwrap_or(0)
        };
        let nodes = row.machine.nodes.iter().map(|node| {
            let pages = node.hugepages.iter().flatten().map(|pages| {
                assert_eq!(pages.page_size, 1 << 20);
                (
                    "hugepages-1Gi".to_owned(),
                    pages.num_pages * pages.page_size * 1024,
                )
            });
            let capacity = NodeCapacity {
                memory: node.memory,
                huge_pages: pages.collect(),
            };
            (node.id, empty(node.id, &capacity, reserved))
        });
        let policy = MemoryPolicy {
            empty: nodes.collect(),
        };
        let mut table = row.before.read(None);
        let found = policy.begin(&mut table).err().unwrap_or_default();
        // Of several wrong assignments upstream names any.
        let is_same = found == row.error
            || (found.contains("the memory assignment uses")
                && row.error.contains("the memory assignment uses"));
        assert!(is_same, "{found}: {row:?}");
        assert_eq!(table, row.after.read(None), "{row:?}");
    }
}

fn reservation(text: &str) -> MemoryReservation {
    text.parse().unwrap()
}

#[test]
fn memory_reservations_are_what_the_node_keeps() {
    let nodes = |memory: u64| NodeCapacity {
        memory,
        huge_pages: [("hugepages-2Mi".to_owned(), 64 << 20)].into(),
    };
    let nodes: BTreeMap<u32, NodeCapacity> = [(0, nodes(4 << 30)), (1, nodes(4 << 30))].into();
    let made = |texts: &[&str], kept: u64| {
        let all: Vec<MemoryReservation> = texts.iter().map(|text| reservation(text)).collect();
        machine(&nodes, &all, kept)
    };
    let own = made(&["0:memory=1Gi", "1:memory=512Mi"], (1 << 30) + (512 << 20)).unwrap();
    assert_eq!(own[&0].memory_map["memory"].allocatable, (3 << 30) - (64 << 20));
    assert_eq!(own[&1].memory_map["memory"].system_reserved, 512 << 20);
    assert_eq!(own[&1].memory_map["hugepages-2Mi"].free, 64 << 20);
    assert_eq!(
        made(&["0:memory=1Gi"], 2 << 30).unwrap_err(),
        "the total amount \"1Gi\" of type \"memory\" is not equal to the value \"2Gi\" determined by Node Allocatable feature"
    );
    assert_eq!(
        made(&["7:memory=1Gi"], 1 << 30).unwrap_err(),
        "the reserved memory configuration references a NUMA node 7 that does not exist on this machine"
    );
    assert_eq!(
        made(&[], 0).unwrap_err(),
        "[memorymanager] you should specify the system reserved memory"
    );
    let twice = [reservation("0:memory=1Gi"), reservation("0:memory=0")];
    assert_eq!(problems(&twice).len(), 2, "{:?}", problems(&twice));
    for (text, error) in [
        ("memory=1Gi", "has incorrect format"),
        (
            "x:memory=1Gi",
            "failed to convert the NUMA node ID, expected integer, got x",
        ),
        ("0:cpu=1", "memory type conversion error, unknown type: \"cpu\""),
        ("0:memory", "the reserved limit has incorrect value"),
        ("0:memory=x", "failed to parse the quantity: x"),
    ] {
        let found = text.parse::<MemoryReservation>().unwrap_err();
        assert!(found.contains(error), "{found}");
    }
}
