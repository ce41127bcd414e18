//! A backup becomes the data directory of a new start.
//!
//! All of the backup was read and verified before. Its objects are written as a checkpoint under a draft's name; the
//! rename of that file is the restore. A server does not start beside a draft.

use super::checkpoint::CheckpointWriter;
use super::directory::{LOCK_NAME, RESTORE_DRAFT, lock};
use super::format::{CheckpointHeader, NUMBER_MAX};
use super::offline::OfflineState;
use super::recovery::sync_above;
use crate::StorageError;
use crate::encryption::Encryption;
use machinery_meta::Revision;
use machinery_runtime::Disk;
use std::path::Path;
use std::sync::Arc;

/// Options of a restore.
#[derive(Debug, Clone)]
pub struct RestoreOptions {
    /// Revisions that are passed over, so that none that a client has seen since the backup is given to another change:
    /// clients list again instead.
    pub bump_revision: u64,
    /// The identity of the new store, drawn at random.
    pub store: u64,
    /// Encryption of the records on the disk; values that are encrypted already stay as they are.
    pub encryption: Option<Arc<Encryption>>,
}

/// Result of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// The revision of the backup.
    pub backup_revision: Revision,
    /// The revision that the server goes on from.
    pub revision: Revision,
    pub objects: u64,
}

/// Restores a state into a directory that holds nothing.
///
/// Errors: [`StorageError::NotEmpty`], [`StorageError::RevisionTooLarge`]; then nothing was changed.
pub fn restore(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    state: &OfflineState,
    options: RestoreOptions,
) -> Result<Restored, StorageError> {
    let failed = || StorageError::io(format!("restoring into {}", dir.display()));
    let revision = state.revision.0.saturating_add(options.bump_revision);
    if revision > NUMBER_MAX {
        return Err(StorageError::RevisionTooLarge(NUMBER_MAX));
    }
    disk.create_dir_all(dir).map_err(failed())?;
    let _lock = lock(&**disk, dir)?;
    let names = disk.list(dir).map_err(failed())?;
    let is_own = |name: &&String| *name == LOCK_NAME || *name == RESTORE_DRAFT;
    if let Some(found) = names.iter().find(|name| !is_own(name)) {
        return Err(StorageError::NotEmpty {
            dir: dir.display().to_string(),
            found: found.clone(),
        });
    }
    let draft = dir.join(RESTORE_DRAFT);
    if names.iter().any(|name| name == RESTORE_DRAFT) {
        disk.remove(&draft).map_err(failed())?;
    }
    sync_above(&**disk, dir)?;
    let header = CheckpointHeader {
        store: options.store,
        revision,
        compacted: revision,
        batch: 0,
    };
    let mut writer = CheckpointWriter::begin_as(
        Arc::clone(disk),
        dir,
        draft,
        header,
        (state.root.clone(), options.encryption),
    )?;
    // From here on a server that is started refuses the directory until the rename, also after a power loss.
    disk.sync_dir(dir).map_err(failed())?;
    loop {
        match writer.step() {
            Ok(None) => {}
            Ok(Some(_)) => break,
            Err(error) => {
                writer.abandon();
                return Err(error);
            }
        }
    }
    Ok(Restored {
        backup_revision: state.revision,
        revision: Revision(revision),
        objects: state.root.len() as u64,
    })
}
