//! Folders of volumes that are made on this node, one per volume, below the agent's own.
//!
//! The control plane requests them by name; where they lie is decided here, and only names of volumes that it makes
//! (`pvc-UID`) are taken. A folder that is to go is renamed first, so that no pod gets it any more, and is removed in the
//! background: its owner may have filled it with anything. An unfinished removal is finished by the next one of that name.
//!
//! Never: a folder is removed below which something is mounted.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use machinery_runtime::Runtime;
use node_sys::fs;
use node_sys::mount::{LinuxMounter, Mounter};

/// A disk with less room than this is full.
const MIN_AVAILABLE_BYTES: u64 = 64 << 20;
/// Removals at a time; more are requested again.
const MAX_REMOVALS: usize = 4;
/// Mode of a volume's folder: as that of an emptyDir.
const MODE: u32 = 0o777;
/// Beginning of the names of folders that are being removed.
const REMOVED: &str = ".removed-";

/// A folder could not be made or removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocalVolumeError {
    /// The name is none of a volume.
    #[error("{0:?} is no name of a volume")]
    Name(String),
    /// The disk is full.
    #[error("no space left on the disk of local volumes: {0}")]
    NoRoom(String),
    /// Something is mounted below the folder.
    #[error("the volume is mounted, or something below it: {0}")]
    Mounted(String),
    /// The file system refused.
    #[error("{doing} a local volume: {source}")]
    Io {
        /// Action.
        doing: &'static str,
        /// Cause.
        source: std::io::Error,
    },
}

fn io(doing: &'static str) -> impl FnOnce(std::io::Error) -> LocalVolumeError {
    move |source| match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => LocalVolumeError::NoRoom(source.to_string()),
        _ => LocalVolumeError::Io { doing, source },
    }
}

/// State of a folder that is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// It is not there.
    Gone,
    /// It is being removed.
    Going,
}

/// The folders of one node.
#[derive(Debug)]
pub(crate) struct LocalVolumes {
    root: PathBuf,
    /// Names whose folders are being removed.
    going: Mutex<BTreeSet<String>>,
    failed: Mutex<Option<(String, String)>>,
}

impl LocalVolumes {
    /// Folders below this one.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self {
            root,
            going: Mutex::default(),
            failed: Mutex::default(),
        }
    }

    /// Makes the folder of a volume, where it is not there, and returns its path. Blocks.
    pub(crate) fn make(&self, name: &str) -> Result<PathBuf, LocalVolumeError> {
        let path = self.path(name)?;
        fs::make_own_folder(&self.root).map_err(io("making"))?;
        if path.try_exists().map_err(io("looking for"))? {
            return Ok(path);
        }
        let usage = fs::usage(&self.root).map_err(io("measuring"))?;
        if usage.available_bytes < MIN_AVAILABLE_BYTES || (usage.inodes > 0 && usage.inodes_free == 0) {
            let left = format!("{} bytes are available", usage.available_bytes);
            return Err(LocalVolumeError::NoRoom(left));
        }
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(io("making")(error)),
            _ => {}
        }
        fs::set_mode(&path, MODE).map_err(io("setting the mode of"))?;
        Ok(path)
    }

    /// Takes the folder of a volume away and begins to remove it.
    pub(crate) fn remove(
        self: &Arc<Self>,
        runtime: &Runtime,
        name: &str,
    ) -> Result<Removal, LocalVolumeError> {
        let path = self.path(name)?;
        let mut going = self.going.lock().unwrap_or_else(PoisonError::into_inner);
        if going.contains(name) {
            return Ok(Removal::Going);
        }
        let removed = self.root.join(format!("{REMOVED}{name}"));
        let there = |path: &Path| path.try_exists().map_err(io("looking for"));
        if !there(&path)? && !there(&removed)? {
            return Ok(Removal::Gone);
        }
        if going.len() >= MAX_REMOVALS {
            return Ok(Removal::Going);
        }
        if let Some(why) = self.failure_of(name) {
            return Err(LocalVolumeError::Io {
                doing: "removing",
                source: std::io::Error::other(why),
            });
        }
        take_away(&path, &removed)?;
        going.insert(name.to_owned());
        let (this, name, runtime) = (Arc::clone(self), name.to_owned(), runtime.clone());
        let work = runtime.clone();
        let remove = async move {
            let outcome = work.blocking(move || fs::remove_tree(&removed)).await;
            this.finished(&name, outcome.map_err(|error| error.to_string()));
        };
        runtime.spawn("removal of a local volume", remove).detach();
        Ok(Removal::Going)
    }

    fn finished(&self, name: &str, outcome: Result<std::io::Result<()>, String>) {
        let mut going = self.going.lock().unwrap_or_else(PoisonError::into_inner);
        going.remove(name);
        drop(going);
        let why = match outcome {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(ended) => ended,
        };
        tracing::warn!(volume = name, error = %why, "local volume not removed");
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        *failed = Some((name.to_owned(), why));
    }

    /// The reason for which the last removal failed, where it was of this volume. It is returned once: the next call tries again.
    fn failure_of(&self, name: &str) -> Option<String> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.take_if(|own| own.0 == name).map(|(_, why)| why)
    }

    fn path(&self, name: &str) -> Result<PathBuf, LocalVolumeError> {
        if is_name(name) {
            Ok(self.root.join(name))
        } else {
            Err(LocalVolumeError::Name(name.chars().take(64).collect()))
        }
    }
}

