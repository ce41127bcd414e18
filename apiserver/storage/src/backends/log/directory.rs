//! The files of a data directory, as they are found. Looking changes nothing.

use super::active::Active;
use super::checkpoint::Checkpoint;
use super::format::{ActiveHeader, FileHeader, HeaderError, SECTOR, unknown_version};
use super::segment::Segment;
use crate::StorageError;
use machinery_meta::Revision;
use machinery_runtime::{Disk, DiskLock, OpenMode};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const LOCK_NAME: &str = "LOCK";
/// The state of an unfinished `restore`; a server does not start beside it.
pub(super) const RESTORE_DRAFT: &str = "restore.tmp";

/// Takes the directory for this process alone.
pub(super) fn lock(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn DiskLock>, StorageError> {
    disk.lock(&dir.join(LOCK_NAME))
        .map_err(|error| not_locked(dir, error))
}

/// The same for a reader, which makes nothing: a directory without a lock file was never used, and in one that may only be
/// read runs no server.
pub(super) fn lock_to_read(disk: &dyn Disk, dir: &Path) -> Result<Option<Box<dyn DiskLock>>, StorageError> {
    match disk.lock_existing(&dir.join(LOCK_NAME)) {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied
            ) =>
        {
            Ok(None)
        }
        taken => taken.map_err(|error| not_locked(dir, error)),
    }
}

fn not_locked(dir: &Path, error: std::io::Error) -> StorageError {
    match error.kind() {
        ErrorKind::WouldBlock => StorageError::Locked(dir.display().to_string()),
        _ => StorageError::io(format!("locking {}", dir.display()))(error),
    }
}

