//! Reservations of memory.

use std::collections::BTreeMap;

use super::reservation::{MemoryReservation, NodeCapacity, machine, problems};

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
