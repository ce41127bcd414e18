//! From the files to a running state, and a report of what was found.

use super::active::Active;
use super::checkpoint::Checkpoint;
use super::directory::{self, Found, lock};
use super::disk_reserve::DiskReserve;
use super::files::{Appender, Files, Table, new_segment, segment_in_reserve};
use super::format::{ActiveHeader, SECTOR, SegmentHeader, Stored};
use super::options::LogOptions;
use super::recovery_report::RecoveryReport;
use super::resume::resume;
use super::seal;
use super::segment::{Batch, Segment};
use crate::encryption::Encryption;
use crate::feed::Feed;
use crate::live::Live;
use crate::{Event, StorageError};
use machinery_meta::Revision;
use machinery_runtime::{Disk, OpenMode};
use parking_lot::Mutex;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A state to go on from.
pub(super) struct Recovered {
    pub(super) live: Live,
    pub(super) feed: Feed,
    pub(super) files: Files,
    pub(super) appender: Appender,
    pub(super) report: RecoveryReport,
}

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
    let Opened {
        room,
        mut active,
        mut found,
    } = open(&disk, options, &mut report)?;
    let store = found.store(fresh_store, &active)?;

    let Loaded {
        live,
        feed,
        last,
        next_batch,
    } = load(&mut found, &active, options, &mut report)?;
    active.establish((&*disk, &dir), store, found.newest_index())?;

    let next_index = found.last_index + 1;
    let plan = SegmentPlan {
        store,
        index: next_index,
        next_batch,
        last,
        live: &live,
        newest: found.segments.last().cloned(),
    };
    let begun = plan.begin((&*disk, &dir), &room, &active)?;
    let mut segments = found.segments;
    if segments
        .last()
        .is_none_or(|newest| !Arc::ptr_eq(newest, &begun.0))
    {
        segments.push(Arc::clone(&begun.0));
    }
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

/// The files of a data directory, without what an earlier run left unfinished.
struct Opened {
    room: DiskReserve,
    active: Active,
    found: Found,
}

fn open(
    disk: &Arc<dyn Disk>,
    options: &LogOptions,
    report: &mut RecoveryReport,
) -> Result<Opened, StorageError> {
    let place = (&**disk, options.dir.as_path());
    let names = directory::names(place.0, place.1)?;
    let room = DiskReserve::find(Arc::clone(disk), place.1, &names, options.reserve_bytes);
    let unfinished = room.unfinished(&names);
    let active = Active::open(place, OpenMode::ReadWrite, report)?;
    let mut found = Found::open(place, OpenMode::ReadWrite, names, active.found())?;
    // A name that an earlier run did not get durable might come back, for a file that has another one by then.
    disk.sync_dir(place.1)
        .map_err(StorageError::io(format!("syncing {}", place.1.display())))?;
    for leftover in unfinished.iter().chain(&found.leftovers) {
        room.discard(leftover)?;
    }
    report.problems.append(&mut found.problems);
    if found.is_fresh() {
        sync_above(place.0, place.1)?;
    }
    Ok(Opened { room, active, found })
}

/// The state that the files hold.
pub(super) struct Loaded {
    pub(super) live: Live,
    pub(super) feed: Feed,
    /// The last batch of the log.
    last: Option<Batch>,
    next_batch: u64,
}

/// Reads the newest checkpoint and the log behind it.
pub(super) fn load(
    found: &mut Found,
    active: &Active,
    options: &LogOptions,
    report: &mut RecoveryReport,
) -> Result<Loaded, StorageError> {
    found.has_newest(active)?;
    let mut replay = Replay::from_checkpoint(found, options, report)?;
    let next_batch = replay.segments(&found.segments, report)?;
    found.is_whole(active, next_batch)?;
    Ok(replay.finish(found, next_batch, report))
}

/// Settings of a look: no history is kept, nothing is opened.
pub(super) fn for_reading() -> LogOptions {
    LogOptions {
        history_bytes: 0,
        ..LogOptions::new("")
    }
}

/// The whole part of a damaged directory.
pub(super) struct Whole {
    pub(super) live: Live,
    pub(super) ended: Option<StorageError>,
    pub(super) lost: Vec<StorageError>,
}

/// The same of a damaged log, up to the first damage. Where a checkpoint is damaged, and those before it with the log do not
/// reach as far, it is read record by record.
pub(super) fn load_what_is_whole(
    found: &mut Found,
    active: &Active,
    report: &mut RecoveryReport,
) -> Result<Whole, StorageError> {
    let checkpoints = found.checkpoints.clone();
    let mut replay = Replay::from_checkpoint(found, &for_reading(), report)?;
    let read = replay.segments(&found.segments, report);
    let read = read.and_then(|next_batch| found.is_whole(active, next_batch));
    let ended = found.has_newest(active).and(read).err();
    let whole = Whole {
        live: replay.finish(found, 0, report).live,
        ended,
        lost: Vec::new(),
    };
    let newest = checkpoints.last();
    match newest.filter(|newest| whole.ended.is_some() && newest.revision() > whole.live.revision) {
        Some(newest) => salvage(newest, whole, found, report),
        None => Ok(whole),
    }
}

/// A damaged checkpoint and the log behind it.
fn salvage(
    checkpoint: &Checkpoint,
    before: Whole,
    found: &Found,
    report: &mut RecoveryReport,
) -> Result<Whole, StorageError> {
    let mut live = Live {
        revision: checkpoint.revision(),
        batch: checkpoint.header.batch,
        ..Live::default()
    };
    let lost = checkpoint.each_whole(|entry| {
        live.bytes += entry.record.len() as u64;
        live.root.insert(entry.key.clone(), entry);
    })?;
    if live.root.len() == 0 {
        return Ok(before);
    }
    report.checkpoint = Some(checkpoint.revision());
    let mut replay = Replay {
        feed: Feed::new(live.revision, Revision(checkpoint.header.compacted), 0),
        live,
        last: None,
        encryption: None,
        broken: None,
        misses: true,
    };
    let read = replay.segments(&found.segments, report);
    Ok(Whole {
        live: replay.live,
        ended: read.err().or(before.ended),
        lost,
    })
}

