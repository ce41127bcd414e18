//! Mounts, control groups and vitals in memory; the first two fail now and then.

use machinery_runtime::Runtime;
use node_sys::cgroup::{
    CgroupError, CgroupResources, CgroupStats, Cgroups, GroupFigures, HugePageLimits, MemoryFigures,
};
use node_sys::fs::FsUsage;
use node_sys::mount::{MountError, Mounter, TmpfsOptions};
use node_sys::vitals::Vitals;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// One in so many calls fails; none at zero.
#[derive(Debug, Default)]
struct Faults(AtomicU64);

impl Faults {
    fn strike(&self, runtime: &Runtime) -> std::io::Result<()> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            one_in if runtime.random_u64().is_multiple_of(one_in) => {
                Err(std::io::ErrorKind::ResourceBusy.into())
            }
            _ => Ok(()),
        }
    }
}

/// Mount points.
#[derive(Debug)]
pub(crate) struct ModelMounts {
    runtime: Runtime,
    faults: Faults,
    points: Mutex<BTreeSet<PathBuf>>,
}

impl ModelMounts {
    pub(crate) fn new(runtime: Runtime) -> Self {
        Self {
            runtime,
            faults: Faults::default(),
            points: Mutex::default(),
        }
    }

    pub(crate) fn fail_one_in(&self, count: u64) {
        self.faults.0.store(count, Ordering::Relaxed);
    }

    pub(crate) fn points(&self) -> Vec<PathBuf> {
        self.points.lock().iter().cloned().collect()
    }

    fn strike(&self, path: &Path) -> Result<(), MountError> {
        let struck = self.faults.strike(&self.runtime);
        struck.map_err(|source| MountError {
            action: "mounting or unmounting",
            path: path.to_owned(),
            source,
        })
    }
}

impl Mounter for ModelMounts {
    fn bind(&self, _: &Path, target: &Path) -> Result<(), MountError> {
        self.strike(target)?;
        self.points.lock().insert(target.to_owned());
        Ok(())
    }

    fn tmpfs(&self, target: &Path, _: &TmpfsOptions) -> Result<(), MountError> {
        self.strike(target)?;
        let new = self.points.lock().insert(target.to_owned());
        assert!(new, "{} is mounted twice", target.display());
        Ok(())
    }

    fn unmount(&self, target: &Path) -> Result<(), MountError> {
        self.strike(target)?;
        if self.points.lock().remove(target) && target.is_dir() {
            // What lay in memory is gone; the folder below it is empty.
            std::fs::remove_dir_all(target)
                .and_then(|()| std::fs::create_dir(target))
                .unwrap();
        }
        Ok(())
    }

    fn showing(&self, _: &Path) -> Result<Vec<PathBuf>, MountError> {
        Ok(Vec::new())
    }

    fn below(&self, prefix: &Path) -> Result<Vec<PathBuf>, MountError> {
        let points = self.points.lock();
        let found = points.iter().rev().filter(|point| point.starts_with(prefix));
        Ok(found.cloned().collect())
    }
}

/// Control groups.
#[derive(Debug)]
pub(crate) struct ModelGroups {
    runtime: Runtime,
    faults: Faults,
    groups: Mutex<BTreeMap<String, CgroupResources>>,
    /// Working sets by the end of a group's path.
    used: Mutex<BTreeMap<String, u64>>,
}

impl ModelGroups {
    /// Sets the working set of the groups whose path ends so.
    pub(crate) fn set_used(&self, end: &str, bytes: u64) {
        self.used.lock().insert(end.to_owned(), bytes);
    }

    pub(crate) fn new(runtime: Runtime) -> Self {
        Self {
            runtime,
            faults: Faults::default(),
            groups: Mutex::default(),
            used: Mutex::default(),
        }
    }

    pub(crate) fn fail_one_in(&self, count: u64) {
        self.faults.0.store(count, Ordering::Relaxed);
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.groups.lock().keys().cloned().collect()
    }

    fn strike(&self, path: &str) -> Result<(), CgroupError> {
        let struck = self.faults.strike(&self.runtime);
        struck.map_err(|source| CgroupError {
            action: "changing",
            path: path.into(),
            source,
        })
    }
}

