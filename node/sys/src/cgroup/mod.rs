//! Pod cgroups: limits of a group, what it used, and removing it again; names of groups by their driver, and groups that are
//! systemd's slices.
//!
//! A path is absolute within the hierarchy (`/kubepods/burstable/pod<uid>`); with cgroup v1 it stands
//! for the same path in every mounted hierarchy. The runtime makes a container's own group below the
//! pod's; the agent alone removes the pod's.

mod driver;
mod figures;
mod systemd;
mod v1;
mod v2;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use driver::CgroupDriver;
pub use figures::{
    CpuFigures, DeviceIo, GroupFigures, GroupLimits, IoAmounts, MemoryFigures, Pressure, PressureFigures,
    TaskFigures,
};
pub use systemd::{Slices, SystemdCgroups};
pub use v1::CgroupsV1;
pub use v2::CgroupsV2;

/// The kernel's period of processor time, in microseconds.
const DEFAULT_PERIOD_US: u64 = 100_000;

/// The v2 weight that stands for v1 shares: 2..262144 onto 1..10000.
fn cpu_weight(shares: u64) -> u64 {
    let shares = shares.clamp(2, 262_144);
    1 + (shares - 2) * 9999 / 262_142
}

/// Conventional mount point of cgroups.
pub const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// A group that could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}", path.display())]
pub struct CgroupError {
    /// Operation.
    pub action: &'static str,
    /// File of the action.
    pub path: PathBuf,
    /// Cause.
    #[source]
    pub source: std::io::Error,
}

/// Limits of a group. `None` leaves a limit as it is, a negative number removes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CgroupResources {
    /// Relative weight in cgroup v1's terms, 2 to 262144.
    pub cpu_shares: Option<u64>,
    /// Processor time per period, in microseconds.
    pub cpu_quota_us: Option<i64>,
    /// The period, in microseconds.
    pub cpu_period_us: Option<u64>,
    /// Memory in bytes.
    pub memory_limit_bytes: Option<i64>,
    /// Processes and threads.
    pub pids_limit: Option<i64>,
}

/// Limits of huge pages: bytes by the size of a page in bytes.
pub type HugePageLimits = BTreeMap<u64, u64>;

/// The kernel's name of a size of huge pages: `2MB`.
pub fn huge_page_name(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
    let (mut size, mut unit) = (bytes, 0);
    while size >= 1024 && unit + 1 < UNITS.len() {
        size /= 1024;
        unit += 1;
    }
    format!("{size}{}", UNITS[unit])
}

/// Usage of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CgroupStats {
    /// Processor time since the group was made, in nanoseconds.
    pub cpu_usage_nanoseconds: u64,
    /// Memory charged, in bytes.
    pub memory_usage_bytes: u64,
    /// Memory charged less the page cache that could go at once.
    pub memory_working_set_bytes: u64,
    /// Anonymous memory, in bytes.
    pub memory_rss_bytes: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Swap in bytes, where the kernel counts it.
    pub swap_bytes: Option<u64>,
    /// Its limit, of memory and swap together in version 1; `None` is no limit.
    pub swap_limit_bytes: Option<u64>,
}

/// Control groups of either version.
pub trait Cgroups: Send + Sync + std::fmt::Debug {
    /// Creates a group if it is missing and sets its limits.
    fn apply(&self, path: &str, resources: &CgroupResources) -> Result<(), CgroupError>;
    /// Limits the huge pages of a group that is there; of sizes that are not named it may have none. Without the controller nothing
    /// is limited.
    fn limit_huge_pages(&self, path: &str, limits: &HugePageLimits) -> Result<(), CgroupError>;
    /// Kills the processes of a group and removes it with all groups below. A missing group is no error.
    fn remove(&self, path: &str) -> Result<(), CgroupError>;
    /// Its limits as the kernel has them: processor time, and memory where it is limited at all.
    fn limits(&self, path: &str) -> CgroupResources;
    /// Usage of a group; zero for a missing one.
    fn stats(&self, path: &str) -> CgroupStats;
    /// All figures of a group; `None` for a missing one.
    fn figures(&self, path: &str) -> Option<GroupFigures>;
    /// Reports whether a group is there.
    fn exists(&self, path: &str) -> bool;
    /// Names of the groups directly below.
    fn children(&self, path: &str) -> Vec<String>;
    /// 1 or 2.
    fn version(&self) -> u8;
    /// Reports whether the memory controller has this file in a group.
    fn has_memory_file(&self, path: &str, name: &str) -> bool;
}

