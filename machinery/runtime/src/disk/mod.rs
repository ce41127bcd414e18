//! Files, as far as durable state needs them.
//!
//! The calls block; they are made from [`crate::Runtime::worker`] and [`crate::Runtime::blocking`]. That keeps one
//! thread hop per flush instead of one per call, keeps state machines free of `await` points between a write and its
//! sync, and lets a simulated disk be exact.
//!
//! The contract is the pessimistic one of POSIX: a write is durable after [`DiskFile::sync_data`], a name after
//! [`Disk::sync_dir`] of its directory; before that a power loss may keep any part of it. A failed sync says nothing
//! about what is on the disk, and a later sync that succeeds does not repair it.

mod mem;
mod observed;
mod real;
mod sim;

pub use mem::MemDisk;
pub use observed::{DiskCall, ObservedDisk};
pub use real::RealDisk;
pub use sim::{SECTOR_BYTES, SimDisk};

use std::fmt::Debug;
use std::io;
use std::path::Path;

/// Mode of opening a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// It exists; it will only be read.
    Read,
    /// It exists; it will be read and written.
    ReadWrite,
    /// It must not exist.
    CreateNew,
}

/// Room of a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total: u64,
    /// The part that this process may still fill.
    pub available: u64,
}

/// A file system.
pub trait Disk: Send + Sync + Debug {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file another name, replacing what had it. Atomic, durable after [`Disk::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Takes a file's name away.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes a directory and those above it; private to its owner. Nothing happens when it is there. Each is durable after
    /// [`Disk::sync_dir`] of the one above it.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes an exclusive lock under this name and holds it until the value is dropped or the process ends.
    /// [`io::ErrorKind::WouldBlock`] when another process has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>>;

    /// The same where the name is there; nothing is made.
    fn lock_existing(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.lock(path).map(Some)
    }

    /// The room of the file system that a directory is on.
    fn space(&self, dir: &Path) -> io::Result<Space>;

    /// Reports whether syncing costs nothing, so that callers need not leave their thread for it.
    fn sync_is_free(&self) -> bool {
        false
    }
}

/// An open file.
pub trait DiskFile: Send + Sync + Debug {
    /// Writes all of `bytes` at `offset`, making the file longer where needed. [`io::ErrorKind::StorageFull`] when there is
    /// no room for all of them; a part may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Forgets what memory keeps of a part of the file, as far as it is durable: the next read of it asks the device. A file
    /// system without such a memory, or that keeps it, does nothing.
    fn forget_cached(&self, _offset: u64, _length: u64) {}

    /// Makes everything written so far durable, and the length with it.
    fn sync_data(&self) -> io::Result<()>;

    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Cuts the file off at `length`, which gives the room behind it back.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// Gives the first `length` bytes their blocks, blank where nothing was written: writing there needs no more room.
    fn allocate(&self, length: u64) -> io::Result<()> {
        let end = self.len()?;
        let missing = usize::try_from(length.saturating_sub(end)).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.write_at(end, &vec![0; missing])
    }

    /// Reports whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// Holding it is holding the lock.
pub trait DiskLock: Send + Sync + Debug {}
