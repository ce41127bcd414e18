//! A disk that loses what was not synced, fills up, and fails on demand.

mod content;
mod faults;
mod names;

use super::mem::Locks;
use super::{Disk, DiskFile, DiskLock, OpenMode, Space};
use content::Content;
use faults::Faults;
use names::{NameChange, Names};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The unit a power loss keeps or loses. Drives with larger physical sectors write these one by one as well (512e); a
/// drive that tears within 512 bytes is outside the model.
pub const SECTOR_BYTES: usize = 512;

/// Files in memory with the failures of real ones, decided by a seed.
///
/// A power loss ([`SimDisk::crash`]) keeps, of every 512-byte sector, some state between the last sync and now, and of
/// the names in a directory (of files and directories) any subset of the changes since [`Disk::sync_dir`]. A failed sync
/// leaves its writes readable but never durable, as Linux does: a later sync that succeeds does not bring them to the
/// disk. A full disk ([`SimDisk::fill_after`], [`SimDisk::crowd`]) refuses writes, or takes a part of them first.
/// Handles opened before a crash are dead: every call on them fails, so a task that outlives its instance cannot write.
#[derive(Debug)]
pub struct SimDisk {
    shared: Arc<Mutex<Shared>>,
    locks: Arc<Locks>,
}

#[derive(Debug)]
struct Shared {
    random: ChaCha8Rng,
    names: Names,
    files: BTreeMap<u64, Content>,
    next_file: u64,
    /// Grows with each crash; handles of an older one are dead.
    epoch: u64,
    faults: Faults,
    syncs: u64,
    writes: u64,
    operations: u64,
}

#[derive(Debug)]
struct SimFile {
    shared: Arc<Mutex<Shared>>,
    file: u64,
    epoch: u64,
}

impl SimDisk {
    /// An empty disk whose failures this seed decides.
    pub fn new(seed: u64) -> Self {
        let shared = Shared {
            random: ChaCha8Rng::seed_from_u64(seed),
            names: Names::default(),
            files: BTreeMap::new(),
            next_file: 0,
            epoch: 0,
            faults: Faults::default(),
            syncs: 0,
            writes: 0,
            operations: 0,
        };
        Self {
            shared: Arc::new(Mutex::new(shared)),
            locks: Arc::default(),
        }
    }

    /// The power goes: what was not synced is kept in part, open handles and locks are gone.
    pub fn crash(&self) {
        self.shared.lock().lose_power();
        self.locks.forget();
    }

    /// The process is killed: nothing written is lost, open handles and locks are gone.
    pub fn kill(&self) {
        self.shared.lock().epoch += 1;
        self.locks.forget();
    }

    /// The process is killed at the step that [`SimDisk::power_off_after`] named, and the machine goes on: nothing written is
    /// lost, and what was not synced may be lost still.
    pub fn kill_where_power_went(&self) {
        self.shared.lock().faults.power_is_back();
        self.kill();
    }

    /// Inverts one bit of a file, durably. `false` when the file has no such bit.
    pub fn flip_bit(&self, path: &Path, bit: u64) -> bool {
        let mut shared = self.shared.lock();
        let Some(file) = shared.names.file(path) else {
            return false;
        };
        let content = shared.files.get_mut(&file);
        content.is_some_and(|content| content.flip_bit(bit))
    }

    /// Every file and its length, by name.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let shared = self.shared.lock();
        let length = |file| shared.files.get(file).map_or(0, Content::len);
        let files = shared.names.files();
        files.map(|(name, file)| (name.clone(), length(file))).collect()
    }

    /// Files that have more than one name, by one of them. No caller makes a second name here, but of two changes of names a
    /// power loss may keep the later one alone.
    pub fn files_with_two_names(&self) -> Vec<PathBuf> {
        let shared = self.shared.lock();
        let mut known = std::collections::BTreeSet::new();
        let again = shared.names.files().filter(|(_, file)| !known.insert(*file));
        again.map(|(name, _)| name.clone()).collect()
    }

    /// A copy of a file's bytes.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let shared = self.shared.lock();
        let file = shared.names.file(path)?;
        shared.files.get(&file).map(|content| content.current().to_vec())
    }

    /// One number for what was done with the disk.
    pub(crate) fn activity(&self) -> u64 {
        let shared = self.shared.lock();
        (shared.operations << 40) ^ (shared.syncs << 20) ^ shared.writes
    }
}

impl Shared {
    fn lose_power(&mut self) {
        self.epoch += 1;
        self.faults.power_is_back();
        let random = &mut self.random;
        self.names.lose_power(|| random.random_bool(0.5));
        let bound = self.names.bound();
        self.files.retain(|file, _| bound.contains(file));
        for content in self.files.values_mut() {
            content.lose_power(&mut self.random);
        }
    }

    fn change_name(&mut self, change: NameChange) -> io::Result<()> {
        self.faults.spend()?;
        self.operations += 1;
        self.names.change(change);
        Ok(())
    }

