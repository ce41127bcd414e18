//! The file of what containers have, in upstream's format (`cpu_manager_state`): the fourth version in `data`, and the second
//! beside it, of which older kubelets read.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::policy::{Assignments, CpuTable};
use super::set::CpuSet;
use crate::resource_managers::go_checksum::of_print;
use crate::resource_managers::state_file::{self, ManagerData};
use crate::saving::Checkpointed;

const FILE: &str = "cpu_manager_state";

type Entries = BTreeMap<String, BTreeMap<String, String>>;

/// Everything about processors that changes.
#[derive(Debug, Clone)]
pub(crate) struct CpuState {
    /// Name of the policy.
    pub(crate) policy: &'static str,
    pub(crate) table: CpuTable,
    /// Number of changes.
    pub(crate) generation: u64,
}

/// The authoritative part, as a text of JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Data {
    policy_name: String,
    default_cpu_set: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: Entries,
}

impl CpuState {
    /// Nothing yet.
    pub(crate) fn new(policy: &'static str) -> Self {
        Self {
            policy,
            table: CpuTable::default(),
            generation: 0,
        }
    }

    /// Reads what an agent with this policy has saved; `None` where there is nothing. Blocks.
    ///
    /// # Errors
    /// Upstream's sentence: it is damaged, or another policy's.
    pub(crate) fn load(folder: &Path, policy: &str) -> Result<Option<CpuTable>, String> {
        state_file::load(folder, |data: Data| data.table(policy))
    }
}

impl Checkpointed for CpuState {
    type Data = Data;

    const FILE: &'static str = FILE;

    fn generation(&self) -> u64 {
        self.generation
    }

    fn data(&self) -> Data {
        let texts = |containers: &BTreeMap<String, CpuSet>| {
            let texts = containers.iter();
            texts.map(|(name, own)| (name.clone(), own.to_string())).collect()
        };
        let entries = self.table.assignments.iter();
        Data {
            policy_name: self.policy.to_owned(),
            default_cpu_set: self.table.shared.to_string(),
            entries: entries.map(|(pod, own)| (pod.clone(), texts(own))).collect(),
        }
    }

    fn store(data: Data, folder: &Path) -> io::Result<()> {
        state_file::store(&data, folder)
    }
}

impl ManagerData for Data {
    const FILE: &'static str = FILE;
    const MANAGER: &'static str = "CPU manager";
    const VERSION: &'static str = "v4";

    /// Checksum of the second version.
    fn checksum(&self) -> u32 {
        let pods = self.entries.iter().map(|(pod, containers)| {
            let containers: Vec<String> = containers
                .iter()
                .map(|(name, own)| format!("{name}:{own}"))
                .collect();
            format!("{pod}:map[{}]", containers.join(" "))
        });
        let pods: Vec<String> = pods.collect();
        of_print(&format!(
            "(*state.CPUManagerCheckpoint){{PolicyName:(string){} DefaultCPUSet:(string){} \
             Entries:(map[string]map[string]string)map[{}] Checksum:(checksum.Checksum)0}}",
            self.policy_name,
            self.default_cpu_set,
            pods.join(" ")
        ))
    }
}

impl Data {
    fn table(self, policy: &str) -> Result<CpuTable, String> {
        if self.policy_name != policy {
            return Err(format!(
                "configured policy {policy:?} differs from state checkpoint policy {:?}",
                self.policy_name
            ));
        }
        let shared = CpuSet::parse(&self.default_cpu_set).map_err(|error| {
            format!(
                "could not parse default CPU set {:?}: {error}",
                self.default_cpu_set
            )
        })?;
        let mut assignments = Assignments::new();
        for (pod, containers) in self.entries {
            for (container, text) in containers {
                let own = CpuSet::parse(&text).map_err(|error| {
                    format!(
                        "could not parse cpuset {text:?} for container {container:?} in pod {pod:?}: {error}"
                    )
                })?;
                assignments.entry(pod.clone()).or_default().insert(container, own);
            }
        }
        Ok(CpuTable { shared, assignments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files that upstream's kubelet has written.
    const UPSTREAM: &str = include_str!("testdata/cpu_manager_state.json");
    const UPSTREAM_NONE: &str = include_str!("testdata/cpu_manager_state_none.json");
    const UPSTREAM_V2: &str = include_str!("testdata/cpu_manager_state_v2.json");

    fn load(text: &str, policy: &str) -> Result<Option<CpuTable>, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), text).unwrap();
        let place = folder.path().display().to_string();
        CpuState::load(folder.path(), policy).map_err(|error| error.replace(&place, "HERE"))
    }

    fn stored(policy: &'static str, table: CpuTable) -> String {
        let folder = tempfile::tempdir().unwrap();
        let state = CpuState {
            policy,
            table,
            generation: 1,
        };
        CpuState::store(state.data(), folder.path()).unwrap();
        std::fs::read_to_string(folder.path().join(FILE)).unwrap()
    }

    #[test]
    fn cpu_state_of_upstream_is_read_and_written() {
        let table = load(UPSTREAM, "static").unwrap().unwrap();
        assert_eq!(table.shared.to_string(), "0,2-5");
        assert_eq!(table.own("pod2", "é").unwrap().to_string(), "6-7");
        assert_eq!(stored("static", table.clone()), UPSTREAM);
        assert_eq!(load(UPSTREAM_V2, "static"), Ok(Some(table)));
        assert_eq!(stored("none", CpuTable::default()), UPSTREAM_NONE);
    }

    #[test]
    fn cpu_state_that_is_damaged_is_not_guessed_at() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(CpuState::load(folder.path(), "static"), Ok(None));
        let refused = |text: &str, policy: &str, why: &str| {
            let expected = format!(
                "could not restore state from checkpoint: {why}, please drain this node and delete the CPU manager checkpoint file \
                 \"HERE/cpu_manager_state\" before restarting Kubelet"
            );
            assert_eq!(load(text, policy).unwrap_err(), expected);
        };
        refused(
            UPSTREAM,
            "none",
            "configured policy \"none\" differs from state checkpoint policy \"static\"",
        );
        let corrupted = "could not load v4 checkpoint: checkpoint is corrupted";
        refused(
            &UPSTREAM.replace("\\\"6-7\\\"", "\\\"5-7\\\""),
            "static",
            corrupted,
        );
        refused(
            &UPSTREAM_V2.replace("6-7", "5-7"),
            "static",
            "checkpoint is corrupted",
        );
        let of_old = r#"{"policyName":"static","defaultCpuSet":"x"}"#;
        refused(
            of_old,
            "static",
            "could not parse default CPU set \"x\": strconv.Atoi: parsing \"x\": invalid syntax",
        );
        assert!(load("{", "static").is_err());
    }
}
