//! The machine's file system.

use super::{Disk, DiskFile, DiskLock, OpenMode, Space};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

/// Files on the machine; nothing but the owner may read them.
#[derive(Debug, Default)]
pub struct RealDisk(());

#[derive(Debug)]
struct RealFile(File);

/// The lock goes with the descriptor.
#[derive(Debug)]
struct RealLock(#[expect(dead_code, reason = "held for its descriptor")] File);

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

impl RealDisk {
    /// The machine's disk.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).mode(FILE_MODE);
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadWrite => {
                options.write(true);
            }
            OpenMode::CreateNew => {
                options.write(true).create_new(true);
            }
        }
        Ok(Box::new(RealFile(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        let found = nix::sys::statvfs::statvfs(dir)?;
        let fragment = found.fragment_size();
        Ok(Space {
            total: found.blocks().saturating_mul(fragment),
            available: found.blocks_available().saturating_mul(fragment),
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(path)?;
        locked(file)
    }

    fn lock_existing(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        match OpenOptions::new().write(true).open(path) {
            Ok(file) => locked(file).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn locked(file: File) -> io::Result<Box<dyn DiskLock>> {
    match file.try_lock() {
        Ok(()) => Ok(Box::new(RealLock(file))),
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

impl DiskFile for RealFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < buffer.len() {
            match self.0.read_at(&mut buffer[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn forget_cached(&self, offset: u64, length: u64) {
        let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else {
            return;
        };
        // Advice: where it is not taken, reads are as right as before.
        let advice = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        if let Err(error) = posix_fadvise(&self.0, offset, length, advice) {
            tracing::debug!(%error, "the page cache keeps a part of a file");
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let length = i64::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
        Ok(nix::fcntl::posix_fallocate(&self.0, 0, length)?)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

impl DiskLock for RealLock {}
