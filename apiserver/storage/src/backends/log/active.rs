//! The end of the log, in a file of one sector, so that the loss of what was there is noticed: the newest segment, and a
//! batch that is durable.
//!
//! The sector is written in place: durably after a segment was begun and before anything is acknowledged in it, and
//! without a sync after each batch, once that is durable. So the batch it names is never ahead of the log; after a kill it
//! is the last one, after a power loss the one of the last time that the kernel wrote the sector.
//!
//! Segments begun while the file is there say so in their header. Where one of them is found and the file is not, it was
//! lost, and the newest segment may be lost with it. A directory of a version that had no such file gets one at its next
//! start; one on a full disk gets it at the next start that has room.

use super::disk_reserve::is_no_space;
use super::format::{ActiveHeader, FileHeader, HeaderError, SECTOR};
use super::recovery_report::RecoveryReport;
use crate::StorageError;
use machinery_runtime::{Disk, DiskFile, OpenMode};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The file, open.
#[derive(Debug)]
pub(super) struct Active {
    path: PathBuf,
    /// None where it is not there yet, or a full disk had no room for it.
    file: Option<Box<dyn DiskFile>>,
    found: Option<ActiveHeader>,
    is_damaged: bool,
}

const NAME: &str = "ACTIVE";

impl Active {
    /// Reads what the last run has left. Makes nothing.
    pub(super) fn open(
        (disk, dir): (&dyn Disk, &Path),
        mode: OpenMode,
        report: &mut RecoveryReport,
    ) -> Result<Self, StorageError> {
        let path = dir.join(NAME);
        let file = match disk.open(&path, mode) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            opened => Some(opened.map_err(StorageError::io(format!("opening {}", path.display())))?),
        };
        let mut own = Self {
            path,
            file,
            found: None,
            is_damaged: false,
        };
        own.read(report)?;
        Ok(own)
    }

    pub(super) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// The end of the log as the last run has left it.
    pub(super) fn found(&self) -> Option<ActiveHeader> {
        self.found
    }

    /// Nothing is there, or an empty file.
    pub(super) fn is_lost(&self) -> bool {
        self.found.is_none() && !self.is_damaged
    }

    /// Reports whether the file is durably in place for segments begun from now on.
    pub(super) fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    /// Makes the file durable where it says nothing. `index` is the newest segment that was found.
    pub(super) fn establish(
        &mut self,
        (disk, dir): (&dyn Disk, &Path),
        store: u64,
        index: u64,
    ) -> Result<(), StorageError> {
        if self.found.is_some() {
            return Ok(());
        }
        let failed = || StorageError::io(format!("writing {}", self.path.display()));
        let file = match self.file.take() {
            Some(file) => Ok(file),
            None => disk.open(&self.path, OpenMode::CreateNew),
        };
        // The sector is there before the header, which a full disk therefore never takes in part. A damaged one is there, and
        // must not be blank in between, which is how an emptied file looks.
        let lay_out = |file: Box<dyn DiskFile>| match self.is_damaged {
            true => Ok(file),
            false => file.write_at(0, &[0; SECTOR]).map(|()| file),
        };
        let file = match file.and_then(lay_out) {
            Err(error) if is_no_space(error.kind()) => return Ok(()),
            made => made.map_err(failed())?,
        };
        self.file = Some(file);
        // What lies in the segment is durable only once its last batch is repeated.
        let batch = 0;
        self.name(ActiveHeader { store, index, batch })?;
        disk.sync_dir(dir)
            .map_err(StorageError::io(format!("syncing {}", dir.display())))
    }

    /// Names the segment that is appended to from now on, durably.
    pub(super) fn name(&self, header: ActiveHeader) -> Result<(), StorageError> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let failed = || StorageError::io(format!("writing {}", self.path.display()));
        file.write_at(0, &FileHeader::Active(header).encode())
            .map_err(failed())?;
        file.sync_data().map_err(failed())
    }

    /// Names a batch that is durable. A sync for this alone would double the time of every write.
    pub(super) fn note(&self, header: ActiveHeader) -> Result<(), StorageError> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        match file.write_at(0, &FileHeader::Active(header).encode()) {
            // A file system that copies on write has no room: the batch named before stays.
            Err(error) if is_no_space(error.kind()) => Ok(()),
            written => written.map_err(StorageError::io(format!("writing {}", self.path.display()))),
        }
    }

    fn read(&mut self, report: &mut RecoveryReport) -> Result<(), StorageError> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let mut sector = [0; SECTOR];
        let read = file.read_at(0, &mut sector);
        let read = read.map_err(StorageError::io(format!("reading {}", self.path.display())))?;
        match FileHeader::decode(&sector[..read]) {
            Ok(FileHeader::Active(header)) => self.found = Some(header),
            Err(HeaderError::Blank) => {}
            Err(HeaderError::Unknown(found)) => {
                return Err(super::format::unknown_version(&self.path, found));
            }
            Ok(_) | Err(HeaderError::Damaged) => {
                let problem = format!("{} is damaged and is rewritten", self.path.display());
                report.problems.push(problem);
                self.is_damaged = true;
            }
        }
        Ok(())
    }
}
