//! A disk that loses what was not synced, and fails when told to.

use super::mem::{Locks, read_from, write_into};
use super::{Disk, DiskFile, DiskLock, OpenMode};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The unit a power loss keeps or loses.
pub const SECTOR_BYTES: usize = 512;

/// Files in memory with the failures of real ones, decided by a seed.
///
/// A power loss ([`SimDisk::crash`]) keeps, of every 512-byte sector, some state between the last sync and now, and of
/// the names in a directory any subset of the changes since [`Disk::sync_dir`]. A failed sync leaves its writes readable
/// but never durable, as Linux does: a later sync that succeeds does not bring them to the disk.
/// Handles opened before a crash are dead: every call on them fails, so a task that outlives its instance cannot write.
#[derive(Debug)]
pub struct SimDisk {
    shared: Arc<Mutex<Shared>>,
    locks: Arc<Locks>,
}

#[derive(Debug)]
struct Shared {
    random: ChaCha8Rng,
    /// Names as a running process sees them.
    names: BTreeMap<PathBuf, u64>,
    /// Names as they would be found after a power loss, and what happened to them since, in order.
    durable_names: BTreeMap<PathBuf, u64>,
    name_changes: Vec<NameChange>,
    files: BTreeMap<u64, Content>,
    next_file: u64,
    /// Grows with each crash; handles of an older one are dead.
    epoch: u64,
    sync_failures: SyncFailures,
    /// The power goes after so many more changes; nothing works from then until [`SimDisk::crash`].
    power: Power,
    syncs: u64,
    writes: u64,
    operations: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    On,
    OnFor(u32),
    Off,
}

/// Which syncs fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncFailures {
    Never,
    OneIn(u32),
    Next,
}

#[derive(Debug, Clone)]
enum NameChange {
    Bind { name: PathBuf, file: u64 },
    Rename { from: PathBuf, to: PathBuf, file: u64 },
    Unbind { name: PathBuf },
}

#[derive(Debug, Default, Clone)]
struct Content {
    durable: Vec<u8>,
    current: Vec<u8>,
    /// Writes since the last sync, in order.
    unsynced: Vec<(u64, Vec<u8>)>,
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
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_changes: Vec::new(),
            files: BTreeMap::new(),
            next_file: 0,
            epoch: 0,
            sync_failures: SyncFailures::Never,
            power: Power::On,
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

    /// From now on one sync in `n` fails; zero stops it.
    pub fn fail_syncs(&self, one_in: u32) {
        self.shared.lock().sync_failures = if one_in == 0 {
            SyncFailures::Never
        } else {
            SyncFailures::OneIn(one_in)
        };
    }

    /// The next sync fails, and only that one.
    pub fn fail_next_sync(&self) {
        self.shared.lock().sync_failures = SyncFailures::Next;
    }

    /// The power goes in the middle of what is done: after so many more writes, syncs and changes of names. From then on
    /// every call fails, until [`SimDisk::crash`] says what was kept.
    pub fn power_off_after(&self, changes: u32) {
        self.shared.lock().power = Power::OnFor(changes);
    }

    /// Whether the power went as told.
    pub fn is_off(&self) -> bool {
        self.shared.lock().power == Power::Off
    }

    /// Inverts one bit of a file, durably. `false` when the file has no such bit.
    pub fn flip_bit(&self, path: &Path, bit: u64) -> bool {
        let mut shared = self.shared.lock();
        let Some(file) = shared.names.get(path).copied() else {
            return false;
        };
        let Some(content) = shared.files.get_mut(&file) else {
            return false;
        };
        let Ok(byte) = usize::try_from(bit / 8) else {
            return false;
        };
        let mask = 1 << (bit % 8);
        if byte >= content.current.len() {
            return false;
        }
        content.current[byte] ^= mask;
        if let Some(durable) = content.durable.get_mut(byte) {
            *durable ^= mask;
        }
        true
    }

    /// Every file and its length, by name.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let shared = self.shared.lock();
        let length = |file| {
            shared
                .files
                .get(file)
                .map_or(0, |content: &Content| content.current.len() as u64)
        };
        shared
            .names
            .iter()
            .map(|(name, file)| (name.clone(), length(file)))
            .collect()
    }

    /// A copy of a file's bytes.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let shared = self.shared.lock();
        let file = shared.names.get(path)?;
        shared.files.get(file).map(|content| content.current.clone())
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
        self.sync_failures = SyncFailures::Never;
        self.power = Power::On;
        for change in std::mem::take(&mut self.name_changes) {
            if self.random.random_bool(0.5) {
                apply(&mut self.durable_names, change);
            }
        }
        self.names = self.durable_names.clone();
        let bound: BTreeSet<u64> = self.names.values().copied().collect();
        self.files.retain(|file, _| bound.contains(file));
        for content in self.files.values_mut() {
            content.lose_power(&mut self.random);
        }
    }

    /// One more change is made, if there is power for it.
    fn spend(&mut self) -> io::Result<()> {
        match &mut self.power {
            Power::On => return Ok(()),
            Power::OnFor(0) | Power::Off => self.power = Power::Off,
            Power::OnFor(left) => {
                *left -= 1;
                return Ok(());
            }
        }
        self.has_power()
    }

    fn has_power(&self) -> io::Result<()> {
        if self.power == Power::Off {
            Err(io::Error::other("the power is off"))
        } else {
            Ok(())
        }
    }

    fn change_name(&mut self, change: NameChange) -> io::Result<()> {
        self.spend()?;
        self.operations += 1;
        apply(&mut self.names, change.clone());
        self.name_changes.push(change);
        Ok(())
    }

    fn sync_fails(&mut self) -> bool {
        self.syncs += 1;
        match self.sync_failures {
            SyncFailures::Never => false,
            SyncFailures::OneIn(n) => self.random.random_ratio(1, n),
            SyncFailures::Next => {
                self.sync_failures = SyncFailures::Never;
                true
            }
        }
    }
}