/// Makes the names of a new directory and of those above it durable, as far as they may be read.
pub(super) fn sync_above(disk: &dyn Disk, dir: &Path) -> Result<(), StorageError> {
    for above in dir.ancestors().skip(1) {
        // The parent of a relative path is where the process is.
        let above = if above.as_os_str().is_empty() {
            Path::new(".")
        } else {
            above
        };
        match disk.sync_dir(above) {
            // Only the owner of such a directory can have made one in it.
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

/// The newest checkpoint that can be read, and its floor. Damaged ones are reported and left out; whether the log makes
/// up for them is seen when it is replayed.
fn load_checkpoint(
    checkpoints: &mut Vec<Arc<Checkpoint>>,
    encryption: Option<&Encryption>,
    report: &mut RecoveryReport,
) -> Result<(Live, Revision), StorageError> {
    while let Some(checkpoint) = checkpoints.last() {
        let mut live = Live {
            revision: checkpoint.revision(),
            batch: checkpoint.header.batch,
            ..Live::default()
        };
        let read = checkpoint.each(|entry| {
            let entry = seal::opened_if_possible(encryption, entry);
            checkpoint.seals.note(encryption, &entry);
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
    encryption: Option<Arc<Encryption>>,
    broken: Option<(u64, &'static str)>,
    /// Objects of the checkpoint may be missing.
    misses: bool,
}

impl Replay {
    fn from_checkpoint(
        found: &mut Found,
        options: &LogOptions,
        report: &mut RecoveryReport,
    ) -> Result<Self, StorageError> {
        let encryption = options.encryption.clone();
        let (live, compacted) = load_checkpoint(&mut found.checkpoints, encryption.as_deref(), report)?;
        Ok(Self {
            feed: Feed::new(live.revision, compacted, options.history_bytes),
            encryption,
            live,
            last: None,
            broken: None,
            misses: false,
        })
    }

    fn finish(self, found: &Found, next_batch: u64, report: &mut RecoveryReport) -> Loaded {
        let Self { live, feed, last, .. } = self;
        report.revision = live.revision;
        report.compacted = feed.compacted();
        report.objects = live.root.len();
        report.problems.extend(found.begins_late(feed.compacted()));
        Loaded {
            live,
            feed,
            last,
            next_batch,
        }
    }

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
            Stored::Put { entry, previous } => {
                let entry = seal::opened_if_possible(self.encryption.as_deref(), entry);
                (entry.revision, entry.key.clone(), Some(entry), previous)
            }
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
        let follows = found == expected || self.misses && previous.is_none();
        if revision != self.live.revision.next() || !follows {
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
    newest: Option<Arc<Segment>>,
}

/// A segment, and where it must end.
type Begun = (Arc<Segment>, u64);

impl SegmentPlan<'_> {
    /// Begins the segment that will be appended to.
    fn begin(
        &self,
        place: (&dyn Disk, &Path),
        room: &DiskReserve,
        active: &Active,
    ) -> Result<Begun, StorageError> {
        let begun = self.segment(place, room, active)?;
        active.name(ActiveHeader {
            store: self.store,
            index: begun.0.header.index,
            batch: self.next_batch - 1,
        })?;
        Ok(begun)
    }

    /// A new one where the disk has room. On a full disk the newest one, as long as much of a piece is left in it, since
    /// others may take whatever a start gives back; then one in a piece of the reserve; without a piece the newest again.
    ///
    /// A new one repeats the last batch: after a failed sync or a kill that batch may be readable without being on the
    /// disk, and no reader may see it before it is.
    fn segment(
        &self,
        place: (&dyn Disk, &Path),
        room: &DiskReserve,
        active: &Active,
    ) -> Result<Begun, StorageError> {
        let (first_batch, first_revision, bytes) = match &self.last {
            Some(last) => (last.header.batch, last.header.first_revision, &last.bytes[..]),
            None => (self.next_batch, self.live.revision.0 + 1, &[][..]),
        };
        let header = SegmentHeader {
            store: self.store,
            index: self.index,
            first_batch,
            first_revision,
            is_guarded: active.is_kept(),
        };
        let newest = self.end_of_log();
        if newest.is_some() && room.is_short() {
            room.fill();
        }
        if let Some(begun) = new_segment(place, room, header, bytes)? {
            return Ok(begun);
        }
        let go_on = |newest: &Arc<Segment>| {
            let limit = resume(newest, self.last.as_ref());
            limit.map(|limit| (Arc::clone(newest), limit))
        };
        match newest {
            Some(newest) if room.is_worth_going_on(newest.blank_bytes()?) => go_on(newest),
            Some(newest) => match segment_in_reserve(place, room, header, bytes, 0) {
                Err(error) if error.is_no_space() => go_on(newest),
                begun => begun,
            },
            None => segment_in_reserve(place, room, header, bytes, 0),
        }
    }

    /// The newest segment, where the next batch follows what is in it.
    fn end_of_log(&self) -> Option<&Arc<Segment>> {
        let newest = self.newest.as_ref()?;
        let next = match &self.last {
            Some(last) if newest.end() > SECTOR as u64 => last.header.batch + 1,
            Some(_) | None => newest.header.first_batch,
        };
        (next == self.next_batch).then_some(newest)
    }
}
