//! A data directory that no server runs in, read without changing a byte of it.

use super::active::Active;
use super::backup::{self, Backup, Content};
use super::checkpoint::Checkpoint;
use super::directory::{self, Found, lock_to_read, open_segment};
use super::format::ActiveHeader;
use super::recovery;
use super::recovery_report::RecoveryReport;
use super::seal;
use super::segment::Segment;
use crate::encryption::Encryption;
use crate::live::Root;
use crate::{Entry, StorageError};
use machinery_meta::Revision;
use machinery_runtime::{Disk, DiskLock, OpenMode};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The state of a log or a backup, in memory.
#[derive(Debug)]
pub struct OfflineState {
    pub(super) store: u64,
    pub(super) revision: Revision,
    pub(super) root: Root,
    /// Held as long as the directory is read.
    #[expect(dead_code, reason = "held for its lock")]
    pub(super) lock: Option<Box<dyn DiskLock>>,
}

/// The whole part of a damaged directory.
#[derive(Debug)]
pub struct Salvaged {
    pub state: OfflineState,
    /// The error for which a server does not start on it, if any: the log is saved up to there.
    pub ended: Option<StorageError>,
    /// Places of the checkpoint whose objects are left out, as far as the log behind it does not have them.
    pub lost: Vec<StorageError>,
}

/// Something in a directory that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file, the byte and what is wrong.
    pub problem: String,
    pub file: PathBuf,
}

/// Result of [`check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// The state that a server would start with, or why it would not.
    pub start: Result<RecoveryReport, String>,
    /// Last readable revision, if a server would not start.
    pub readable: Option<Revision>,
    pub findings: Vec<Finding>,
    pub files: usize,
    pub bytes: u64,
}

impl OfflineState {
    /// Reads a data directory.
    ///
    /// Errors: [`StorageError::Locked`] when a server runs in it; [`StorageError::Corrupt`].
    pub fn open(disk: &dyn Disk, dir: &Path) -> Result<Self, StorageError> {
        let lock = lock_to_read(disk, dir)?;
        let (mut found, mut report, active) = look(disk, dir)?;
        let store = found.store(0, &active)?;
        let loaded = recovery::load(&mut found, &active, &recovery::for_reading(), &mut report)?;
        Ok(Self {
            store,
            revision: loaded.live.revision,
            root: loaded.live.root,
            lock,
        })
    }

    /// The same up to the first damage of the log; of a checkpoint that nothing makes up for, what is whole.
    pub fn open_damaged(disk: &dyn Disk, dir: &Path) -> Result<Salvaged, StorageError> {
        let lock = lock_to_read(disk, dir)?;
        let (mut found, mut report, active) = look(disk, dir)?;
        let store = found.store(0, &active)?;
        let whole = recovery::load_what_is_whole(&mut found, &active, &mut report)?;
        let state = Self {
            store,
            revision: whole.live.revision,
            root: whole.live.root,
            lock,
        };
        Ok(Salvaged {
            state,
            ended: whole.ended,
            lost: whole.lost,
        })
    }

    /// Reads a backup.
    pub fn of_backup(disk: &dyn Disk, path: &Path) -> Result<Self, StorageError> {
        let Content { header, root } = backup::read(disk, path)?;
        Ok(Self {
            store: header.store,
            revision: Revision(header.revision),
            root,
            lock: None,
        })
    }

    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Every object, in the order of keys.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.root.values()
    }

    /// Opens what is encrypted.
    ///
    /// Errors: [`StorageError::Sealed`] for the first object that no key opens.
    pub fn open_sealed(&mut self, encryption: &Encryption) -> Result<(), StorageError> {
        self.open_sealed_below("", encryption)
    }

    /// The same for objects whose key begins so; the others stay as they are.
    pub fn open_sealed_below(&mut self, start: &str, encryption: &Encryption) -> Result<(), StorageError> {
        let sealed: Vec<_> = self
            .root
            .values()
            .filter(|entry| entry.key.as_str().starts_with(start) && entry.record.is_sealed())
            .cloned()
            .collect();
        for entry in sealed {
            let opened = seal::opened(Some(encryption), &entry)?;
            self.root.insert(opened.key.clone(), opened);
        }
        Ok(())
    }

    /// Objects that are encrypted, each with what keeps these keys from opening it, or without where they open it.
    pub fn sealed<'a>(
        &'a self,
        encryption: &'a Encryption,
    ) -> impl Iterator<Item = (&'a Entry, Option<StorageError>)> {
        let sealed = self.root.values().filter(|entry| entry.record.is_sealed());
        sealed.map(|entry| (&**entry, seal::opened(Some(encryption), entry).err()))
    }

    /// A backup of the state.
    pub fn backup(&self) -> Backup {
        let bytes = self.root.values().map(|entry| entry.record.len() as u64).sum();
        Backup::of(self.store, (self.revision, self.root.clone(), bytes), None, None)
    }
}

