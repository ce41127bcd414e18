//! Memory by NUMA node, and the parts of it that containers have. Names of fields are those of upstream's checkpoint. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::resource_managers::hints::NodeMask;

/// Amounts of one kind of memory on a NUMA node, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Amounts {
    pub(crate) total: u64,
    pub(crate) system_reserved: u64,
    pub(crate) allocatable: u64,
    pub(crate) reserved: u64,
    pub(crate) free: u64,
}

/// A NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeMemory {
    /// Parts that containers have.
    pub(crate) number_of_assignments: u64,
    /// By kind: `memory`, `hugepages-2Mi`.
    pub(crate) memory_map: BTreeMap<String, Amounts>,
    /// Nodes from which containers have memory together with this one, itself among them.
    pub(crate) cells: Vec<u32>,
}

/// The NUMA nodes of a machine by number.
pub(crate) type Machine = BTreeMap<u32, NodeMemory>;

/// Memory of one kind that a container has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Block {
    /// NUMA nodes of which it is.
    #[serde(rename = "numaAffinity")]
    pub(crate) nodes: Vec<u32>,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Bytes.
    pub(crate) size: u64,
}

impl Block {
    pub(crate) fn mask(&self) -> NodeMask {
        self.nodes.iter().copied().collect()
    }
}

/// Blocks by uid of the pod, and container.
pub(crate) type Blocks = BTreeMap<String, BTreeMap<String, Vec<Block>>>;

/// Bytes that containers of a pod may use again, by nodes and kind.
pub(crate) type Reusable = BTreeMap<NodeMask, BTreeMap<String, u64>>;

/// Memory of all containers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MemoryTable {
    pub(crate) machine: Machine,
    pub(crate) blocks: Blocks,
    /// Of init containers, by uid of the pod, while it is admitted.
    pub(crate) reusable: BTreeMap<String, Reusable>,
}

impl MemoryTable {
    pub(crate) fn own(&self, uid: &str, container: &str) -> Option<&Vec<Block>> {
        self.blocks.get(uid)?.get(container)
    }

    /// Bytes of a kind that a pod may use again of these nodes.
    pub(crate) fn reusable(&self, uid: &str, nodes: NodeMask, kind: &str) -> u64 {
        let own = self.reusable.get(uid).and_then(|own| own.get(&nodes));
        own.and_then(|own| own.get(kind)).copied().unwrap_or(0)
    }

    /// Takes the memory of a container away. Reports whether it had some.
    pub(crate) fn remove(&mut self, uid: &str, container: &str) -> bool {
        let Some(pod) = self.blocks.get_mut(uid) else {
            return false;
        };
        let Some(blocks) = pod.remove(container) else {
            return false;
        };
        if pod.is_empty() {
            self.blocks.remove(uid);
            self.reusable.remove(uid);
        }
        for block in blocks {
            free(&mut self.machine, &block);
        }
        true
    }
}

/// Amounts of a kind on a node; none where it has none.
pub(crate) fn amounts(machine: &Machine, node: u32, kind: &str) -> Amounts {
    let node = machine.get(&node);
    let own = node.and_then(|node| node.memory_map.get(kind));
    own.copied().unwrap_or_default()
}

/// Takes so many bytes of nodes, of the first ones first, and groups the nodes.
pub(crate) fn take(machine: &mut Machine, nodes: &[u32], kind: &str, mut bytes: u64) {
    for number in nodes {
        let Some(node) = machine.get_mut(number) else {
            continue;
        };
        node.number_of_assignments += 1;
        node.cells = nodes.to_vec();
        if let Some(own) = node.memory_map.get_mut(kind) {
            let taken = own.free.min(bytes);
            own.free -= taken;
            own.reserved += taken;
            bytes -= taken;
        }
    }
}

fn free(machine: &mut Machine, block: &Block) {
    let mut bytes = block.size;
    for number in &block.nodes {
        let Some(node) = machine.get_mut(number) else {
            continue;
        };
        node.number_of_assignments = node.number_of_assignments.saturating_sub(1);
        if node.number_of_assignments == 0 {
            node.cells = vec![*number];
        }
        if let Some(own) = node.memory_map.get_mut(&block.kind) {
            let freed = own.reserved.min(bytes);
            own.reserved -= freed;
            own.free += freed;
            bytes -= freed;
        }
    }
}