/// Renames the folder, where nothing is mounted below it, and no pod has it mounted: one that writes on could keep its removal
/// from ever ending, whatever let its claim go.
fn take_away(path: &Path, removed: &Path) -> Result<(), LocalVolumeError> {
    for path in [path, removed] {
        let mut mounts = LinuxMounter.below(path);
        if let (Ok(all), true) = (&mut mounts, path.try_exists().map_err(io("looking for"))?) {
            all.extend(LinuxMounter.showing(path).unwrap_or_default());
        }
        let mounts = mounts.map_err(|error| LocalVolumeError::Mounted(error.to_string()))?;
        if let Some(mount) = mounts.first() {
            return Err(LocalVolumeError::Mounted(mount.display().to_string()));
        }
    }
    if removed.try_exists().map_err(io("looking for"))? {
        return Ok(());
    }
    std::fs::rename(path, removed).map_err(io("taking away"))
}

/// Reports whether it is `pvc-` and a uid.
fn is_name(name: &str) -> bool {
    let Some(uid) = name.strip_prefix("pvc-") else {
        return false;
    };
    let groups: Vec<&str> = uid.split('-').collect();
    let is_hex = |group: &&str| {
        group
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    lengths == [8, 4, 4, 4, 12] && groups.iter().all(is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const NAME: &str = "pvc-0a1b2c3d-0000-4000-8000-0123456789ab";

    #[test]
    fn names_of_volumes_alone_are_taken() {
        assert!(is_name(NAME));
        for wrong in [
            "",
            "pvc-",
            "pvc-..",
            "..",
            "pvc-0a1b2c3d-0000-4000-8000-0123456789a",
            "pvc-0a1b2c3d-0000-4000-8000-0123456789AB",
            "pvc-0a1b2c3d-0000-4000-8000-01234567/9ab",
            ".removed-pvc-0a1b2c3d-0000-4000-8000-0123456789ab",
        ] {
            assert!(!is_name(wrong), "{wrong}");
        }
    }

    #[tokio::test]
    async fn folder_is_made_once_and_removed_with_all_that_is_in_it() {
        let data = tempfile::tempdir().unwrap();
        let volumes = Arc::new(LocalVolumes::new(data.path().join("local-volumes")));
        let path = volumes.make(NAME).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, MODE);
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        let outside = data.path().join("outside");
        std::fs::write(&outside, "kept").unwrap();
        std::os::unix::fs::symlink(data.path(), path.join("a/away")).unwrap();
        assert_eq!(volumes.make(NAME).unwrap(), path);
        assert!(path.join("a/b").is_dir(), "what is there stays");
        let runtime = Runtime::real();
        while volumes.remove(&runtime, NAME).unwrap() == Removal::Going {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            std::fs::read_dir(data.path().join("local-volumes"))
                .unwrap()
                .count(),
            0
        );
        assert_eq!(std::fs::read_to_string(outside).unwrap(), "kept");
        assert_eq!(volumes.remove(&runtime, NAME).unwrap(), Removal::Gone);
    }

    #[tokio::test]
    async fn removal_that_an_agent_did_not_finish_is_finished() {
        let data = tempfile::tempdir().unwrap();
        let volumes = Arc::new(LocalVolumes::new(data.path().to_owned()));
        let left = data.path().join(format!("{REMOVED}{NAME}"));
        std::fs::create_dir_all(left.join("a")).unwrap();
        let runtime = Runtime::real();
        while volumes.remove(&runtime, NAME).unwrap() == Removal::Going {
            tokio::task::yield_now().await;
        }
        assert!(!left.try_exists().unwrap());
    }
}