fn look(disk: &dyn Disk, dir: &Path) -> Result<(Found, RecoveryReport, Active), StorageError> {
    let mut report = RecoveryReport::default();
    let names = directory::names(disk, dir)?;
    let active = Active::open((disk, dir), OpenMode::Read, &mut report)?;
    let mut found = Found::open((disk, dir), OpenMode::Read, names, active.found())?;
    report.problems.append(&mut found.problems);
    if found.is_fresh() && report.problems.is_empty() {
        return Err(StorageError::Io {
            doing: format!("{} holds no log", dir.display()),
            source: Arc::new(ErrorKind::NotFound.into()),
        });
    }
    Ok((found, report, active))
}

/// Reads every file of a data directory, each for itself and then as a start would.
///
/// Errors: [`StorageError::Locked`] when a server runs in it, and what keeps the directory from being read at all.
pub fn check(disk: &dyn Disk, dir: &Path) -> Result<CheckReport, StorageError> {
    let _lock = lock_to_read(disk, dir)?;
    let names = disk.list(dir);
    let names = names.map_err(StorageError::io(format!("listing {}", dir.display())))?;
    let mut checked = Checked {
        disk,
        dir,
        report: CheckReport {
            start: Err(String::new()),
            readable: None,
            findings: Vec::new(),
            files: 0,
            bytes: 0,
        },
    };
    let mut active_report = RecoveryReport::default();
    let active = Active::open((disk, dir), OpenMode::Read, &mut active_report).ok();
    checked.checkpoints(&names);
    checked.segments(&names, active.and_then(|active| active.found()));
    let started = look(disk, dir).and_then(|(mut found, mut report, active)| {
        found.store(0, &active)?;
        recovery::load(&mut found, &active, &recovery::for_reading(), &mut report)?;
        Ok(report)
    });
    let mut report = checked.report;
    if started.is_err() {
        let readable = OfflineState::open_damaged_unlocked(disk, dir);
        report.readable = readable.ok().filter(|revision| *revision > Revision::ZERO);
    }
    report.start = started.map_err(|error| error.chain());
    Ok(report)
}

impl OfflineState {
    fn open_damaged_unlocked(disk: &dyn Disk, dir: &Path) -> Result<Revision, StorageError> {
        let (mut found, mut report, active) = look(disk, dir)?;
        let whole = recovery::load_what_is_whole(&mut found, &active, &mut report)?;
        Ok(whole.live.revision)
    }
}

struct Checked<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    report: CheckReport,
}

impl Checked<'_> {
    fn checkpoints(&mut self, names: &[String]) {
        for name in names
            .iter()
            .filter(|name| Checkpoint::revision_of(name).is_some())
        {
            let path = self.dir.join(name);
            let read = Checkpoint::open(self.disk, &path).and_then(|checkpoint| checkpoint.each(drop));
            self.note(path, read);
        }
    }

    fn segments(&mut self, names: &[String], active: Option<ActiveHeader>) {
        let mut segments = Vec::new();
        for name in names {
            let Some(index) = Segment::index_of(name) else {
                continue;
            };
            let path = self.dir.join(name);
            let begun = active.is_some_and(|active| active.index == index);
            match open_segment(self.disk, &path, OpenMode::Read, begun) {
                Ok(Some(segment)) => segments.push(segment),
                Ok(None) => {}
                Err(error) => self.note(path, Err(error)),
            }
        }
        segments.sort_by_key(|segment| (segment.header.first_batch, segment.header.index));
        for (at, segment) in segments.iter().enumerate() {
            let until = segments.get(at + 1).map(|next| next.header.first_batch);
            let read = segment.scan(until, drop).map(drop);
            self.note(segment.path.clone(), read);
        }
    }

    fn note(&mut self, file: PathBuf, read: Result<(), StorageError>) {
        self.report.files += 1;
        let length = self.disk.open(&file, OpenMode::Read).and_then(|file| file.len());
        self.report.bytes += length.unwrap_or(0);
        if let Err(error) = read {
            let problem = error.chain();
            self.report.findings.push(Finding { problem, file });
        }
    }
}
