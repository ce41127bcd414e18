//! Room kept for a full disk.
//!
//! Beside the log lie a few pieces: blank files that have their blocks. When the disk refuses a write, the log goes on in
//! a piece, which becomes a segment by its name. So deletions, compaction and the next start need no room of the disk,
//! and no other program on it can take this room away. The pieces are laid out again when there is room.
//!
//! Room that is free for a moment on a full disk is another's. So a file that the log needs no more becomes a piece
//! by a rename, where one is missing, and a checkpoint that makes room is written in what was one.

mod loan;
mod pieces;

pub(super) use pieces::blank;

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
pub(super) struct DiskReserve {
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
    /// Pieces that are being made.
    begun: u64,
    next: u64,
    refused: u64,
    /// A file that was a piece and has room for the next checkpoint.
    loan: Option<PathBuf>,
    /// Another had the room of a piece that was given back.
    contended: bool,
}

/// Figures for metrics.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gauge {
    pub(super) full: bool,
    pub(super) refused: u64,
    pub(super) reserve_bytes: u64,
}

/// The endings of names: of a piece, and of one that may not be blank.
const PIECE: &str = ".room";
const UNFINISHED: &str = ".used";
/// A reserve is laid out in so many pieces.
const PIECES: u64 = 4;
/// A small file system gives no larger part of it to a piece.
const PART_OF_DISK: u64 = 64;
/// Pieces that only the next start may use.
pub(super) const FOR_RECOVERY: usize = 1;
/// Pieces below which only deletions are written, and the disk counts as full.
const ENOUGH: usize = 2;
/// A start that finds less free makes no new file of it: what it may write then is what it must.
const LEAST_FREE: u64 = 256 << 10;
/// A start goes on where the log ends as long as this part of a piece is left there.
const PART_TO_GO_ON: u64 = 4;

impl DiskReserve {
    /// The pieces that an earlier run has laid out, among the names in the directory.
    pub(super) fn find(disk: Arc<dyn Disk>, dir: &Path, names: &[String], reserve_bytes: u64) -> Self {
        let numbers =
            |ending: &'static str| names.iter().filter_map(move |name| Self::number_of(name, ending));
        let pieces: Vec<PathBuf> = numbers(PIECE).map(|number| Self::path(dir, number)).collect();
        let length = |piece: &PathBuf| disk.open(piece, OpenMode::Read)?.len();
        // Pieces are of one length, also where the file system is smaller than it was.
        let found = pieces.iter().filter_map(|piece| length(piece).ok()).max();
        let piece_bytes = match disk.space(dir) {
            // A disk in memory is as full as the memory; a reserve would only take some of it.
            _ if disk.sync_is_free() => 0,
            Ok(space) => (space.total / PART_OF_DISK).min(reserve_bytes / PIECES),
            Err(_) => reserve_bytes / PIECES,
        }
        .max(found.unwrap_or(0));
        let last = numbers(PIECE).chain(numbers(UNFINISHED)).max();
        Self {
            disk,
            dir: dir.to_owned(),
            piece_bytes,
            state: Mutex::new(State {
                pieces,
                next: last.map_or(0, |last| last + 1),
                ..State::default()
            }),
            full: AtomicBool::new(false),
            filled: Notify::new(),
        }
    }

    fn path(dir: &Path, number: u64) -> PathBuf {
        dir.join(format!("reserve-{number:016x}{PIECE}"))
    }

    fn unfinished_path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("reserve-{number:016x}{UNFINISHED}"))
    }

    fn number_of(name: &str, ending: &str) -> Option<u64> {
        u64::from_str_radix(name.strip_prefix("reserve-")?.strip_suffix(ending)?, 16).ok()
    }

    /// Pieces that an earlier run has begun to make or lent, among the names in the directory.
    pub(super) fn unfinished(&self, names: &[String]) -> Vec<PathBuf> {
        let unfinished = names
            .iter()
            .filter(|name| Self::number_of(name, UNFINISHED).is_some());
        unfinished.map(|name| self.dir.join(name)).collect()
    }

    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Returns whether next to nothing is free; `false` where the file system has no such figure.
    pub(super) fn is_short(&self) -> bool {
        let least = self.piece_bytes.min(LEAST_FREE);
        self.disk
            .space(&self.dir)
            .is_ok_and(|space| space.available < least)
    }

    /// Returns whether so many bytes left behind the end of the log spare a start a piece.
    pub(super) fn is_worth_going_on(&self, left: u64) -> bool {
        left >= self.piece_bytes / PART_TO_GO_ON
    }

    /// Returns whether so many bytes are room for a piece, together with the free ones.
    pub(super) fn makes_a_piece(&self, bytes: u64) -> bool {
        let space = self.disk.space(&self.dir);
        let available = space.map_or(0, |space| space.available);
        available.saturating_add(bytes) >= self.piece_bytes
    }

    /// Reports whether every piece is in place.
    pub(super) fn is_whole(&self) -> bool {
        self.piece_bytes == 0 || self.state.lock().pieces.len() as u64 >= PIECES
    }

    /// Reports whether changes that prepare a deletion are still written.
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
                "no space left on the disk of the data directory: accepting deletions only"
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
        // Bytes of another file behind the end of the log would be read as batches.
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
            // With a margin of one more piece: else the next write would fill the disk again, and callers see
            // it flap.
            self.full.store(false, Ordering::Release);
            self.state.lock().contended = false;
            tracing::info!(dir = %self.dir.display(), "space is available again: accepting all writes");
        }
        Ok(())
    }
}

/// Reports whether an error means that the disk, or the owner's part of it, is full.
pub(super) fn is_no_space(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}
