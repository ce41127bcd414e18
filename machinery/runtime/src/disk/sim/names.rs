//! Names of files and directories: as a process sees them, and as a power loss leaves them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, Default)]
pub(super) struct Names {
    current: Table,
    durable: Table,
    /// Changes since the directory they are in was synced, in order.
    unsynced: Vec<NameChange>,
    /// Directories that were made here, now or before a power loss; any other has always been there.
    made: BTreeSet<PathBuf>,
}

#[derive(Debug, Default, Clone)]
struct Table {
    files: BTreeMap<PathBuf, u64>,
    dirs: BTreeSet<PathBuf>,
}

#[derive(Debug, Clone)]
pub(super) enum NameChange {
    Bind { name: PathBuf, file: u64 },
    Rename { from: PathBuf, to: PathBuf, file: u64 },
    Unbind { name: PathBuf },
    Make { name: PathBuf },
}

impl Names {
    pub(super) fn file(&self, path: &Path) -> Option<u64> {
        self.current.files.get(path).copied()
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&PathBuf, &u64)> {
        self.current.files.iter()
    }

    /// The files that have a name.
    pub(super) fn bound(&self) -> BTreeSet<u64> {
        self.current.files.values().copied().collect()
    }

    pub(super) fn change(&mut self, change: NameChange) {
        if let NameChange::Make { name } = &change {
            self.made.insert(name.clone());
        }
        self.current.apply(change.clone());
        self.unsynced.push(change);
    }

    /// Makes the changes within one directory durable.
    pub(super) fn sync(&mut self, dir: &Path) {
        for change in std::mem::take(&mut self.unsynced) {
            if change.name().parent() == Some(dir) {
                self.durable.apply(change);
            } else {
                self.unsynced.push(change);
            }
        }
    }

    /// Keeps some of the changes that were not synced. A lost directory loses its files.
    pub(super) fn lose_power(&mut self, mut keeps: impl FnMut() -> bool) {
        for change in std::mem::take(&mut self.unsynced) {
            if keeps() {
                self.durable.apply(change);
            }
        }
        let durable = &mut self.durable;
        let made = &self.made;
        let there = durable.dirs.clone();
        let reached = |path: &Path| is_reached(path, made, &there);
        durable.dirs.retain(|dir| reached(dir));
        durable.files.retain(|name, _| reached(name));
        self.current = durable.clone();
    }

    /// Directories to make, the uppermost first.
    pub(super) fn missing_dirs(&self, dir: &Path) -> Vec<PathBuf> {
        let mut missing: Vec<PathBuf> = dir
            .ancestors()
            .filter(|dir| dir.parent().is_some() && !self.current.dirs.contains(*dir))
            .map(Path::to_owned)
            .collect();
        missing.reverse();
        missing
    }

    pub(super) fn has_parent(&self, path: &Path) -> io::Result<()> {
        if is_reached(path, &self.made, &self.current.dirs) {
            Ok(())
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }
}

/// Reports whether every directory above exists.
fn is_reached(path: &Path, made: &BTreeSet<PathBuf>, there: &BTreeSet<PathBuf>) -> bool {
    let mut above = path.ancestors().skip(1);
    above.all(|dir| !made.contains(dir) || there.contains(dir))
}

impl NameChange {
    fn name(&self) -> &Path {
        match self {
            Self::Bind { name, .. } | Self::Unbind { name } | Self::Make { name } => name,
            Self::Rename { to, .. } => to,
        }
    }
}

impl Table {
    fn apply(&mut self, change: NameChange) {
        match change {
            NameChange::Bind { name, file } => {
                self.files.insert(name, file);
            }
            NameChange::Rename { from, to, file } => {
                self.files.remove(&from);
                self.files.insert(to, file);
            }
            NameChange::Unbind { name } => {
                self.files.remove(&name);
            }
            NameChange::Make { name } => {
                self.dirs.insert(name);
            }
        }
    }
}
