//! Files that processes have open.

use std::fs::{metadata, read_dir, read_link};
use std::path::{Path, PathBuf};
use std::time::Duration;

use machinery_runtime::Runtime;

/// Processes and names that are looked at for one group.
const PROCESSES_MAX: usize = 1024;
const NAMES_MAX: usize = 4096;

/// Files that the processes of a group have open; `None` where they are too many to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenFiles {
    /// Descriptors.
    pub descriptors: Option<u64>,
    /// Sockets among them.
    pub sockets: Option<u64>,
}

/// Names and time that are left to a reading of many groups for their open files. A process costs one name beside its own.
#[derive(Debug)]
pub struct FileBudget {
    runtime: Runtime,
    names: usize,
    until: Duration,
}

impl FileBudget {
    /// A budget of names, and of time from now on.
    pub fn new(runtime: Runtime, names: usize, time: Duration) -> Self {
        let until = runtime.monotonic() + time;
        Self {
            runtime,
            names,
            until,
        }
    }

    fn is_spent(&self) -> bool {
        self.names == 0 || self.runtime.monotonic() >= self.until
    }

    fn take(&mut self, names: usize) {
        self.names = self.names.saturating_sub(names);
    }
}

/// Counts the open files of a group's processes while the budget lasts. A process that has ended has none.
pub fn open_files(processes: &[i32], budget: &mut FileBudget) -> OpenFiles {
    count(Path::new("/proc"), processes, NAMES_MAX, budget)
}

/// Files that a process may have open at once, its soft limit; `None` where there is none.
pub fn open_file_limit(process: i32) -> Option<u64> {
    limit(&std::fs::read_to_string(format!("/proc/{process}/limits")).ok()?)
}

fn limit(limits: &str) -> Option<u64> {
    let values = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    values.split_ascii_whitespace().next()?.parse().ok()
}

fn count(proc: &Path, processes: &[i32], names_max: usize, budget: &mut FileBudget) -> OpenFiles {
    if processes.len() > PROCESSES_MAX {
        return OpenFiles::default();
    }
    let (mut descriptors, mut sockets, mut left) = (0, 0, names_max);
    for (at, process) in processes.iter().enumerate() {
        if budget.is_spent() {
            return OpenFiles::default();
        }
        let folder = folder(proc, *process);
        let most = left.min(budget.names);
        let names = names(&folder, most + 1);
        budget.take(names.len() + 1);
        if names.len() > most {
            // Too many names to read each: the size of the folder gives the number without the kinds.
            let rest = sizes(proc, &processes[at..], names.len(), budget);
            return OpenFiles {
                descriptors: rest.map(|rest| descriptors + rest),
                sockets: None,
            };
        }
        left -= names.len();
        descriptors += number(names.len());
        sockets += number(names.iter().filter(|name| is_socket(&folder.join(name))).count());
    }
    OpenFiles {
        descriptors: Some(descriptors),
        sockets: Some(sockets),
    }
}

fn folder(proc: &Path, process: i32) -> PathBuf {
    proc.join(process.to_string()).join("fd")
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Descriptors of processes by the size of their folders, which is their number in kernels from 6.2 on; in older ones it is
/// less than what was seen in the first.
fn sizes(proc: &Path, processes: &[i32], seen: usize, budget: &mut FileBudget) -> Option<u64> {
    let mut sum = 0;
    for process in processes {
        if budget.is_spent() {
            return None;
        }
        budget.take(1);
        sum += metadata(folder(proc, *process)).map_or(0, |found| found.len());
        if sum < number(seen) {
            return None;
        }
    }
    Some(sum)
}

fn names(folder: &Path, max: usize) -> Vec<std::ffi::OsString> {
    let Ok(entries) = read_dir(folder) else {
        return Vec::new();
    };
    let names = entries.filter_map(Result::ok).map(|entry| entry.file_name());
    names.take(max).collect()
}

fn is_socket(link: &Path) -> bool {
    read_link(link).is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const LONG: Duration = Duration::from_secs(3_600);

    fn budget(names: usize, time: Duration) -> FileBudget {
        FileBudget::new(Runtime::real(), names, time)
    }

    #[tokio::test]
    async fn open_files_are_counted_up_to_a_bound() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("7/fd");
        std::fs::create_dir_all(&folder).unwrap();
        for (name, target) in [("0", "/dev/null"), ("1", "socket:[4]"), ("2", "pipe:[5]")] {
            symlink(target, folder.join(name)).unwrap();
        }
        let count = |processes: &[i32], max| count(root.path(), processes, max, &mut budget(9_000, LONG));
        let known = OpenFiles {
            descriptors: Some(3),
            sockets: Some(1),
        };
        assert_eq!(count(&[7, 8], 3), known, "process 8 has ended");
        assert_eq!(count(&[7], 2).sockets, None);
        assert_eq!(count(&vec![7; PROCESSES_MAX + 1], 3), OpenFiles::default());
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(open_files(&[own], &mut budget(9_000, LONG)).descriptors >= Some(3));
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n";
        assert_eq!(limit(limits), Some(1024));
        assert_eq!(
            limit("Max open files            unlimited            unlimited            files"),
            None
        );
    }

    #[tokio::test]
    async fn open_files_of_one_group_take_no_more_than_the_reading_may_spend() {
        let root = tempfile::tempdir().unwrap();
        let processes: Vec<i32> = (1..=100).collect();
        for process in &processes {
            let folder = folder(root.path(), *process);
            std::fs::create_dir_all(&folder).unwrap();
            for name in 0..10 {
                symlink("/dev/null", folder.join(name.to_string())).unwrap();
            }
        }
        // A group at its bound: one process is read, one in part, and none of the rest is opened.
        let mut ample = budget(1_000, LONG);
        assert_eq!(count(root.path(), &processes, 10, &mut ample).sockets, None);
        assert_eq!(ample.names, 1_000 - 11 - 2 - 99);
        // A reading at its bound: nothing more is looked at, of whatever group.
        let mut small = budget(55, LONG);
        assert_eq!(
            count(root.path(), &processes, 4_096, &mut small),
            OpenFiles::default()
        );
        assert_eq!(
            count(root.path(), &processes[..1], 4_096, &mut small),
            OpenFiles::default()
        );
        let mut late = budget(1_000, Duration::ZERO);
        assert_eq!(
            count(root.path(), &processes[..1], 4_096, &mut late),
            OpenFiles::default()
        );
        assert_eq!(late.names, 1_000);
    }
}
