//! Room kept for a full disk.
//!
//! Beside the log lie a few pieces: blank files that have their blocks. When the disk refuses a write, the log goes on in
//! a piece, which becomes a segment by its name. So deletions, compaction and the next start need no room of the disk,
//! and nobody else on it can take this room away. The pieces are laid out again when there is room.

use super::format::SECTOR;
use crate::StorageError;
use machinery_runtime::{Disk, OpenMode};
use parking_lot::Mutex;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// The reserve, and whether the disk is full.
#[derive(Debug)]
pub(super) struct Room {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Zero where there is no reserve.
    piece_bytes: u64,
    state: Mutex<State>,
    full: AtomicBool,
    /// Notified when the disk is found full.
    pub(super) filled: Notify,
}

#[derive(Debug, Default)]
struct State {
    pieces: Vec<PathBuf>,
    next: u64,
    refused: u64,
}

/// What metrics tell of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gauge {
    pub(super) full: bool,
    pub(super) refused: u64,
    pub(super) reserve_bytes: u64,
}

/// A reserve is laid out in so many pieces.
const PIECES: u64 = 4;
/// A small file system gives no larger part of it to a piece.
const PART_OF_DISK: u64 = 64;
/// Pieces that only the next start may use.
pub(super) const FOR_RECOVERY: usize = 1;
/// With fewer pieces than this only deletions are written, and the disk counts as full.
const ENOUGH: usize = 2;

impl Room {
    /// The pieces that an earlier run has laid out, among the names in the directory.
    pub(super) fn find(disk: Arc<dyn Disk>, dir: &Path, names: &[String], reserve_bytes: u64) -> Self {
        let piece_bytes = match disk.space(dir) {
            _ if disk.sync_is_free() => 0,
            Ok(space) => (space.total / PART_OF_DISK).min(reserve_bytes / PIECES),
            Err(_) => reserve_bytes / PIECES,
        };
        let numbers: Vec<u64> = names.iter().filter_map(|name| Self::number_of(name)).collect();
        let pieces = numbers.iter().map(|number| Self::path(dir, *number)).collect();
        Self {
            disk,
            dir: dir.to_owned(),
            piece_bytes,
            state: Mutex::new(State {
                pieces,
                next: numbers.iter().max().map_or(0, |last| last + 1),
                ..State::default()
            }),
            full: AtomicBool::new(false),
            filled: Notify::new(),
        }
    }

    fn path(dir: &Path, number: u64) -> PathBuf {
        dir.join(format!("reserve-{number:016x}.room"))
    }

    fn number_of(name: &str) -> Option<u64> {
        u64::from_str_radix(name.strip_prefix("reserve-")?.strip_suffix(".room")?, 16).ok()
    }

    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Whether every piece is there.
    pub(super) fn is_whole(&self) -> bool {
        self.piece_bytes == 0 || self.state.lock().pieces.len() as u64 >= PIECES
    }

    /// Whether changes that prepare a deletion are still written.
    pub(super) fn has_enough(&self) -> bool {
        self.state.lock().pieces.len() >= ENOUGH
    }

    pub(super) fn gauge(&self) -> Gauge {
        let state = self.state.lock();
        Gauge {
            full: self.is_full(),
            refused: state.refused,
            reserve_bytes: self.piece_bytes * state.pieces.len() as u64,
        }
    }

    /// A write was refused because the disk is full.
    pub(super) fn count_refused(&self) {
        self.state.lock().refused += 1;
    }

    /// The disk has refused a write.
    pub(super) fn fill(&self) {
        if !self.full.swap(true, Ordering::AcqRel) {
            tracing::error!(
                dir = %self.dir.display(),
                "no space left on the disk of the data directory: only deletions are written until there is"
            );
            self.filled.notify_one();
        }
    }

