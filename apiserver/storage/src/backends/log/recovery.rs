//! From the files to a running state, and a report of what was found.

use super::active::Active;
use super::checkpoint::Checkpoint;
use super::feed::Feed;
use super::files::{Appender, Files, Table, new_segment};
use super::format::{ActiveHeader, FileHeader, HeaderError, SECTOR, SegmentHeader, Stored, unknown_version};
use super::live::Live;
use super::options::LogOptions;
use super::room::Room;
use super::segment::{Batch, Segment};
use crate::{Event, StorageError};
use machinery_meta::Revision;
use machinery_runtime::{Disk, DiskLock, OpenMode};
use parking_lot::Mutex;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What recovery found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The last revision that is there.
    pub revision: Revision,
    /// The oldest that can be read.
    pub compacted: Revision,
    /// How many objects are there.
    pub objects: usize,
    /// The checkpoint that was read.
    pub checkpoint: Option<Revision>,
    /// Changes read from the log behind it.
    pub replayed: u64,
    /// Bytes of a batch that a power loss left incomplete; nobody was told that it is stored.
    pub torn_bytes: u64,
    /// What was wrong and could be worked around, one line each.
    pub problems: Vec<String>,
}

/// A state to go on from.
pub(super) struct Recovered {
    pub(super) live: Live,
    pub(super) feed: Feed,
    pub(super) files: Files,
    pub(super) appender: Appender,
    pub(super) report: RecoveryReport,
}

const LOCK_NAME: &str = "LOCK";

/// Reads the data directory. `fresh_store` names the store should the directory be new.
pub(super) fn recover(
    disk: Arc<dyn Disk>,
    options: &LogOptions,
    fresh_store: u64,
) -> Result<Recovered, StorageError> {
    let dir = options.dir.clone();
    disk.create_dir_all(&dir)
        .map_err(StorageError::io(format!("creating {}", dir.display())))?;
    let lock = lock(&*disk, &dir)?;
    let mut report = RecoveryReport::default();
    let names = disk
        .list(&dir)
        .map_err(StorageError::io(format!("listing {}", dir.display())))?;
    let room = Room::find(Arc::clone(&disk), &dir, &names, options.reserve_bytes);
    let active = Active::open(&*disk, &dir, &mut report)?;
    let mut found = Found::open(&*disk, &dir, names, active.found())?;
    report.problems.append(&mut found.problems);
    if found.is_fresh() {
        sync_above(&*disk, &dir)?;
    }
    let store = found.store(fresh_store, &active)?;

    let (live, compacted) = load_checkpoint(&mut found.checkpoints, &mut report)?;
    let mut replay = Replay {
        feed: Feed::new(live.revision, compacted, options.history_bytes),
        live,
        last: None,
        broken: None,
    };
    let next_batch = replay.segments(&found.segments, &mut report)?;
    let Replay { live, feed, last, .. } = replay;
    report.revision = live.revision;
    report.compacted = feed.compacted();
    report.objects = live.root.len();
    report.problems.extend(found.begins_late(feed.compacted()));

    let next_index = found.last_index + 1;
    let plan = SegmentPlan {
        store,
        index: next_index,
        next_batch,
        last,
        live: &live,
    };
    let mut begun = plan.begin(&*disk, &dir, &room, &active);
    if matches!(begun, Err(StorageError::NoSpace)) {
        // Starts that the power cut short have used the reserve up; what they did not need of it comes back.
        found.segments.iter().try_for_each(|segment| segment.trim())?;
        room.refill()?;
        begun = plan.begin(&*disk, &dir, &room, &active);
    }
    let begun = begun?;
    let mut segments = found.segments;
    segments.push(Arc::clone(&begun.0));
    let next_batch = next_batch.max(begun.0.header.first_batch);
    let appender = Appender::new(begun, next_batch, next_index + 1, options.segment_bytes);
    let files = Files {
        disk,
        dir,
        store,
        room: Arc::new(room),
        active,
        table: Mutex::new(Table {
            segments,
            checkpoints: found.checkpoints,
            lock: Some(lock),
        }),
    };
    // What a power loss kept from being removed is removed now.
    files.prune(feed.compacted())?;
    if files.room.is_full() {
        // Now, not in the background: the next start may come before.
        files.refill()?;
    }
    Ok(Recovered {
        live,
        feed,
        files,
        appender,
        report,
    })
}

fn lock(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn DiskLock>, StorageError> {
    let taken = disk.lock(&dir.join(LOCK_NAME));
    taken.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => StorageError::Locked(dir.display().to_string()),
        _ => StorageError::io(format!("locking {}", dir.display()))(error),
    })
}

/// Makes the names of a new directory and of those above it durable, as far as they may be read.
fn sync_above(disk: &dyn Disk, dir: &Path) -> Result<(), StorageError> {
    for above in dir.ancestors().skip(1) {
        // The parent of a relative path is where the process is.
        let above = if above.as_os_str().is_empty() {
            Path::new(".")
        } else {
            above
        };
        match disk.sync_dir(above) {
            // Nobody but the owner of such a directory can have made one in it.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
                ) => {}
            synced => synced.map_err(StorageError::io(format!("syncing {}", above.display())))?,
        }
    }
    Ok(())
}

