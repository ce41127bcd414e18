//! Amounts that are left, by signal. Pure but for [`Readings::take`].

use std::collections::BTreeMap;
use std::path::Path;

use node_sys::cgroup::Cgroups;
use node_sys::fs::FsUsage;
use node_sys::vitals::Vitals;

use super::signal::Signal;

/// An amount that is left, of all there is: bytes, inodes or processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Observation {
    /// Left.
    pub(crate) available: i64,
    /// In all.
    pub(crate) capacity: i64,
}

/// Observations of one moment. A signal that cannot be read is not there, and none of its thresholds is met.
pub(crate) type Observations = BTreeMap<Signal, Observation>;

/// Figures of the machine at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Readings {
    /// Memory that is available, and all of it; zero where it is not known.
    pub(crate) memory: (u64, u64),
    /// Memory that pods use, and what they may use together.
    pub(crate) pods_memory: Option<(u64, u64)>,
    /// The file system of volumes and logs.
    pub(crate) node_fs: FsUsage,
    /// The file system of images and containers, where it is another.
    pub(crate) image_fs: Option<FsUsage>,
    /// Tasks that run, and the largest number of them.
    pub(crate) tasks: Option<(u64, u64)>,
}

impl Readings {
    /// Reads the machine. `pods` is the group of all pods and its limit of memory. Blocks.
    pub(crate) fn take(
        vitals: &dyn Vitals,
        cgroups: &dyn Cgroups,
        pods: (&str, Option<i64>),
        node_fs: &Path,
        image_fs: Option<&Path>,
    ) -> Self {
        let limit = pods.1.and_then(|limit| u64::try_from(limit).ok());
        Self {
            memory: vitals.memory_bytes(),
            pods_memory: limit.map(|limit| (cgroups.stats(pods.0).memory_working_set_bytes, limit)),
            node_fs: vitals.room(node_fs).unwrap_or_default(),
            image_fs: image_fs.map(|path| vitals.room(path).unwrap_or_default()),
            tasks: vitals.tasks(),
        }
    }

    /// The signals. Percentages of a file system refer to what can be used of it: blocks kept for others are neither used
    /// nor free.
    pub(crate) fn observations(&self) -> Observations {
        let mut all = Observations::new();
        let mut add = |signal: Signal, available: u64, capacity: u64| {
            let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
            if capacity > 0 {
                let (available, capacity) = (signed(available), signed(capacity));
                all.insert(signal, Observation { available, capacity });
            }
        };
        add(Signal::MemoryAvailable, self.memory.0, self.memory.1);
        if let Some((used, limit)) = self.pods_memory {
            add(
                Signal::AllocatableMemoryAvailable,
                limit.saturating_sub(used),
                limit,
            );
        }
        let (node, image) = (self.node_fs, self.image_fs.unwrap_or(self.node_fs));
        add(Signal::NodeFsAvailable, node.available_bytes, node.usable_bytes);
        add(Signal::NodeFsInodesFree, node.inodes_free, node.inodes);
        add(
            Signal::ImageFsAvailable,
            image.available_bytes,
            image.usable_bytes,
        );
        add(Signal::ImageFsInodesFree, image.inodes_free, image.inodes);
        if let Some((running, max)) = self.tasks {
            add(Signal::PidAvailable, max.saturating_sub(running), max);
        }
        all
    }
}
