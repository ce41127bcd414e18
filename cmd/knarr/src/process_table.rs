//! The processes of the machine, with their parents: known by the files that they hold open and the directories that they work in.
//!
//! The kernel shows paths as the process has them, which in a container may be anything: a file counts where the path leads
//! here to the very same file.

use node_sys::process::ProcessIdentity;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// See the module.
#[derive(Debug)]
pub(crate) struct Table(BTreeMap<u32, u32>);

impl Table {
    pub(crate) fn read() -> anyhow::Result<Self> {
        let entries = fs::read_dir("/proc")?.flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Ok(Self(pids.filter_map(|pid| Some((pid, parent(pid)?))).collect()))
    }

    fn others(&self) -> impl Iterator<Item = u32> {
        let own = std::process::id();
        self.0.keys().copied().filter(move |pid| *pid != own)
    }

    /// Processes that hold a file below the folder open, as far as its owner may name them.
    pub(crate) fn with_open_files_below(&self, folder: &Path) -> Vec<u32> {
        let holds = |pid: &u32| {
            let open = fs::read_dir(format!("/proc/{pid}/fd"))
                .into_iter()
                .flatten()
                .flatten();
            open.map(|entry| entry.path())
                .any(|link| leads_below(&link, folder))
        };
        named_by_owner(folder, self.others().filter(holds))
    }

    /// Processes whose working directory lies below the folder, as far as its owner may name them.
    pub(crate) fn working_below(&self, folder: &Path) -> Vec<u32> {
        let works = |pid: &u32| leads_below(Path::new(&format!("/proc/{pid}/cwd")), folder);
        named_by_owner(folder, self.others().filter(works))
    }

    /// Everything that these processes have started, and what that has started.
    pub(crate) fn descendants(&self, of: &[u32]) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        let mut parents: BTreeSet<u32> = of.iter().copied().collect();
        while !parents.is_empty() {
            let children = self.0.iter().filter(|(_, parent)| parents.contains(parent));
            let children: BTreeSet<u32> = children.map(|(pid, _)| *pid).collect();
            parents = children.difference(&found).copied().collect();
            found.extend(&parents);
        }
        found.retain(|pid| !of.contains(pid));
        found
    }
}

/// Processes that the folder's owner may name: programs of root, such as those that make backups, read the folders of users, too.
fn named_by_owner(folder: &Path, pids: impl Iterator<Item = u32>) -> Vec<u32> {
    let Ok(owner) = fs::metadata(folder).map(|found| found.uid()) else {
        return Vec::new();
    };
    pids.filter(|pid| identity(*pid).is_some_and(|process| process.is_named_by(owner)))
        .collect()
}

/// Reports whether a link of `/proc` leads to a file below the folder. A process that ended meanwhile has no files.
fn leads_below(link: &Path, folder: &Path) -> bool {
    let shown = fs::read_link(link).ok();
    let is_same = |shown: &Path| identity_of(link).is_some_and(|own| identity_of(shown) == Some(own));
    shown.is_some_and(|shown| shown.starts_with(folder) && is_same(&shown))
}

/// Device and inode of a file that can be read.
fn identity_of(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold blanks and parentheses itself.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The process, while it lives.
pub(crate) fn identity(pid: u32) -> Option<ProcessIdentity> {
    ProcessIdentity::of(pid).ok()
}
