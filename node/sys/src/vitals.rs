//! Resources that the machine has left now: memory, room on file systems, process ids.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::fs::{FsUsage, usage};
use crate::machine::memory_bytes;

/// Resources of the machine that its programs share, as they are at the moment of the call. All methods may block.
pub trait Vitals: Send + Sync + std::fmt::Debug {
    /// Memory that new work could use, and all there is, in bytes; zero where it is not known.
    fn memory_bytes(&self) -> (u64, u64);
    /// Room on the file system that holds a path.
    fn room(&self, path: &Path) -> std::io::Result<FsUsage>;
    /// Number of the device that holds a path.
    fn device(&self, path: &Path) -> std::io::Result<u64>;
    /// Processes and threads that run, and the largest number of them; `None` where it is not known.
    fn tasks(&self) -> Option<(u64, u64)>;
}

/// This machine's own.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinuxVitals;

impl Vitals for LinuxVitals {
    fn memory_bytes(&self) -> (u64, u64) {
        memory_bytes()
    }

    fn room(&self, path: &Path) -> std::io::Result<FsUsage> {
        usage(path)
    }

    fn device(&self, path: &Path) -> std::io::Result<u64> {
        Ok(std::fs::metadata(path)?.dev())
    }

    fn tasks(&self) -> Option<(u64, u64)> {
        let read = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
        let running = running_tasks(&read("/proc/loadavg"))?;
        let limits = ["pid_max", "threads-max"].map(|name| read(&format!("/proc/sys/kernel/{name}")));
        let limits = limits.iter().filter_map(|text| text.trim().parse().ok());
        Some((running, limits.min()?))
    }
}

/// Number of all scheduling entities, from `/proc/loadavg` (proc(5)): `0.20 0.18 0.12 1/80 11206`.
fn running_tasks(load: &str) -> Option<u64> {
    let entities = load.split(' ').nth(3)?;
    entities.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vitals_of_this_machine_are_within_its_limits() {
        assert_eq!(running_tasks("0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!(running_tasks(""), None);
        let (running, max) = LinuxVitals.tasks().unwrap();
        assert!(running > 0 && running < max, "{running} of {max}");
        let (available, all) = LinuxVitals.memory_bytes();
        assert!(available > 0 && available <= all);
        let folder = Path::new("/");
        assert!(LinuxVitals.room(folder).unwrap().capacity_bytes > 0);
        assert_eq!(
            LinuxVitals.device(folder).unwrap(),
            LinuxVitals.device(Path::new("/.")).unwrap()
        );
    }
}
