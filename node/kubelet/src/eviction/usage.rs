//! Usage of pods, gathered for one decision.

use std::collections::HashMap;

use node_sys::fs::DiskUsage;

use super::pod_storage::PodStorage;
use super::ranking::FilesOf;
use crate::managers::ManagerContext;
use crate::pods::uid;
use crate::server::usage::figures::{ContainerFigures, PodFigures, gather};

/// Usage of a container that runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ContainerUsage {
    /// Its name.
    pub(crate) name: String,
    /// Working set in bytes, where the runtime says.
    pub(crate) memory_bytes: Option<i64>,
    /// Its own files.
    pub(crate) root: DiskUsage,
    /// Its logs.
    pub(crate) logs: DiskUsage,
}

/// Usage of a pod that runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PodUsage {
    /// Working set in bytes.
    pub(crate) memory_bytes: i64,
    /// Processes and threads.
    pub(crate) tasks: u64,
    /// Containers that run, by name.
    pub(crate) containers: Vec<ContainerUsage>,
    /// Volumes on the node's disk, by name.
    pub(crate) volumes: Vec<(String, DiskUsage)>,
}

impl PodUsage {
    /// Bytes and inodes of these files.
    pub(crate) fn disk(&self, files: FilesOf) -> (i64, i64) {
        let containers = self.containers.iter().flat_map(|own| {
            [own.root, own.logs]
                .into_iter()
                .zip([files.root, files.logs])
                .filter(|(_, counts)| *counts)
        });
        let containers = containers.map(|(used, _)| used);
        let volumes = self.volumes.iter().filter(|_| files.volumes);
        let sum: DiskUsage = containers.chain(volumes.map(|(_, used)| *used)).sum();
        (signed(sum.bytes), signed(sum.inodes))
    }

    /// Bytes of everything that its limit of local storage is about.
    pub(crate) fn local_storage_bytes(&self, has_image_fs: bool) -> i64 {
        let all = FilesOf {
            root: !has_image_fs,
            logs: true,
            volumes: true,
        };
        self.disk(all).0
    }
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// Usage of all pods that run, by uid.
pub(crate) async fn usage(
    context: &ManagerContext,
    storage: &HashMap<String, PodStorage>,
) -> Result<HashMap<String, PodUsage>, String> {
    let figures = gather(context).await?;
    let pods = figures.pods.iter().map(|own| {
        let uid = uid(&own.pod).to_owned();
        let storage = storage.get(&uid);
        let usage = of_pod(own, storage.unwrap_or(&PodStorage::default()));
        (uid, usage)
    });
    Ok(pods.collect())
}

fn of_pod(figures: &PodFigures, storage: &PodStorage) -> PodUsage {
    let containers = figures.containers.iter().map(|own| ContainerUsage {
        logs: storage.logs.get(&own.name).copied().unwrap_or_default(),
        ..of_container(own)
    });
    PodUsage {
        memory_bytes: signed(figures.used.memory_working_set_bytes),
        tasks: figures.used.pids,
        containers: containers.collect(),
        volumes: storage
            .volumes
            .iter()
            .map(|(name, used)| (name.clone(), *used))
            .collect(),
    }
}

fn of_container(figures: &ContainerFigures) -> ContainerUsage {
    let value = |value: Option<&node_cri::v1::UInt64Value>| value.map(|value| value.value);
    let layer = figures.stats.writable_layer.as_ref();
    let memory = figures.stats.memory.as_ref();
    let memory = memory.and_then(|memory| value(memory.working_set_bytes.as_ref()));
    ContainerUsage {
        name: figures.name.clone(),
        memory_bytes: memory.map(signed),
        root: DiskUsage {
            bytes: layer
                .and_then(|layer| value(layer.used_bytes.as_ref()))
                .unwrap_or(0),
            inodes: layer
                .and_then(|layer| value(layer.inodes_used.as_ref()))
                .unwrap_or(0),
        },
        logs: DiskUsage::default(),
    }
}
