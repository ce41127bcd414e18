//! Memory that is reserved on each NUMA node: upstream's `reservedMemory`. Pure.

use std::collections::BTreeMap;
use std::str::FromStr;

use machinery_meta::Quantity;
use machinery_meta::go_text::go_quote;

use super::policy::{MEMORY, is_memory};
use super::table::{Amounts, Machine, NodeMemory};

/// Memory reserved on one NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryReservation {
    /// Number of the node.
    pub numa_node: u32,
    /// Amounts by kind, such as `memory` and `hugepages-2Mi`.
    pub limits: BTreeMap<String, String>,
}

impl FromStr for MemoryReservation {
    type Err = String;

    /// Reads `0:memory=1Gi,hugepages-2Mi=100Mi`.
    fn from_str(text: &str) -> Result<Self, String> {
        let format = || {
            format!(
                "the reserved memory has incorrect format, expected numaNodeID:type=quantity[,type=quantity...], got {text}"
            )
        };
        let (node, limits) = text.split_once(':').ok_or_else(format)?;
        let numa_node = node
            .parse()
            .map_err(|_| format!("failed to convert the NUMA node ID, expected integer, got {node}"))?;
        let limits = limits.split(',').map(|limit| {
            let (kind, amount) = limit.split_once('=').ok_or_else(|| {
                format!("the reserved limit has incorrect value, expected type=quantity, got {limit}")
            })?;
            if !is_memory(kind) {
                return Err(format!(
                    "memory type conversion error, unknown type: {}",
                    go_quote(kind)
                ));
            }
            bytes(amount).ok_or_else(|| format!("failed to parse the quantity: {amount}"))?;
            Ok((kind.to_owned(), amount.to_owned()))
        });
        Ok(Self {
            numa_node,
            limits: limits.collect::<Result<_, String>>()?,
        })
    }
}

fn bytes(text: &str) -> Option<u64> {
    let quantity: Quantity = text.parse().ok()?;
    u64::try_from(quantity.units()).ok()
}

/// Everything wrong with reservations, in upstream's words.
pub(crate) fn problems(reservations: &[MemoryReservation]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut seen = Vec::new();
    for reservation in reservations {
        let node = reservation.numa_node;
        for (kind, amount) in &reservation.limits {
            let quoted = go_quote(kind);
            if bytes(amount).unwrap_or(0) == 0 {
                problems.push(format!(
                    "invalid configuration: reserved memory may not be zero for NUMA node {node} and resource {quoted}"
                ));
            }
            if seen.contains(&(node, kind)) {
                problems.push(format!(
                    "invalid configuration: the reserved memory has a duplicate value for NUMA node {node} and resource {quoted}"
                ));
            }
            seen.push((node, kind));
        }
    }
    problems
}

/// A NUMA node as the kernel shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeCapacity {
    /// Bytes of memory, huge pages among it.
    pub(crate) memory: u64,
    /// Bytes of huge pages by kind.
    pub(crate) huge_pages: BTreeMap<String, u64>,
}

/// The machine with nothing given away but the reservations, which together are what the node keeps from pods.
///
/// # Errors
/// Upstream's sentence: they are not, or name a node that does not exist.
pub(crate) fn machine(
    nodes: &BTreeMap<u32, NodeCapacity>,
    reservations: &[MemoryReservation],
    kept: u64,
) -> Result<Machine, String> {
    let mut reserved: BTreeMap<(u32, &str), u64> = BTreeMap::new();
    let mut sums: BTreeMap<&str, u64> = [(MEMORY, 0)].into();
    for reservation in reservations {
        let node = reservation.numa_node;
        if !nodes.contains_key(&node) {
            return Err(format!(
                "the reserved memory configuration references a NUMA node {node} that does not exist on this machine"
            ));
        }
        for (kind, amount) in &reservation.limits {
            let own = bytes(amount).unwrap_or(0);
            reserved.insert((node, kind), own);
            *sums.entry(kind).or_default() += own;
        }
    }
    for (kind, sum) in sums {
        // Huge pages have no other reservation.
        let expected = if kind == MEMORY { kept } else { 0 };
        if sum != expected {
            let text =
                |bytes: u64| Quantity::from_bytes(i64::try_from(bytes).unwrap_or(i64::MAX)).to_string();
            return Err(format!(
                "the total amount {:?} of type {kind:?} is not equal to the value {:?} determined by Node Allocatable feature",
                text(sum),
                text(expected)
            ));
        }
    }
    if kept == 0 {
        return Err("[memorymanager] you should specify the system reserved memory".to_owned());
    }
    let reserved = |node: u32, kind: &str| reserved.get(&(node, kind)).copied().unwrap_or(0);
    let made = nodes
        .iter()
        .map(|(number, node)| (*number, empty(*number, node, reserved)));
    Ok(made.collect())
}

/// A NUMA node of which nothing was given away.
pub(crate) fn empty(number: u32, node: &NodeCapacity, reserved: impl Fn(u32, &str) -> u64) -> NodeMemory {
    let of = |kind: &str, total: u64, usable: u64| {
        let system_reserved = reserved(number, kind);
        let allocatable = usable.saturating_sub(system_reserved);
        Amounts {
            total,
            system_reserved,
            allocatable,
            reserved: 0,
            free: allocatable,
        }
    };
    let pages = node.huge_pages.iter();
    let mut memory_map: BTreeMap<String, Amounts> = pages
        .map(|(kind, bytes)| (kind.clone(), of(kind, *bytes, *bytes)))
        .collect();
    let of_pages: u64 = node.huge_pages.values().sum();
    let usable = node.memory.saturating_sub(of_pages);
    memory_map.insert(MEMORY.to_owned(), of(MEMORY, node.memory, usable));
    NodeMemory {
        number_of_assignments: 0,
        memory_map,
        cells: vec![number],
    }
}
