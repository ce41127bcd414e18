//! Creation of the reserve's pieces: from new files, and from files that the log no longer needs.

use super::{DiskReserve, PIECES, is_no_space};
use crate::StorageError;
use machinery_runtime::{DiskFile, OpenMode};
use std::io::ErrorKind;
use std::path::Path;

/// Zeros written at once.
const BLANK_STEP: u64 = 256 << 10;

impl DiskReserve {
    /// Takes a file away that is not open: where the disk is full it becomes a missing piece of the reserve.
    pub(in crate::backends::log) fn discard(&self, path: &Path) -> Result<(), StorageError> {
        let gone = match self.recycle(path) {
            Ok(false) => self.disk.remove(path),
            recycled => recycled.map(drop),
        };
        gone.map_err(StorageError::io(format!("removing {}", path.display())))
    }

    /// Makes a piece of a file. `false`: it has its name still.
    fn recycle(&self, path: &Path) -> std::io::Result<bool> {
        if !self.is_full() && !self.is_short() {
            return Ok(false);
        }
        let Some(number) = self.begin_piece() else {
            return Ok(false);
        };
        let unfinished = self.unfinished_path(number);
        if self.disk.rename(path, &unfinished).is_err() {
            self.end_piece(None);
            return Ok(false);
        }
        // Before it is blanked: a file that gets its old name back is whole.
        let made = self
            .disk
            .sync_dir(&self.dir)
            .and_then(|()| self.finish_piece(number));
        self.end_piece(made.is_ok().then_some(number));
        match made {
            // It was too short, and nothing is free to make it longer.
            Err(error) if is_no_space(error.kind()) => self.disk.remove(&unfinished)?,
            made => made?,
        }
        Ok(true)
    }

    /// The number of a piece that is missing; [`DiskReserve::end_piece`] follows.
    fn begin_piece(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if self.piece_bytes == 0 || state.pieces.len() as u64 + state.begun >= PIECES {
            return None;
        }
        state.begun += 1;
        state.next += 1;
        Some(state.next)
    }

    fn end_piece(&self, made: Option<u64>) {
        let mut state = self.state.lock();
        state.begun -= 1;
        state
            .pieces
            .extend(made.map(|number| Self::path(&self.dir, number)));
    }

    /// One more piece; `false` when there is no room for it.
    pub(super) fn lay_out(&self) -> Result<bool, StorageError> {
        let Some(number) = self.begin_piece() else {
            return Ok(false);
        };
        let made = self.make_piece(number);
        self.end_piece(made.is_ok().then_some(number));
        match made {
            Ok(()) => Ok(true),
            Err(error) => {
                let path = self.unfinished_path(number);
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

    fn make_piece(&self, number: u64) -> std::io::Result<()> {
        self.disk
            .open(&self.unfinished_path(number), OpenMode::CreateNew)?;
        self.finish_piece(number)
    }

    /// Makes a piece of an unfinished one. Its content is overwritten: it is never read as records, nor left lying on
    /// the disk, as far as the file system writes in place.
    fn finish_piece(&self, number: u64) -> std::io::Result<()> {
        let unfinished = self.unfinished_path(number);
        let file = self.disk.open(&unfinished, OpenMode::ReadWrite)?;
        let length = file.len()?;
        if length > self.piece_bytes {
            file.truncate(self.piece_bytes)?;
        }
        file.allocate(self.piece_bytes)?;
        let used = length.min(self.piece_bytes);
        if blank(&*file, 0, used)? < used {
            return Err(ErrorKind::StorageFull.into());
        }
        file.sync_data()?;
        self.disk.rename(&unfinished, &Self::path(&self.dir, number))?;
        self.disk.sync_dir(&self.dir)
    }
}

/// Writes zeros up to `until` or to where there is no room for them: there it ends.
pub(in crate::backends::log) fn blank(file: &dyn DiskFile, from: u64, until: u64) -> std::io::Result<u64> {
    let zeros = vec![0; usize::try_from(BLANK_STEP).expect("a constant")];
    let mut at = from;
    while at < until {
        let count = usize::try_from(until - at).unwrap_or(usize::MAX).min(zeros.len());
        match file.write_at(at, &zeros[..count]) {
            Err(error) if is_no_space(error.kind()) => break,
            written => written?,
        }
        at += count as u64;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_runtime::{Disk, DiskCall, MemDisk, ObservedDisk};
    use parking_lot::Mutex;
    use std::sync::Arc;

    /// A power loss may give the file its old name back, under which it is read as records.
    #[test]
    fn file_is_blanked_once_its_new_name_is_durable() {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&calls);
        let disk = ObservedDisk::new(MemDisk::new(), move |_, call| noted.lock().push(call));
        let (disk, dir): (Arc<dyn Disk>, _) = (Arc::new(disk), Path::new("/data"));
        disk.create_dir_all(dir).unwrap();
        let file = disk.open(&dir.join("records"), OpenMode::CreateNew).unwrap();
        file.write_at(0, b"records").unwrap();
        let reserve = DiskReserve::find(Arc::clone(&disk), dir, &[], PIECES << 20);
        reserve.fill();
        calls.lock().clear();
        reserve.discard(&dir.join("records")).unwrap();
        let calls = calls.lock().clone();
        let first = |wanted| calls.iter().position(|call| *call == wanted).unwrap();
        assert!(first(DiskCall::SyncDir) < first(DiskCall::Write), "{calls:?}");
        assert!(reserve.gauge().reserve_bytes > 0, "it is a piece now");
    }
}