    /// Takes a piece and gives it this name, durably, as long as more than `leave` are there. Its length.
    pub(super) fn take(&self, leave: usize, name: &Path) -> Result<u64, StorageError> {
        let piece = {
            let mut state = self.state.lock();
            if state.pieces.len() <= leave {
                return Err(StorageError::NoSpace);
            }
            state.pieces.pop().ok_or(StorageError::NoSpace)?
        };
        let failed = || StorageError::io(format!("using {}", piece.display()));
        let file = self.disk.open(&piece, OpenMode::ReadWrite).map_err(failed())?;
        let mut sector = [0; SECTOR];
        let read = file.read_at(0, &mut sector).map_err(failed())?;
        if sector[..read].iter().any(|byte| *byte != 0) {
            return Err(StorageError::Corrupt {
                file: piece.display().to_string(),
                offset: 0,
                found: "a piece of the reserve is not blank".to_owned(),
            });
        }
        let length = file.len().map_err(failed())?;
        self.disk.rename(&piece, name).map_err(failed())?;
        // Before anything is written: a piece that gets its old name back is blank.
        self.disk.sync_dir(&self.dir).map_err(failed())?;
        Ok(length)
    }

    /// Bytes beyond what a checkpoint takes that it must free, so that it is worth its history.
    pub(super) fn least_gain(&self) -> u64 {
        2 * self.piece_bytes
    }

    /// Gives pieces back to the disk until so many bytes are free on it; none where all of them are not enough. A start
    /// that finds neither pieces nor what was made in their place removes the latter first.
    pub(super) fn lend(&self, needed: u64) -> Result<bool, StorageError> {
        let looked = StorageError::io(format!("looking at the room of {}", self.dir.display()));
        let available = self.disk.space(&self.dir).map_err(looked)?.available;
        let missing = needed.saturating_sub(available);
        let lent = {
            let mut state = self.state.lock();
            let count = missing.div_ceil(self.piece_bytes.max(1));
            let Some(kept) = (state.pieces.len() as u64).checked_sub(count) else {
                return Ok(false);
            };
            let kept = usize::try_from(kept).unwrap_or(usize::MAX);
            state.pieces.split_off(kept)
        };
        for piece in lent {
            let failed = StorageError::io(format!("removing {}", piece.display()));
            self.disk.remove(&piece).map_err(failed)?;
        }
        Ok(true)
    }

    /// Lays out the pieces that are missing, as far as there is room for them. A full disk is no longer full when enough
    /// of them are there and as much is left as one takes.
    pub(super) fn refill(&self) -> Result<(), StorageError> {
        if self.piece_bytes == 0 {
            return Ok(());
        }
        let looked = StorageError::io(format!("looking at the room of {}", self.dir.display()));
        let mut space = self.disk.space(&self.dir).map_err(looked)?;
        loop {
            let pieces = self.state.lock().pieces.len();
            // The first ones come before anything else; the others leave as much as they take.
            let needed = if pieces < ENOUGH { 1 } else { 2 } * self.piece_bytes;
            if pieces as u64 >= PIECES || space.available < needed || !self.lay_out()? {
                break;
            }
            space.available = space.available.saturating_sub(self.piece_bytes);
        }
        if self.is_full() && self.has_enough() && space.available >= self.piece_bytes {
            self.full.store(false, Ordering::Release);
            tracing::info!(dir = %self.dir.display(), "there is space on the disk again: everything is written");
        }
        Ok(())
    }

    /// One more piece; `false` when there is no room for it.
    fn lay_out(&self) -> Result<bool, StorageError> {
        let path = {
            let mut state = self.state.lock();
            state.next += 1;
            Self::path(&self.dir, state.next)
        };
        match self.make_piece(&path) {
            Ok(()) => {
                self.state.lock().pieces.push(path);
                Ok(true)
            }
            Err(error) => {
                let removed = self.disk.remove(&path);
                if is_no_space(error.kind()) {
                    return Ok(false);
                }
                if let Err(error) = removed {
                    tracing::debug!(%error, path = %path.display(), "a piece of the reserve stays incomplete");
                }
                Err(StorageError::io(format!("laying out {}", path.display()))(error))
            }
        }
    }

    fn make_piece(&self, path: &Path) -> std::io::Result<()> {
        let file = self.disk.open(path, OpenMode::CreateNew)?;
        file.allocate(self.piece_bytes)?;
        file.sync_data()?;
        self.disk.sync_dir(&self.dir)
    }
}

/// Whether the disk, or the owner's part of it, is full.
pub(super) fn is_no_space(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}
