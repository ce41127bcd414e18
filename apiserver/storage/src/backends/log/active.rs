//! Which segment is the newest, in a file of one sector, so that the loss of that segment is noticed.
//!
//! The sector is written in place, after the segment is durable and before anything is acknowledged in it. A directory of
//! a version that had no such file gets one at its next start.

use super::format::{ActiveHeader, FileHeader, HeaderError, SECTOR};
use super::recovery::RecoveryReport;
use crate::StorageError;
use machinery_runtime::{Disk, DiskFile, OpenMode};
use std::path::{Path, PathBuf};

/// The file, open.
#[derive(Debug)]
pub(super) struct Active {
    path: PathBuf,
    /// None where a full disk had no room for it.
    file: Option<Box<dyn DiskFile>>,
    found: Option<ActiveHeader>,
}

const NAME: &str = "ACTIVE";

impl Active {
    /// Reads what the last run has left, or makes the file.
    pub(super) fn open(
        disk: &dyn Disk,
        dir: &Path,
        report: &mut RecoveryReport,
    ) -> Result<Self, StorageError> {
        let path = dir.join(NAME);
        let failed = || StorageError::io(format!("opening {}", path.display()));
        let opened = match disk.open(&path, OpenMode::ReadWrite) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                disk.open(&path, OpenMode::CreateNew)
            }
            opened => opened,
        };
        let file = match opened {
            Err(error) if super::disk_reserve::is_no_space(error.kind()) => None,
            opened => Some(opened.map_err(failed())?),
        };
        let found = match &file {
            Some(file) => read(&path, &**file, report)?,
            None => None,
        };
        Ok(Self { path, file, found })
    }

    /// What the last run has left, in a directory that nothing is written to.
    pub(super) fn look(
        disk: &dyn Disk,
        dir: &Path,
        report: &mut RecoveryReport,
    ) -> Result<Self, StorageError> {
        let path = dir.join(NAME);
        let found = match disk.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            opened => {
                let file = opened.map_err(StorageError::io(format!("opening {}", path.display())))?;
                read(&path, &*file, report)?
            }
        };
        Ok(Self {
            path,
            file: None,
            found,
        })
    }

    pub(super) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// The newest segment of the last run.
    pub(super) fn found(&self) -> Option<ActiveHeader> {
        self.found
    }

    /// Names the segment that is appended to from now on.
    pub(super) fn name(&self, disk: &dyn Disk, dir: &Path, header: ActiveHeader) -> Result<(), StorageError> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let failed = || StorageError::io(format!("writing {}", self.path.display()));
        if self.found.is_none() {
            // The sector is there before the header, which a full disk therefore never takes in part.
            match file.write_at(0, &[0; SECTOR]) {
                Err(error) if super::disk_reserve::is_no_space(error.kind()) => return Ok(()),
                written => written.map_err(failed())?,
            }
        }
        file.write_at(0, &FileHeader::Active(header).encode())
            .map_err(failed())?;
        file.sync_data().map_err(failed())?;
        if self.found.is_none() {
            disk.sync_dir(dir).map_err(failed())?;
        }
        Ok(())
    }
}

fn read(
    path: &Path,
    file: &dyn DiskFile,
    report: &mut RecoveryReport,
) -> Result<Option<ActiveHeader>, StorageError> {
    let mut sector = [0; SECTOR];
    let read = file.read_at(0, &mut sector);
    let read = read.map_err(StorageError::io(format!("reading {}", path.display())))?;
    match FileHeader::decode(&sector[..read]) {
        Ok(FileHeader::Active(header)) => Ok(Some(header)),
        Err(HeaderError::Blank) => Ok(None),
        Err(HeaderError::Unknown(found)) => Err(super::format::unknown_version(path, found)),
        Ok(_) | Err(HeaderError::Damaged) => {
            let problem = format!("{} is damaged and is written anew", path.display());
            report.problems.push(problem);
            Ok(None)
        }
    }
}
