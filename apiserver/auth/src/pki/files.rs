//! Storage of keys and certificates: in a folder, in memory, or in a draft over a folder.

use super::PkiError;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// No file of ours is longer.
const MAX_FILE_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(super) enum Store {
    /// Files that are read and never written.
    Memory(BTreeMap<String, String>),
    Folder(PathBuf),
    /// A folder that is read and never written, and the files that would have been written to it.
    Draft(PathBuf, RefCell<BTreeMap<String, String>>),
}

impl Store {
    pub(super) fn memory(files: BTreeMap<String, String>) -> Self {
        Self::Memory(files)
    }

    pub(super) fn folder(folder: &Path) -> Result<Self, PkiError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|source| PkiError::File {
                action: "creating",
                path: folder.to_owned(),
                source,
            })?;
        Ok(Self::Folder(folder.to_owned()))
    }

    /// Nothing is written to the folder.
    pub(super) fn draft(folder: &Path) -> Self {
        Self::Draft(folder.to_owned(), RefCell::default())
    }

    pub(super) fn read(&self, name: &str) -> Result<Option<String>, PkiError> {
        let folder = match self {
            Self::Memory(files) => return Ok(files.get(name).cloned()),
            Self::Draft(_, written) if written.borrow().contains_key(name) => {
                return Ok(written.borrow().get(name).cloned());
            }
            Self::Folder(folder) | Self::Draft(folder, _) => folder,
        };
        let path = folder.join(name);
        let mut text = String::new();
        let read = File::open(&path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text));
        match read {
            Ok(_) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(PkiError::File {
                action: "reading",
                path,
                source,
            }),
        }
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), PkiError> {
        match self {
            Self::Memory(_) => {}
            Self::Folder(folder) => write_private(&folder.join(name), text)?,
            Self::Draft(_, written) => {
                written.borrow_mut().insert(name.to_owned(), text.to_owned());
            }
        }
        Ok(())
    }
}

/// Writes a file that only its owner can read, complete or not at all.
pub fn write_private(path: &Path, text: &str) -> Result<(), PkiError> {
    let failed = |source| PkiError::File {
        action: "writing",
        path: path.to_owned(),
        source,
    };
    // On a full disk an unchanged file needs no room.
    if is_private(path) && fs::read(path).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(());
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    // A left-over of a crash may have other permissions.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .map_err(failed)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
    if let Err(error) = written {
        // What was written of it takes room that others need; the next write removes it as well.
        let _ = fs::remove_file(&beside);
        return Err(failed(error));
    }
    fs::rename(&beside, path).map_err(failed)
}

fn is_private(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| {
        found.is_file() && found.len() <= MAX_FILE_BYTES && found.permissions().mode() & 0o7777 == 0o600
    })
}
