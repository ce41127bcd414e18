//! The file of what containers have, in upstream's format (`memory_manager_state`): the third version in `data`, and the first
//! beside it, of which older kubelets read.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::table::{Blocks, Machine, MemoryTable, NodeMemory};
use crate::resource_managers::go_checksum::{of_print, of_text};
use crate::saving::Checkpointed;

const FILE: &str = "memory_manager_state";
/// A larger file is not read, and not written.
const BYTES_MAX: u64 = 16 << 20;

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

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    policy_name: String,
    machine_state: Machine,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: Blocks,
    #[serde(default)]
    checksum: u64,
    #[serde(default)]
    data: String,
    #[serde(default)]
    data_checksum: u64,
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
        let file = folder.join(FILE);
        let read = match node_sys::fs::read_regular(&file, BYTES_MAX + 1) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => Err(error.to_string()),
            Ok(bytes) => decode(&bytes).and_then(|data| data.table(policy)),
        };
        read.map(Some).map_err(|error| {
            format!(
                "could not restore state from checkpoint: {error}, please drain this node and delete the memory manager \
                 checkpoint file {:?} before restarting Kubelet",
                file.display().to_string()
            )
        })
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
        let text = encode(data)?;
        if text.len() as u64 > BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        node_sys::fs::write_durably(&folder.join(FILE), &text, 0o600)
    }
}

fn encode(first: Data) -> io::Result<Vec<u8>> {
    let data = serde_json::to_string(&first)?;
    let file = File {
        checksum: first.checksum().into(),
        data_checksum: of_text(&data).into(),
        policy_name: first.policy_name,
        machine_state: first.machine_state,
        entries: first.entries,
        data,
    };
    Ok(serde_json::to_vec(&file)?)
}

fn decode(text: &[u8]) -> Result<Data, String> {
    if text.len() as u64 > BYTES_MAX {
        return Err("checkpoint is too large".to_owned());
    }
    let file: File = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let first = Data {
        policy_name: file.policy_name,
        machine_state: file.machine_state,
        entries: file.entries,
    };
    let corrupted = || "checkpoint is corrupted".to_owned();
    if file.data.is_empty() && file.data_checksum == 0 {
        // Upstream takes a file without a checksum, too: of its first format.
        let is_whole = file.checksum == 0 || file.checksum == u64::from(first.checksum());
        return is_whole.then_some(first).ok_or_else(corrupted);
    }
    if file.data_checksum != u64::from(of_text(&file.data)) {
        return Err(format!("could not load v3 checkpoint: {}", corrupted()));
    }
    serde_json::from_str(&file.data)
        .map_err(|error| format!("failed to deserialize memory manager checkpoint data: {error}"))
}

impl Data {
    /// Checksum of the first version.
    fn checksum(&self) -> u32 {
        of_print(&self.print())
    }

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