/// The machine's own control groups.
pub fn detect() -> Arc<dyn Cgroups> {
    let root = Path::new(CGROUP_ROOT);
    let unified = nix::sys::statfs::statfs(root)
        // The mount itself decides, as in upstream's `IsCgroup2UnifiedMode`: on hybrid machines v2 is mounted
        // below, without controllers.
        .is_ok_and(|stat| stat.filesystem_type() == nix::sys::statfs::CGROUP2_SUPER_MAGIC);
    if unified {
        Arc::new(CgroupsV2::new(root))
    } else {
        Arc::new(CgroupsV1::from_mounts())
    }
}

fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    std::fs::write(path, value).map_err(|source| CgroupError {
        action: "writing",
        path: path.to_path_buf(),
        source,
    })
}

/// Writes limits of huge pages into a group's files, whose names end in a word of the version's own. Pages that are reserved
/// are limited as those in use, where the kernel counts them (5.7).
fn write_huge_page_limits(folder: &Path, word: &str, limits: &HugePageLimits) -> Result<(), CgroupError> {
    for size in huge_page_sizes(folder, word) {
        let named = limits.iter().find(|(bytes, _)| huge_page_name(**bytes) == size);
        let limit = named.map_or(0, |(_, limit)| *limit).to_string();
        write(&folder.join(format!("hugetlb.{size}.{word}")), &limit)?;
        let reserved = folder.join(format!("hugetlb.{size}.rsvd.{word}"));
        if reserved.try_exists().unwrap_or(false) {
            write(&reserved, &limit)?;
        }
    }
    Ok(())
}

fn huge_page_sizes(folder: &Path, word: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let name = entry.file_name();
        let middle = name.to_str()?.strip_prefix("hugetlb.")?.strip_suffix(word)?;
        let size = middle.strip_suffix('.')?;
        (!size.contains('.')).then(|| size.to_owned())
    });
    sizes.collect()
}

fn read_number(path: &Path) -> u64 {
    std::fs::read_to_string(path)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

/// A number, or `None` where there is none, as of a limit that is `max`.
fn read_number_of(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number after `name` in a file of `name number` lines.
fn read_keyed(path: &Path, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

/// A limit in bytes; v1 writes none as the largest number of whole pages.
fn read_limit(path: &Path) -> Option<i64> {
    const NONE_FROM: i64 = i64::MAX - (1 << 20);
    let text = std::fs::read_to_string(path).ok()?;
    let limit: i64 = text.trim().parse().ok()?;
    (0..NONE_FROM).contains(&limit).then_some(limit)
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn names(folders: Vec<PathBuf>) -> Vec<String> {
    folders
        .iter()
        .filter_map(|path| path.file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// Attempts to remove a group: a killed process leaves it a moment after the signal.
const REMOVE_ATTEMPTS: u32 = 20;

/// Removes a group's folder and those below it, killing what still runs inside.
fn remove_tree(folder: &Path) -> Result<(), CgroupError> {
    for child in folders(folder) {
        // Innermost first: the kernel removes no group that has groups below it.
        remove_tree(&child)?;
    }
    for attempt in 0..REMOVE_ATTEMPTS {
        match std::fs::remove_dir(folder) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(source) if attempt + 1 == REMOVE_ATTEMPTS => {
                return Err(CgroupError {
                    action: "removing",
                    path: folder.to_path_buf(),
                    source,
                });
            }
            Err(_) => {
                // Killed only after a failed removal: an empty group costs one system call. A process may fork
                // meanwhile, hence again in each attempt.
                kill_members(folder);
                std::thread::sleep(std::time::Duration::from_millis(u64::from(attempt)));
            }
        }
    }
    Ok(())
}

fn kill_members(folder: &Path) {
    let members = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    for pid in members.lines().filter_map(|line| line.parse::<i32>().ok()) {
        // Not ours to report: a process that has just ended is what we want.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
}
