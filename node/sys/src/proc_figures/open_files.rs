//! Files that processes have open.

use std::fs::{metadata, read_dir, read_link};
use std::path::Path;

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

/// Counts the open files of processes. One that has ended has none.
pub fn open_files(processes: &[i32]) -> OpenFiles {
    count(Path::new("/proc"), processes, NAMES_MAX)
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

fn count(proc: &Path, processes: &[i32], names_max: usize) -> OpenFiles {
    if processes.len() > PROCESSES_MAX {
        return OpenFiles::default();
    }
    let (mut descriptors, mut sockets, mut left) = (Some(0), Some(0), names_max);
    for process in processes {
        let folder = proc.join(process.to_string()).join("fd");
        let names = names(&folder, left + 1);
        let counted = u64::try_from(names.len()).unwrap_or(u64::MAX);
        if names.len() > left {
            sockets = None;
            // Kernels from 6.2 on say the number as the folder's size.
            let size = metadata(&folder).map_or(0, |found| found.len());
            descriptors = descriptors.filter(|_| size >= counted).map(|sum| sum + size);
            left = 0;
            continue;
        }
        left -= names.len();
        descriptors = descriptors.map(|sum| sum + counted);
        let own = names.iter().filter(|name| is_socket(&folder.join(name))).count();
        sockets = sockets.map(|sum| sum + u64::try_from(own).unwrap_or(0));
    }
    OpenFiles { descriptors, sockets }
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

    #[test]
    fn open_files_are_counted_up_to_a_bound() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("7/fd");
        std::fs::create_dir_all(&folder).unwrap();
        for (name, target) in [("0", "/dev/null"), ("1", "socket:[4]"), ("2", "pipe:[5]")] {
            symlink(target, folder.join(name)).unwrap();
        }
        let known = OpenFiles {
            descriptors: Some(3),
            sockets: Some(1),
        };
        assert_eq!(count(root.path(), &[7, 8], 3), known, "process 8 has ended");
        assert_eq!(count(root.path(), &[7], 2).sockets, None);
        assert_eq!(
            count(root.path(), &vec![7; PROCESSES_MAX + 1], 3),
            OpenFiles::default()
        );
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(open_files(&[own]).descriptors >= Some(3));
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n";
        assert_eq!(limit(limits), Some(1024));
        assert_eq!(
            limit("Max open files            unlimited            unlimited            files"),
            None
        );
    }
}
