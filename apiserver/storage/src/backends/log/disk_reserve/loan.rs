//! The room that the reserve lends to a checkpoint on a full disk.

use super::{DiskReserve, ENOUGH, is_no_space};
use crate::StorageError;
use machinery_runtime::OpenMode;
use std::path::{Path, PathBuf};

impl DiskReserve {
    /// Bytes beyond what a checkpoint takes that it must free, so that it is worth its history.
    pub(in crate::backends::log) fn least_gain(&self) -> u64 {
        2 * self.piece_bytes
    }

    /// Lends so many bytes to the next checkpoint ([`DiskReserve::take_loan`]) where they are not free: a piece, made longer by the
    /// room of others where it takes more. `false`, and nothing lent, where all of that is not enough, or where another process
    /// had the room of such a piece first: no other one is risked then as long as the disk is full.
    pub(in crate::backends::log) fn lend(&self, needed: u64) -> Result<bool, StorageError> {
        let looked = StorageError::io(format!("looking at the room of {}", self.dir.display()));
        let available = self.disk.space(&self.dir).map_err(looked)?.available;
        let missing = needed.saturating_sub(available);
        let mut lent = {
            let mut state = self.state.lock();
            let count = missing.div_ceil(self.piece_bytes.max(1));
            let kept = (state.pieces.len() as u64).checked_sub(count);
            // The last ones are for deletions and for the next start.
            let Some(kept) = kept.filter(|kept| count == 0 || *kept >= ENOUGH as u64) else {
                return Ok(false);
            };
            if count > 1 && state.contended {
                return Ok(false);
            }
            let kept = usize::try_from(kept).unwrap_or(usize::MAX);
            state.pieces.split_off(kept)
        };
        let Some(piece) = lent.pop() else {
            return Ok(true);
        };
        let failed = || StorageError::io(format!("lending {}", piece.display()));
        let loan = self.next_unfinished();
        self.disk.rename(&piece, &loan).map_err(failed())?;
        // Before anything is written: a piece that gets its old name back is blank.
        self.disk.sync_dir(&self.dir).map_err(failed())?;
        if self.make_longer(&loan, needed, &mut lent).map_err(failed())? {
            self.state.lock().loan = Some(loan);
            return Ok(true);
        }
        {
            let mut state = self.state.lock();
            state.contended = true;
            state.pieces.append(&mut lent);
        }
        self.discard(&loan)?;
        Ok(false)
    }

    /// Gives a blank file its blocks up to `needed`, with what is free and with the room of other pieces, one by one.
    fn make_longer(&self, path: &Path, needed: u64, lent: &mut Vec<PathBuf>) -> std::io::Result<bool> {
        let file = self.disk.open(path, OpenMode::ReadWrite)?;
        loop {
            let room_of_others = lent.len() as u64 * self.piece_bytes;
            match file.allocate(needed.saturating_sub(room_of_others)) {
                Err(error) if is_no_space(error.kind()) => return Ok(false),
                allocated => allocated?,
            }
            match lent.pop() {
                Some(piece) => self.disk.remove(&piece)?,
                None => return Ok(true),
            }
        }
    }

    fn next_unfinished(&self) -> PathBuf {
        let mut state = self.state.lock();
        state.next += 1;
        self.unfinished_path(state.next)
    }

    /// The blank file that was lent, for a checkpoint that is written in it under another name.
    pub(in crate::backends::log) fn take_loan(&self) -> Option<PathBuf> {
        self.state.lock().loan.take()
    }

    /// Takes an unused loan back.
    pub(in crate::backends::log) fn end_loan(&self) -> Result<(), StorageError> {
        self.take_loan().map_or(Ok(()), |loan| self.discard(&loan))
    }
}