fn apply(names: &mut BTreeMap<PathBuf, u64>, change: NameChange) {
    match change {
        NameChange::Bind { name, file } => {
            names.insert(name, file);
        }
        NameChange::Rename { from, to, file } => {
            names.remove(&from);
            names.insert(to, file);
        }
        NameChange::Unbind { name } => {
            names.remove(&name);
        }
    }
}

impl Content {
    /// Each sector becomes what it was at the last sync, or after any one of the writes since.
    fn lose_power(&mut self, random: &mut ChaCha8Rng) {
        let mut states = vec![self.durable.clone()];
        for (offset, bytes) in std::mem::take(&mut self.unsynced) {
            let mut next = states.last().cloned().unwrap_or_default();
            // The write was accepted once, so it fits.
            if write_into(&mut next, offset, &bytes).is_ok() {
                states.push(next);
            }
        }
        let longest = states.last().map_or(0, Vec::len);
        let mut kept = vec![0; longest];
        let mut length = self.durable.len();
        for start in (0..longest).step_by(SECTOR_BYTES) {
            let end = (start + SECTOR_BYTES).min(longest);
            let state = &states[random.random_range(0..states.len())];
            if let Some(bytes) = state
                .get(start..end.min(state.len()))
                .filter(|bytes| !bytes.is_empty())
            {
                kept[start..start + bytes.len()].copy_from_slice(bytes);
                length = length.max(start + bytes.len());
            }
        }
        // The length may have grown although the last sectors were lost; they read as zeros then.
        let length = if random.random_bool(0.5) { longest } else { length };
        kept.truncate(length);
        self.durable.clone_from(&kept);
        self.current = kept;
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let mut shared = self.shared.lock();
        shared.has_power()?;
        let file = match (mode, shared.names.get(path).copied()) {
            (OpenMode::CreateNew, Some(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            (OpenMode::CreateNew, None) => {
                shared.next_file += 1;
                let file = shared.next_file;
                shared.change_name(NameChange::Bind {
                    name: path.to_owned(),
                    file,
                })?;
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
        let file = shared.names.get(from).copied().ok_or(io::ErrorKind::NotFound)?;
        shared.change_name(NameChange::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
            file,
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut shared = self.shared.lock();
        if !shared.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        shared.change_name(NameChange::Unbind {
            name: path.to_owned(),
        })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let shared = self.shared.lock();
        shared.has_power()?;
        let names = shared.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(names
            .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
            .collect())
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut shared = self.shared.lock();
        shared.spend()?;
        if shared.sync_fails() {
            return Err(io::Error::other("injected failure to sync a directory"));
        }
        let changes = std::mem::take(&mut shared.name_changes);
        for change in changes {
            let (NameChange::Bind { name, .. }
            | NameChange::Unbind { name }
            | NameChange::Rename { to: name, .. }) = &change;
            if name.parent() == Some(dir) {
                apply(&mut shared.durable_names, change);
            } else {
                shared.name_changes.push(change);
            }
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        self.shared.lock().has_power()?;
        self.locks.take(path)
    }
}

impl SimFile {
    fn content<'a>(&self, shared: &'a mut Shared) -> io::Result<&'a mut Content> {
        shared.has_power()?;
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
        shared.spend()?;
        shared.writes += 1;
        let content = self.content(&mut shared)?;
        write_into(&mut content.current, offset, bytes)?;
        content.unsynced.push((offset, bytes.to_vec()));
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut shared = self.shared.lock();
        Ok(read_from(&self.content(&mut shared)?.current, offset, buffer))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut shared = self.shared.lock();
        shared.spend()?;
        let fails = shared.sync_fails();
        let content = self.content(&mut shared)?;
        let written = std::mem::take(&mut content.unsynced);
        if fails {
            // The pages are marked clean: still readable, never written again.
            return Err(io::Error::other("injected failure to sync"));
        }
        for (offset, bytes) in written {
            write_into(&mut content.durable, offset, &bytes)?;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let mut shared = self.shared.lock();
        Ok(self.content(&mut shared)?.current.len() as u64)
    }
}
