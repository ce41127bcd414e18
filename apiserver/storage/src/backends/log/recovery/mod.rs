//! From the files to a running state, and a report of what was found: [`loading`] reads it, and here a log is begun that goes on
//! from it.

mod loading;

pub(super) use loading::{for_reading, load, load_what_is_whole};

use super::active::Active;
use super::directory::{self, Found, lock};
use super::disk_reserve::DiskReserve;
use super::files::{Appender, Files, Table, new_segment, segment_in_reserve};
use super::format::{ActiveHeader, SECTOR, SegmentHeader};
use super::options::LogOptions;
use super::recovery_report::RecoveryReport;
use super::resume::resume;
use super::segment::{Batch, Segment};
use crate::StorageError;
use crate::feed::Feed;
use crate::live::Live;
use loading::Loaded;
use machinery_runtime::{Disk, OpenMode};
use parking_lot::Mutex;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

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
    // After `load`, which judges what the last run has left there.
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
        // A directory that was just made is durable only with its own name in the one above.
        sync_above(place.0, place.1)?;
    }
    Ok(Opened { room, active, found })
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
