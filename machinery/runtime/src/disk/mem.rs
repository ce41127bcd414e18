//! A disk that lives in memory and never fails.

use super::{Disk, DiskFile, DiskLock, OpenMode, Space};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files in memory, gone with the value. Syncing is free.
#[derive(Debug, Default)]
pub struct MemDisk {
    files: Mutex<BTreeMap<PathBuf, Arc<RwLock<Vec<u8>>>>>,
    locks: Arc<Locks>,
}

#[derive(Debug)]
struct MemFile(Arc<RwLock<Vec<u8>>>);

/// Holders of locked names.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<LockTable>);

#[derive(Debug, Default)]
struct LockTable {
    held: BTreeMap<PathBuf, u64>,
    last: u64,
}

/// A held name; the number distinguishes it from a later holder's.
#[derive(Debug)]
struct MemLock {
    path: PathBuf,
    number: u64,
    locks: Arc<Locks>,
}

impl MemDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Locks {
    pub(super) fn take(self: &Arc<Self>, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let mut table = self.0.lock();
        if table.held.contains_key(path) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        table.last += 1;
        let number = table.last;
        table.held.insert(path.to_owned(), number);
        Ok(Box::new(MemLock {
            path: path.to_owned(),
            number,
            locks: Arc::clone(self),
        }))
    }

    /// Drops all holds, as when the machine goes down.
    pub(super) fn forget(&self) {
        self.0.lock().held.clear();
    }
}

impl Drop for MemLock {
    fn drop(&mut self) {
        let mut table = self.locks.0.lock();
        if table.held.get(&self.path) == Some(&self.number) {
            table.held.remove(&self.path);
        }
    }
}

impl DiskLock for MemLock {}

impl Disk for MemDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let mut files = self.files.lock();
        let file = match (mode, files.get(path)) {
            (OpenMode::CreateNew, Some(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            (OpenMode::CreateNew, None) => Arc::clone(files.entry(path.to_owned()).or_default()),
            (_, Some(file)) => Arc::clone(file),
            (_, None) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Box::new(MemFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.files.lock();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files
            .lock()
            .remove(path)
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let files = self.files.lock();
        let names = files
            .keys()
            .filter(|path| path.parent() == Some(dir))
            .filter_map(|path| path.file_name());
        Ok(names.map(|name| name.to_string_lossy().into_owned()).collect())
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn space(&self, _: &Path) -> io::Result<Space> {
        Ok(Space {
            total: u64::MAX,
            available: u64::MAX,
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        self.locks.take(path)
    }

    fn sync_is_free(&self) -> bool {
        true
    }
}

impl DiskFile for MemFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        write_into(&mut self.0.write(), offset, bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(read_from(&self.0.read(), offset, buffer))
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0
            .write()
            .truncate(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.read().len() as u64)
    }
}

/// Writes into a growing buffer; a gap becomes zeros, as in a sparse file.
pub(super) fn write_into(content: &mut Vec<u8>, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let start = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let end = start
        .checked_add(bytes.len())
        .ok_or(io::ErrorKind::FileTooLarge)?;
    if content.len() < end {
        content.resize(end, 0);
    }
    content[start..end].copy_from_slice(bytes);
    Ok(())
}

/// Reads what there is.
pub(super) fn read_from(content: &[u8], offset: u64, buffer: &mut [u8]) -> usize {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
    let count = buffer.len().min(content.len() - start);
    buffer[..count].copy_from_slice(&content[start..start + count]);
    count
}
