//! In-place resize: changes of the resources of running containers.
//!
//! The specification has the desired resources, the record of this node the allocated ones, and the limits that its
//! groups were given last are the actuated ones. They are equal for most pods, most of the time. A changed specification
//! is allocated if the node has the resources ([`allocation`]); otherwise the pod keeps its old allocation and waits. The
//! rest of the worker sees the pod with its allocation put in. Where that differs from what is actuated, [`steps`] has the
//! order of the changes of limits, [`conditions`] the pod's conditions and events meanwhile, and [`actual`] the resources
//! in its status.
//!
//! Never: a limit that is larger in a container than in its pod's group, not even for a moment.

pub(crate) mod actual;
pub(crate) mod allocation;
pub(crate) mod conditions;
pub(crate) mod steps;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use serde::{Deserialize, Serialize};

use super::{all_containers, spec};
use crate::containers::resources::{limit, request};

/// The record's file in the pod's folder: allocation and actuation outlive the agent.
const RECORD_FILE: &str = "resources.json";

/// Resources of a container that can change while it runs, in thousandths of a processor and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Amounts {
    /// Its processor request and limit; zero where there is none.
    pub(crate) cpu: (i64, i64),
    /// The same of memory.
    pub(crate) memory: (i64, i64),
}

impl Amounts {
    /// Amounts of a container.
    pub(crate) fn of(container: &Container) -> Self {
        let pair = |name: &str, number: fn(machinery_meta::Quantity) -> i64| {
            let one = |amount: Option<machinery_meta::Quantity>| amount.map_or(0, number);
            (one(request(container, name)), one(limit(container, name)))
        };
        Self {
            cpu: pair("cpu", machinery_meta::Quantity::millis),
            memory: pair("memory", machinery_meta::Quantity::units),
        }
    }
}

/// Resources of a whole pod: its own, and its containers' by name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Resources {
    /// Resources of the pod as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<ResourceRequirements>,
    /// Resources of each container.
    pub(crate) containers: BTreeMap<String, ResourceRequirements>,
}

impl Resources {
    /// Reads the specification of a pod.
    pub(crate) fn of(pod: &Pod) -> Self {
        let containers = all_containers(pod).map(|(_, container)| {
            let own = container.resources.clone().unwrap_or_default();
            (container.name.clone(), own)
        });
        Self {
            pod: spec(pod).resources.clone(),
            containers: containers.collect(),
        }
    }

    /// The pod with these instead of its own. Containers not named here keep theirs.
    pub(crate) fn put_into(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        // The common case: no clone of the pod in each round.
        if Self::of(pod) == *self {
            return pod.clone();
        }
        let mut changed = Pod::clone(pod);
        if let Some(spec) = &mut changed.spec {
            spec.resources.clone_from(&self.pod);
            let inits = spec.init_containers.iter_mut().flatten();
            for container in inits.chain(&mut spec.containers) {
                if let Some(own) = self.containers.get(&container.name) {
                    container.resources = Some(own.clone());
                }
            }
        }
        Arc::new(changed)
    }

    /// The container with these instead of its own.
    pub(crate) fn put_into_container(&self, container: &Container) -> Container {
        let mut changed = container.clone();
        if let Some(own) = self.containers.get(&container.name) {
            changed.resources = Some(own.clone());
        }
        changed
    }
}

/// Record of a pod's resources on this node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Allocated resources.
    pub(crate) allocated: Resources,
    /// Resources that each container was given last.
    pub(crate) actuated: Resources,
    /// Resources from which the limits of the pod's group were derived.
    pub(crate) group: Resources,
}

impl Record {
    /// Resources of a pod this node sees for the first time: its requests, as the scheduler found room for them.
    pub(crate) fn new(pod: &Pod) -> Self {
        let resources = Resources::of(pod);
        Self {
            allocated: resources.clone(),
            actuated: resources.clone(),
            group: resources,
        }
    }

    /// Loads the record that an earlier agent saved.
    pub(crate) fn load(folder: &Path) -> Option<Self> {
        let text = std::fs::read(folder.join(RECORD_FILE)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Keeps it for an agent after this one. A reader sees this record or the one before, never half of one.
    pub(crate) fn store(&self, folder: &Path) -> std::io::Result<()> {
        let text = serde_json::to_vec(self)?;
        std::fs::create_dir_all(folder)?;
        node_sys::fs::write_atomically(&folder.join(RECORD_FILE), &text, 0o600)
    }
}

/// A running container whose amounts differ from those it was given last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resize {
    /// Its name.
    pub(crate) name: String,
    /// The runtime's id.
    pub(crate) id: String,
    /// Resources given last.
    pub(crate) from: Amounts,
    /// Resources to give.
    pub(crate) to: Amounts,
}

/// Reports whether the resize policy of a container requires a restart for this change.
pub(crate) fn asks_for_restart(container: &Container, from: Amounts, to: Amounts) -> bool {
    let changed = |name: &str| match name {
        "cpu" => from.cpu != to.cpu,
        "memory" => from.memory != to.memory,
        _ => false,
    };
    let policies = container.resize_policy.iter().flatten();
    let mut restarting = policies.filter(|policy| policy.restart_policy == "RestartContainer");
    restarting.any(|policy| changed(&policy.resource_name))
}