/// The names in a directory, unless a restore into it was not finished.
pub(super) fn names(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>, StorageError> {
    let names = disk.list(dir);
    let names = names.map_err(StorageError::io(format!("listing {}", dir.display())))?;
    if names.iter().any(|name| name == RESTORE_DRAFT) {
        return Err(StorageError::Corrupt {
            file: dir.join(RESTORE_DRAFT).display().to_string(),
            offset: 0,
            found: "a restore into this directory was not finished: restore again".to_owned(),
        });
    }
    Ok(names)
}

/// Contents of the directory.
pub(super) struct Found {
    /// By number of the first batch.
    pub(super) segments: Vec<Arc<Segment>>,
    /// Oldest first.
    pub(super) checkpoints: Vec<Arc<Checkpoint>>,
    pub(super) last_index: u64,
    pub(super) problems: Vec<String>,
    /// Files that were begun and never finished; nothing is in them.
    pub(super) leftovers: Vec<PathBuf>,
}

impl Found {
    pub(super) fn open(
        (disk, dir): (&dyn Disk, &Path),
        mode: OpenMode,
        names: Vec<String>,
        active: Option<ActiveHeader>,
    ) -> Result<Self, StorageError> {
        let mut found = Self {
            segments: Vec::new(),
            checkpoints: Vec::new(),
            last_index: 0,
            problems: Vec::new(),
            leftovers: Vec::new(),
        };
        for name in names {
            let path = dir.join(&name);
            if let Some(index) = Segment::index_of(&name) {
                found.last_index = found.last_index.max(index);
                // Only the segment that `ACTIVE` names had a durable header; another blank one is the remnant
                // of a crash.
                let begun = active.is_some_and(|active| index == active.index);
                match open_segment(disk, &path, mode, begun)? {
                    Some(segment) => found.segments.push(Arc::new(segment)),
                    None => found.leftovers.push(path),
                }
            } else if Checkpoint::revision_of(&name).is_some() {
                match Checkpoint::open(disk, &path) {
                    Ok(checkpoint) => found.checkpoints.push(Arc::new(checkpoint)),
                    // Not a damaged checkpoint to be left out: an older one would silently take an upgraded
                    // store back.
                    Err(error @ StorageError::NewerFormat { .. }) => return Err(error),
                    Err(error) => found.problems.push(error.to_string()),
                }
            } else if Checkpoint::is_draft(&name) {
                found.leftovers.push(path);
            }
        }
        found
            .segments
            // By the first batch: a segment that repeats a batch takes its number away from the one before, and
            // has the higher index.
            .sort_by_key(|segment| (segment.header.first_batch, segment.header.index));
        found.checkpoints.sort_by_key(|checkpoint| checkpoint.revision());
        Ok(found)
    }

    /// Errors: [`StorageError::Corrupt`] where the newest segment was lost, or `ACTIVE`, which alone would say so.
    pub(super) fn has_newest(&self, active: &Active) -> Result<(), StorageError> {
        let corrupt = |file: &Path, found: &str| StorageError::Corrupt {
            file: file.display().to_string(),
            offset: 0,
            found: found.to_owned(),
        };
        let mut segments = self.segments.iter();
        let Some(named) = active.found() else {
            if !active.is_lost() || !segments.any(|segment| segment.header.is_guarded) {
                return Ok(());
            }
            let found = "the file that names the newest segment of the log is missing";
            return Err(corrupt(active.path(), found));
        };
        if named.index == 0 || segments.any(|segment| segment.header.index == named.index) {
            return Ok(());
        }
        let dir = active.path().parent().unwrap_or(Path::new(""));
        let path = Segment::path(dir, named.index);
        Err(corrupt(&path, "the newest segment of the log is missing"))
    }

    /// Errors: [`StorageError::Corrupt`] where the log ends before a batch that was durable.
    pub(super) fn is_whole(&self, active: &Active, next_batch: u64) -> Result<(), StorageError> {
        let durable = active.found().map_or(0, |found| found.batch);
        match self.segments.last() {
            Some(newest) if next_batch <= durable => {
                let found = format!("the log ends here, batches {next_batch} to {durable} are missing");
                Err(newest.corrupt(newest.end(), &found))
            }
            _ => Ok(()),
        }
    }

    /// The problem of a log that begins too late: it must begin after the newest checkpoint that is not above the
    /// floor, or at the first batch.
    pub(super) fn begins_late(&self, floor: Revision) -> Option<String> {
        let mut bases = self.checkpoints.iter().rev();
        let base = bases.find(|checkpoint| checkpoint.revision() <= floor);
        let expected = base.map_or(0, |checkpoint| checkpoint.header.batch) + 1;
        let first = self.segments.first()?;
        (first.header.first_batch > expected).then(|| {
            format!(
                "the log begins with batch {} of {}, batch {expected} and what follows it are missing",
                first.header.first_batch,
                first.path.display()
            )
        })
    }

    /// The newest segment; 0 where there is none.
    pub(super) fn newest_index(&self) -> u64 {
        self.segments.last().map_or(0, |newest| newest.header.index)
    }

    /// Nothing was ever stored here.
    pub(super) fn is_fresh(&self) -> bool {
        self.segments.is_empty() && self.checkpoints.is_empty() && self.problems.is_empty()
    }

    /// The store's id, on which all files must agree.
    pub(super) fn store(&self, fresh: u64, active: &Active) -> Result<u64, StorageError> {
        let of_segments = self
            .segments
            .iter()
            .map(|segment| (segment.header.store, &segment.path));
        let of_checkpoints = self
            .checkpoints
            .iter()
            .map(|checkpoint| (checkpoint.header.store, &checkpoint.path));
        let of_active = active.found().map(|found| (found.store, active.path()));
        let mut all = of_segments.chain(of_checkpoints).chain(of_active);
        let Some((store, _)) = all.next() else {
            return Ok(fresh);
        };
        match all.find(|(other, _)| *other != store) {
            None => Ok(store),
            Some((_, path)) => Err(StorageError::Corrupt {
                file: path.display().to_string(),
                offset: 0,
                found: "the file belongs to another store".to_owned(),
            }),
        }
    }
}

/// A segment, or nothing when it was never begun: its header is written last.
pub(super) fn open_segment(
    disk: &dyn Disk,
    path: &Path,
    mode: OpenMode,
    begun: bool,
) -> Result<Option<Segment>, StorageError> {
    let failed = || StorageError::io(format!("reading {}", path.display()));
    let file = disk.open(path, mode).map_err(failed())?;
    let mut sector = vec![0; SECTOR];
    let read = file.read_at(0, &mut sector).map_err(failed())?;
    match FileHeader::decode(&sector[..read]) {
        Ok(FileHeader::Segment(header)) => Ok(Some(Segment::new(header, path.to_owned(), file))),
        Err(HeaderError::Blank) if !begun => Ok(None),
        Err(HeaderError::Unknown(found)) => Err(unknown_version(path, found)),
        Ok(_) | Err(HeaderError::Damaged | HeaderError::Blank) => Err(StorageError::Corrupt {
            file: path.display().to_string(),
            offset: 0,
            found: "the header of a segment is damaged".to_owned(),
        }),
    }
}
