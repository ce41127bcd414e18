//! The network namespace of this process, where it is not the machine's own, and how others come into it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files by which `ip netns` keeps namespaces.
const NAMED: &str = "/run/netns";

/// A network namespace that is not the machine's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetworkNamespace {
    /// Its file below [`NAMED`], where it has a name.
    file: Option<PathBuf>,
}

impl NetworkNamespace {
    /// The one that this process is in; `None` in the machine's own, which is that of the first process. Where that one is hidden,
    /// a namespace with a name is not the machine's.
    pub(crate) fn of_this_process() -> Option<Self> {
        let (own, first) = (number("self")?, number("1"));
        Self::of(file(own), first.map(|first| first == own))
    }

    fn of(file: Option<PathBuf>, is_first: Option<bool>) -> Option<Self> {
        match is_first {
            Some(true) => None,
            Some(false) => Some(Self { file }),
            None => file.map(|file| Self { file: Some(file) }),
        }
    }

    /// The one that a process is in, where this process is in another one.
    pub(crate) fn elsewhere(pid: u32) -> Option<Self> {
        let (own, other) = (number("self")?, number(&pid.to_string())?);
        (own != other).then(|| Self { file: file(other) })
    }

    /// Beginning of a command line that enters it.
    pub(crate) fn entry(&self) -> String {
        match &self.file {
            Some(file) => format!("nsenter --net={}", file.display()),
            None => "nsenter --net=/proc/PID/ns/net".to_owned(),
        }
    }
}

/// The number of a process's network namespace.
fn number(process: &str) -> Option<u64> {
    let found = fs::metadata(format!("/proc/{process}/ns/net")).ok()?;
    Some(found.ino())
}

/// The file that keeps a network namespace, where it has one.
pub(crate) fn file(namespace: u64) -> Option<PathBuf> {
    let entries = fs::read_dir(Path::new(NAMED)).into_iter().flatten().flatten();
    let is_it = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.ino() == namespace);
    entries.map(|entry| entry.path()).find(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_namespace_of_the_machine_is_none() {
        let file = || Some(PathBuf::from("/run/netns/lab"));
        assert_eq!(NetworkNamespace::of(file(), Some(true)), None);
        assert!(NetworkNamespace::of(None, Some(false)).is_some());
        assert!(NetworkNamespace::of(file(), None).is_some());
        assert_eq!(NetworkNamespace::of(None, None), None);
    }

    #[test]
    fn network_namespace_is_entered_by_its_name() {
        let named = NetworkNamespace {
            file: Some("/run/netns/lab".into()),
        };
        assert_eq!(named.entry(), "nsenter --net=/run/netns/lab");
        assert!(NetworkNamespace { file: None }.entry().contains("/proc/PID/"));
    }
}
