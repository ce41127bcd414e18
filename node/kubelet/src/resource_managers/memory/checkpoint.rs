//! The file of what containers have, in upstream's format (`memory_manager_state`): the third version in `data`, and the first
//! beside it, of which older kubelets read.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::table::{Blocks, Machine, MemoryTable, NodeMemory};
use crate::resource_managers::go_checksum::of_print;
use crate::resource_managers::state_file::{self, ManagerData};
use crate::saving::Checkpointed;

const FILE: &str = "memory_manager_state";

/// Everything about memory that changes.
#[derive(Debug, Clone)]
pub(crate) struct MemoryState {
    /// Name of the policy.
    pub(crate) policy: &'static str,
    pub(crate) table: MemoryTable,
    /// Number of changes.
    pub(crate) generation: u64,
}

/// The authoritative part, as a text of JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Data {
    policy_name: String,
    machine_state: Machine,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: Blocks,
}

impl MemoryState {
    /// Nothing yet.
    pub(crate) fn new(policy: &'static str) -> Self {
        Self {
            policy,
            table: MemoryTable::default(),
            generation: 0,
        }
    }

    /// Reads what an agent with this policy has saved; `None` where there is nothing. Blocks.
    ///
    /// # Errors
    /// Upstream's sentence: it is damaged, or another policy's.
    pub(crate) fn load(folder: &Path, policy: &str) -> Result<Option<MemoryTable>, String> {
        state_file::load(folder, |data: Data| data.table(policy))
    }
}

impl Checkpointed for MemoryState {
    type Data = Data;

    const FILE: &'static str = FILE;

    fn generation(&self) -> u64 {
        self.generation
    }

    fn data(&self) -> Data {
        Data {
            policy_name: self.policy.to_owned(),
            machine_state: self.table.machine.clone(),
            entries: self.table.blocks.clone(),
        }
    }

    fn store(data: Data, folder: &Path) -> io::Result<()> {
        state_file::store(&data, folder)
    }
}

impl ManagerData for Data {
    const FILE: &'static str = FILE;
    const MANAGER: &'static str = "memory manager";
    const VERSION: &'static str = "v3";

    /// Checksum of the first version.
    fn checksum(&self) -> u32 {
        of_print(&self.print())
    }
}

impl Data {
    /// The first version as Go's `spew` prints it.
    fn print(&self) -> String {
        let nodes = self
            .machine_state
            .iter()
            .map(|(number, node)| format!("{number}:{}", print_node(node)));
        let pods = self.entries.iter().map(|(pod, containers)| {
            let containers = containers.iter().map(|(name, blocks)| {
                let blocks = blocks.iter().map(|block| {
                    format!(
                        "{{NUMAAffinity:([]int){} Type:(v1.ResourceName){} Size:(uint64){}}}",
                        print_numbers(&block.nodes),
                        block.kind,
                        block.size
                    )
                });
                format!("{name}:[{}]", joined(blocks))
            });
            format!("{pod}:map[{}]", joined(containers))
        });
        format!(
            "(*state.MemoryManagerCheckpoint){{PolicyName:(string){} MachineState:(state.NUMANodeMap)map[{}] \
             Entries:(state.ContainerMemoryAssignments)map[{}] Checksum:(checksum.Checksum)0}}",
            self.policy_name,
            joined(nodes),
            joined(pods)
        )
    }

    fn table(self, policy: &str) -> Result<MemoryTable, String> {
        if self.policy_name != policy {
            return Err(format!(
                "[memorymanager] configured policy {policy:?} differs from state checkpoint policy {:?}",
                self.policy_name
            ));
        }
        Ok(MemoryTable {
            machine: self.machine_state,
            blocks: self.entries,
            reusable: BTreeMap::new(),
        })
    }
}

fn print_node(node: &NodeMemory) -> String {
    let kinds = node.memory_map.iter().map(|(kind, own)| {
        format!(
            "{kind}:<*>{{TotalMemSize:(uint64){} SystemReserved:(uint64){} Allocatable:(uint64){} Reserved:(uint64){} \
             Free:(uint64){}}}",
            own.total, own.system_reserved, own.allocatable, own.reserved, own.free
        )
    });
    format!(
        "<*>{{NumberOfAssignments:(int){} MemoryMap:(map[v1.ResourceName]*state.MemoryTable)map[{}] Cells:([]int){}}}",
        node.number_of_assignments,
        joined(kinds),
        print_numbers(&node.cells)
    )
}

fn print_numbers(numbers: &[u32]) -> String {
    format!("[{}]", joined(numbers.iter().map(u32::to_string)))
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files that upstream's kubelet has written.
    const UPSTREAM: &str = include_str!("testdata/memory_manager_state.json");
    const UPSTREAM_NONE: &str = include_str!("testdata/memory_manager_state_none.json");
    const UPSTREAM_V1: &str = include_str!("testdata/memory_manager_state_v1.json");

    fn load(text: &str, policy: &str) -> Result<Option<MemoryTable>, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), text).unwrap();
        MemoryState::load(folder.path(), policy)
    }

    fn stored(policy: &'static str, table: MemoryTable) -> String {
        let folder = tempfile::tempdir().unwrap();
        let state = MemoryState {
            policy,
            table,
            generation: 1,
        };
        MemoryState::store(state.data(), folder.path()).unwrap();
        std::fs::read_to_string(folder.path().join(FILE)).unwrap()
    }

    #[test]
    fn memory_state_of_upstream_is_read_and_written() {
        let table = load(UPSTREAM, "Static").unwrap().unwrap();
        assert_eq!(table.machine[&1].cells, [0, 1]);
        assert_eq!(table.own("pod1", "b").unwrap()[0].size, 5);
        assert_eq!(stored("Static", table.clone()), UPSTREAM);
        assert_eq!(load(UPSTREAM_V1, "Static"), Ok(Some(table)));
        assert_eq!(stored("None", MemoryTable::default()), UPSTREAM_NONE);
    }

    #[test]
    fn memory_state_that_is_damaged_is_not_guessed_at() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(MemoryState::load(folder.path(), "Static"), Ok(None));
        for (text, policy, why) in [
            (
                UPSTREAM.to_owned(),
                "None",
                "[memorymanager] configured policy \"None\" differs from state checkpoint policy \"Static\"",
            ),
            (
                UPSTREAM.replace("\\\"free\\\":5", "\\\"free\\\":6"),
                "Static",
                "could not load v3 checkpoint: checkpoint is corrupted",
            ),
            (
                UPSTREAM_V1.replace("\"free\":5", "\"free\":6"),
                "Static",
                "checkpoint is corrupted",
            ),
        ] {
            let found = load(&text, policy).unwrap_err();
            let expected = format!(
                "could not restore state from checkpoint: {why}, please drain this node and delete the memory manager checkpoint file"
            );
            assert!(found.starts_with(&expected), "{found}");
        }
    }
}