    /// The same, or a failure that leaves open whether it was made.
    fn change_name_or_fail(&mut self, change: NameChange) -> io::Result<()> {
        if !self.faults.name_fails(&mut self.random) {
            return self.change_name(change);
        }
        if self.random.random_bool(0.5) {
            self.change_name(change)?;
        }
        Err(io::Error::other("injected failure to change a name"))
    }

    fn sync_fails(&mut self) -> bool {
        self.syncs += 1;
        self.faults.sync_fails(&mut self.random)
    }

    /// Bytes of all files that have a name.
    fn used(&self) -> u64 {
        let lengths = self
            .names
            .files()
            .filter_map(|(_, file)| Some(self.files.get(file)?.len()));
        lengths.sum()
    }

    fn available(&self) -> u64 {
        if self.faults.crowded {
            return 0;
        }
        self.faults.capacity.saturating_sub(self.used())
    }

    /// Number of the `count` bytes at `offset` of a file that fit on the disk: all, or a part that the seed decides. A kernel
    /// allocates block by block, so a part ends with a sector.
    fn fitting(&mut self, length: u64, offset: u64, count: usize) -> usize {
        let room = length.saturating_add(self.available()).saturating_sub(offset);
        let fits = usize::try_from(room).unwrap_or(usize::MAX);
        if fits >= count {
            return count;
        }
        let end = offset + self.random.random_range(0..=fits) as u64;
        let whole = end - end % SECTOR_BYTES as u64;
        usize::try_from(whole.saturating_sub(offset)).unwrap_or(0)
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let mut shared = self.shared.lock();
        shared.faults.has_power()?;
        shared.names.has_parent(path)?;
        let file = match (mode, shared.names.file(path)) {
            (OpenMode::CreateNew, Some(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            // A new name may need a block of its directory.
            (OpenMode::CreateNew, None) if shared.available() == 0 && shared.random.random_bool(0.5) => {
                return Err(io::ErrorKind::StorageFull.into());
            }
            (OpenMode::CreateNew, None) => {
                shared.next_file += 1;
                let file = shared.next_file;
                let name = path.to_owned();
                shared.change_name(NameChange::Bind { name, file })?;
                shared.files.insert(file, Content::default());
                file
            }
            (_, Some(file)) => file,
            (_, None) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Box::new(SimFile {
            shared: Arc::clone(&self.shared),
            file,
            epoch: shared.epoch,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut shared = self.shared.lock();
        let file = shared.names.file(from).ok_or(io::ErrorKind::NotFound)?;
        shared.change_name_or_fail(NameChange::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
            file,
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut shared = self.shared.lock();
        shared.names.file(path).ok_or(io::ErrorKind::NotFound)?;
        let name = path.to_owned();
        shared.change_name_or_fail(NameChange::Unbind { name })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let shared = self.shared.lock();
        shared.faults.has_power()?;
        shared.names.has_parent(&dir.join("name"))?;
        let names = shared.names.files().map(|(path, _)| path);
        let within = names.filter(|path| path.parent() == Some(dir));
        Ok(within
            .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
            .collect())
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut shared = self.shared.lock();
        for name in shared.names.missing_dirs(dir) {
            shared.change_name(NameChange::Make { name })?;
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut shared = self.shared.lock();
        shared.faults.spend()?;
        if shared.sync_fails() {
            return Err(io::Error::other("injected failure to sync a directory"));
        }
        shared.names.sync(dir);
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let shared = self.shared.lock();
        shared.faults.has_power()?;
        shared.names.has_parent(path)?;
        self.locks.take(path)
    }

    fn space(&self, _: &Path) -> io::Result<Space> {
        let shared = self.shared.lock();
        shared.faults.has_power()?;
        Ok(Space {
            total: shared.faults.capacity,
            available: shared.available(),
        })
    }
}

impl SimFile {
    fn content<'a>(&self, shared: &'a mut Shared) -> io::Result<&'a mut Content> {
        shared.faults.has_power()?;
        if shared.epoch != self.epoch {
            return Err(io::Error::other(
                "the machine went down after this file was opened",
            ));
        }
        shared
            .files
            .get_mut(&self.file)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl DiskFile for SimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut shared = self.shared.lock();
        shared.faults.spend()?;
        shared.writes += 1;
        let length = self.content(&mut shared)?.len();
        let kept = shared.fitting(length, offset, bytes.len());
        self.content(&mut shared)?.write(offset, &bytes[..kept])?;
        if kept < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut shared = self.shared.lock();
        let own = &mut *shared;
        own.faults.read(&mut own.random)?;
        Ok(self.content(&mut shared)?.read(offset, buffer))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut shared = self.shared.lock();
        shared.faults.spend()?;
        let fails = shared.sync_fails();
        let content = self.content(&mut shared)?;
        if fails {
            content.lose_unsynced();
            return Err(io::Error::other("injected failure to sync"));
        }
        content.sync()
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut shared = self.shared.lock();
        shared.faults.spend()?;
        self.content(&mut shared)?.truncate(length);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let mut shared = self.shared.lock();
        Ok(self.content(&mut shared)?.len())
    }
}