fn is_below(path: &str, group: &str) -> bool {
    path.strip_prefix(group)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Cgroups for ModelGroups {
    fn apply(&self, path: &str, resources: &CgroupResources) -> Result<(), CgroupError> {
        self.strike(path)?;
        let mut groups = self.groups.lock();
        let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
        for end in ends {
            groups.entry(path[..end].to_owned()).or_default();
        }
        groups.insert(path.to_owned(), *resources);
        Ok(())
    }

    fn limit_huge_pages(&self, path: &str, _: &HugePageLimits) -> Result<(), CgroupError> {
        self.strike(path)?;
        assert!(self.exists(path), "{path} is limited before it is made");
        Ok(())
    }

    fn remove(&self, path: &str) -> Result<(), CgroupError> {
        self.strike(path)?;
        self.groups.lock().retain(|found, _| !is_below(found, path));
        Ok(())
    }

    fn limits(&self, path: &str) -> CgroupResources {
        self.groups.lock().get(path).copied().unwrap_or_default()
    }

    fn stats(&self, path: &str) -> CgroupStats {
        let used = self.used.lock();
        let own = used.iter().find(|(end, _)| path.ends_with(end.as_str()));
        CgroupStats {
            memory_working_set_bytes: own.map_or(0, |(_, bytes)| *bytes),
            ..CgroupStats::default()
        }
    }

    fn figures(&self, path: &str) -> Option<GroupFigures> {
        let known = self.exists(path);
        let memory = MemoryFigures {
            usage: Some(self.stats(path).memory_working_set_bytes),
            ..MemoryFigures::default()
        };
        known.then(|| GroupFigures {
            memory,
            ..GroupFigures::default()
        })
    }

    fn exists(&self, path: &str) -> bool {
        self.groups.lock().contains_key(path)
    }

    fn children(&self, path: &str) -> Vec<String> {
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let groups = self.groups.lock();
        let below = groups.keys().filter_map(|found| found.strip_prefix(&prefix));
        below
            .filter(|rest| !rest.contains('/'))
            .map(str::to_owned)
            .collect()
    }

    fn version(&self) -> u8 {
        2
    }

    fn has_memory_file(&self, _: &str, _: &str) -> bool {
        true
    }
}

/// Resources that the machine has left: plenty, unless a test says otherwise.
pub(crate) struct ModelVitals {
    /// Available memory.
    pub(crate) memory_bytes: AtomicU64,
    /// Reads the available bytes of the disk.
    disk_bytes: Mutex<Box<dyn Fn() -> u64 + Send>>,
}

const MEMORY_BYTES: u64 = 64 << 30;
const DISK_BYTES: u64 = 1 << 40;

impl Default for ModelVitals {
    fn default() -> Self {
        Self {
            memory_bytes: AtomicU64::new(MEMORY_BYTES / 2),
            disk_bytes: Mutex::new(Box::new(|| DISK_BYTES / 2)),
        }
    }
}

impl std::fmt::Debug for ModelVitals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelVitals").finish_non_exhaustive()
    }
}

impl ModelVitals {
    /// Sets what is read as the available bytes of the disk.
    pub(crate) fn set_disk(&self, bytes: impl Fn() -> u64 + Send + 'static) {
        *self.disk_bytes.lock() = Box::new(bytes);
    }
}

impl Vitals for ModelVitals {
    fn memory_bytes(&self) -> (u64, u64) {
        (self.memory_bytes.load(Ordering::Relaxed), MEMORY_BYTES)
    }

    fn room(&self, _: &Path) -> std::io::Result<FsUsage> {
        let available = (self.disk_bytes.lock())();
        Ok(FsUsage {
            capacity_bytes: DISK_BYTES,
            usable_bytes: DISK_BYTES,
            available_bytes: available,
            free_bytes: available,
            inodes: 1000,
            inodes_free: 900,
        })
    }

    fn device(&self, _: &Path) -> std::io::Result<u64> {
        Ok(1)
    }

    fn tasks(&self) -> Option<(u64, u64)> {
        Some((100, 1 << 20))
    }
}