/// What the directory holds.
struct Found {
    /// By number of the first batch.
    segments: Vec<Arc<Segment>>,
    /// Oldest first.
    checkpoints: Vec<Arc<Checkpoint>>,
    last_index: u64,
    problems: Vec<String>,
}

impl Found {
    fn open(
        disk: &dyn Disk,
        dir: &Path,
        names: Vec<String>,
        active: Option<ActiveHeader>,
    ) -> Result<Self, StorageError> {
        let mut found = Self {
            segments: Vec::new(),
            checkpoints: Vec::new(),
            last_index: 0,
            problems: Vec::new(),
        };
        for name in names {
            let path = dir.join(&name);
            if let Some(index) = Segment::index_of(&name) {
                found.last_index = found.last_index.max(index);
                let begun = active.is_some_and(|active| index == active.index);
                found.segments.extend(open_segment(disk, &path, begun)?);
            } else if Checkpoint::revision_of(&name).is_some() {
                match Checkpoint::open(disk, &path) {
                    Ok(checkpoint) => found.checkpoints.push(Arc::new(checkpoint)),
                    Err(error @ StorageError::NewerFormat { .. }) => return Err(error),
                    Err(error) => found.problems.push(error.to_string()),
                }
            } else if Checkpoint::is_draft(&name) {
                disk.remove(&path)
                    .map_err(StorageError::io(format!("removing {}", path.display())))?;
            }
        }
        found
            .segments
            .sort_by_key(|segment| (segment.header.first_batch, segment.header.index));
        found.checkpoints.sort_by_key(|checkpoint| checkpoint.revision());
        let Some(active) = active else {
            return Ok(found);
        };
        let mut segments = found.segments.iter();
        if segments.any(|segment| segment.header.index == active.index) {
            return Ok(found);
        }
        Err(StorageError::Corrupt {
            file: Segment::path(dir, active.index).display().to_string(),
            offset: 0,
            found: "the newest segment of the log is missing".to_owned(),
        })
    }

    /// What pruning keeps begins behind the newest checkpoint that is not above the floor, or at the first batch.
    fn begins_late(&self, floor: Revision) -> Option<String> {
        let mut bases = self.checkpoints.iter().rev();
        let base = bases.find(|checkpoint| checkpoint.revision() <= floor);
        let expected = base.map_or(0, |checkpoint| checkpoint.header.batch) + 1;
        let first = self.segments.first()?;
        (first.header.first_batch > expected).then(|| {
            format!(
                "the log begins with batch {} of {}, batch {expected} and what follows it are missing",
                first.header.first_batch,
                first.path.display()
            )
        })
    }

    /// Nothing was ever stored here.
    fn is_fresh(&self) -> bool {
        self.segments.is_empty() && self.checkpoints.is_empty() && self.problems.is_empty()
    }

    /// Which store this is; all files must agree.
    fn store(&self, fresh: u64, active: &Active) -> Result<u64, StorageError> {
        let of_segments = self
            .segments
            .iter()
            .map(|segment| (segment.header.store, &segment.path));
        let of_checkpoints = self
            .checkpoints
            .iter()
            .map(|checkpoint| (checkpoint.header.store, &checkpoint.path));
        let of_active = active.found().map(|found| (found.store, active.path()));
        let mut all = of_segments.chain(of_checkpoints).chain(of_active);
        let Some((store, _)) = all.next() else {
            return Ok(fresh);
        };
        match all.find(|(other, _)| *other != store) {
            None => Ok(store),
            Some((_, path)) => Err(StorageError::Corrupt {
                file: path.display().to_string(),
                offset: 0,
                found: "the file belongs to another store".to_owned(),
            }),
        }
    }
}

/// A segment, or nothing when it was never begun: its header is written last.
fn open_segment(disk: &dyn Disk, path: &Path, begun: bool) -> Result<Option<Arc<Segment>>, StorageError> {
    let failed = || StorageError::io(format!("reading {}", path.display()));
    let file = disk.open(path, OpenMode::ReadWrite).map_err(failed())?;
    let mut sector = vec![0; SECTOR];
    let read = file.read_at(0, &mut sector).map_err(failed())?;
    match FileHeader::decode(&sector[..read]) {
        Ok(FileHeader::Segment(header)) => Ok(Some(Arc::new(Segment::new(header, path.to_owned(), file)))),
        Err(HeaderError::Blank) if !begun => {
            disk.remove(path).map_err(failed())?;
            Ok(None)
        }
        Err(HeaderError::Unknown(found)) => Err(unknown_version(path, found)),
        Ok(FileHeader::Checkpoint(_) | FileHeader::Active(_))
        | Err(HeaderError::Damaged | HeaderError::Blank) => Err(StorageError::Corrupt {
            file: path.display().to_string(),
            offset: 0,
            found: "the header of a segment is damaged".to_owned(),
        }),
    }
}

