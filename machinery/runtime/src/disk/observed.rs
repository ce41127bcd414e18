//! A disk whose calls are counted or broken by tests and measurements.

use super::{Disk, DiskFile, DiskLock, OpenMode, Space};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A call that moves bytes or makes them durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskCall {
    /// Bytes are written to a file.
    Write,
    /// So many bytes were read from a file.
    Read(usize),
    /// So many bytes of a file from an offset on are forgotten by the page cache.
    Forget(u64, u64),
    /// Sync of a file's writes.
    Sync,
    /// Names in a directory are made durable.
    SyncDir,
}

type Observer = Arc<dyn Fn(&Path, DiskCall) + Send + Sync>;

/// A disk that notifies an observer of each [`DiskCall`] on a path. An observer that panics breaks the call.
pub struct ObservedDisk {
    disk: Arc<dyn Disk>,
    observer: Observer,
}

impl ObservedDisk {
    /// Observes the calls of a disk; writes and syncs are observed before they are made.
    pub fn new(
        disk: impl Disk + 'static,
        observer: impl Fn(&Path, DiskCall) + Send + Sync + 'static,
    ) -> Self {
        Self {
            disk: Arc::new(disk),
            observer: Arc::new(observer),
        }
    }
}

impl fmt::Debug for ObservedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObservedDisk").field(&self.disk).finish()
    }
}

impl Disk for ObservedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(ObservedFile {
            file: self.disk.open(path, mode)?,
            path: path.to_owned(),
            observer: Arc::clone(&self.observer),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        (self.observer)(dir, DiskCall::SyncDir);
        self.disk.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        self.disk.lock(path)
    }

    fn lock_existing(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.disk.lock_existing(path)
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        self.disk.space(dir)
    }
}

struct ObservedFile {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    observer: Observer,
}

impl fmt::Debug for ObservedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObservedFile").field(&self.file).finish()
    }
}

impl DiskFile for ObservedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        (self.observer)(&self.path, DiskCall::Write);
        self.file.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(offset, buffer)?;
        (self.observer)(&self.path, DiskCall::Read(read));
        Ok(read)
    }

    fn forget_cached(&self, offset: u64, length: u64) {
        (self.observer)(&self.path, DiskCall::Forget(offset, length));
        self.file.forget_cached(offset, length);
    }

    fn sync_data(&self) -> io::Result<()> {
        (self.observer)(&self.path, DiskCall::Sync);
        self.file.sync_data()
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.file.allocate(length)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