/// The newest checkpoint that can be read, and its floor. Damaged ones are reported and left out; whether the log makes
/// up for them is seen when it is replayed.
fn load_checkpoint(
    checkpoints: &mut Vec<Arc<Checkpoint>>,
    report: &mut RecoveryReport,
) -> Result<(Live, Revision), StorageError> {
    while let Some(checkpoint) = checkpoints.last() {
        let mut live = Live {
            revision: checkpoint.revision(),
            batch: checkpoint.header.batch,
            ..Live::default()
        };
        let read = checkpoint.each(|entry| {
            live.bytes += entry.record.len() as u64;
            live.root.insert(entry.key.clone(), entry);
        });
        match read {
            Ok(()) => {
                report.checkpoint = Some(checkpoint.revision());
                return Ok((live, Revision(checkpoint.header.compacted)));
            }
            Err(error @ StorageError::Corrupt { .. }) => report.problems.push(error.to_string()),
            Err(error) => return Err(error),
        }
        checkpoints.pop();
    }
    Ok((Live::default(), Revision::ZERO))
}

/// Applies the log behind the checkpoint.
struct Replay {
    live: Live,
    feed: Feed,
    /// The last batch of the log.
    last: Option<Batch>,
    broken: Option<(u64, &'static str)>,
}

impl Replay {
    /// Reads the segments that are needed; the number of the batch that comes next.
    fn segments(
        &mut self,
        segments: &[Arc<Segment>],
        report: &mut RecoveryReport,
    ) -> Result<u64, StorageError> {
        let mut next = self.live.batch + 1;
        let Some(last) = segments.last() else {
            if self.live.batch == 0 && report.problems.is_empty() {
                return Ok(next);
            }
            return Err(missing("the log is missing"));
        };
        let first = segments.partition_point(|segment| segment.header.first_batch <= next);
        let first = first
            .checked_sub(1)
            .ok_or_else(|| missing("the log behind the checkpoint is missing"))?;
        for (at, segment) in segments.iter().enumerate() {
            let until = segments.get(at + 1).map(|following| following.header.first_batch);
            if at < first {
                segment.read_later(until.unwrap_or(next));
                continue;
            }
            let end = segment.scan(until, |batch| self.batch(batch))?;
            if let Some((offset, found)) = self.broken {
                return Err(segment.corrupt(offset, found));
            }
            next = next.max(end.next_batch);
            report.torn_bytes += end.torn_bytes;
        }
        debug_assert!(last.header.first_batch <= next, "segments are read in order");
        report.replayed = self.live.revision.0 - report.checkpoint.unwrap_or_default().0;
        Ok(next)
    }

    fn batch(&mut self, mut batch: Batch) {
        if batch.header.batch > self.live.batch {
            for (stored, _) in std::mem::take(&mut batch.records) {
                if let Err(found) = self.stored(stored) {
                    self.broken.get_or_insert((batch.offset, found));
                    return;
                }
            }
            self.live.batch = batch.header.batch;
        }
        self.last = Some(batch);
    }

    fn stored(&mut self, stored: Stored) -> Result<(), &'static str> {
        let (revision, key, entry, expected) = match stored {
            Stored::Compact { floor } => {
                self.feed.compact(floor);
                return Ok(());
            }
            Stored::Put { entry, previous } => (entry.revision, entry.key.clone(), Some(entry), previous),
            Stored::Delete {
                key,
                revision,
                previous,
            } => (revision, key, None, previous),
        };
        let previous = self.live.root.get(key.as_str()).cloned();
        let found = previous
            .as_ref()
            .map_or(Revision::ZERO, |previous| previous.revision);
        if revision != self.live.revision.next() || found != expected {
            return Err("a change does not follow the one before it");
        }
        let event = Event {
            revision,
            key,
            entry,
            previous,
        };
        self.live.apply(&event);
        self.feed.push(Arc::new(event), Duration::ZERO, &mut Vec::new());
        Ok(())
    }
}

fn missing(found: &str) -> StorageError {
    StorageError::Corrupt {
        file: "data directory".to_owned(),
        offset: 0,
        found: found.to_owned(),
    }
}

struct SegmentPlan<'a> {
    store: u64,
    index: u64,
    next_batch: u64,
    last: Option<Batch>,
    live: &'a Live,
}

impl SegmentPlan<'_> {
    /// Begins the segment that will be appended to, and where it must end. It repeats the last batch: after a failed sync
    /// or a kill that batch may be readable without being on the disk, and nobody may see it before it is.
    fn begin(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        room: &Room,
        active: &Active,
    ) -> Result<(Arc<Segment>, u64), StorageError> {
        let (first_batch, first_revision, bytes) = match &self.last {
            Some(last) => (last.header.batch, last.header.first_revision, &last.bytes[..]),
            None => (self.next_batch, self.live.revision.0 + 1, &[][..]),
        };
        let header = SegmentHeader {
            store: self.store,
            index: self.index,
            first_batch,
            first_revision,
        };
        let begun = new_segment((disk, dir), room, header, bytes, 0)?;
        let named = ActiveHeader {
            store: self.store,
            index: self.index,
        };
        active.name(disk, dir, named)?;
        Ok(begun)
    }
}
