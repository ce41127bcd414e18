//! The files of the log: what is open, what is appended to, what may go.

use super::active::Active;
use super::checkpoint::Checkpoint;
use super::disk_reserve::{DiskReserve, FOR_RECOVERY};
use super::format::{ActiveHeader, BatchHeader, SegmentHeader, TRAILER, batch_start};
use super::segment::Segment;
use crate::StorageError;
use machinery_meta::Revision;
use machinery_runtime::{Disk, DiskLock};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Every file of the store that is open.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) store: u64,
    pub(super) room: Arc<DiskReserve>,
    pub(super) active: Active,
    pub(super) table: Mutex<Table>,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    /// Oldest first.
    pub(super) segments: Vec<Arc<Segment>>,
    /// Oldest first.
    pub(super) checkpoints: Vec<Arc<Checkpoint>>,
    #[expect(dead_code, reason = "held until the files are closed")]
    pub(super) lock: Option<Box<dyn DiskLock>>,
}

/// The end of the log. Only the flush that is under way has it.
#[derive(Debug)]
pub(super) struct Appender {
    segment: Option<Arc<Segment>>,
    offset: u64,
    /// Up to here the file has its blocks, blank behind `offset`.
    laid_out: u64,
    next_batch: u64,
    next_index: u64,
    segment_bytes: u64,
    /// The segment has no more room than this: it is a piece of the reserve, or a start on a full disk went on in it.
    limit: u64,
    /// Begin a new segment before the next batch.
    pub(super) roll: bool,
    /// Bytes appended since the last checkpoint was begun.
    pub(super) since_checkpoint: u64,
}

/// A batch that was written and is not yet known to be durable.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) batch: u64,
    segment: Arc<Segment>,
    first_revision: u64,
    offset: u64,
    end: u64,
}

/// Bytes of a segment whose blocks are allocated ahead of writing.
const LAID_OUT_BYTES: u64 = 256 << 10;

impl Files {
    pub(super) fn segments(&self) -> Vec<Arc<Segment>> {
        self.table.lock().segments.clone()
    }

    pub(super) fn checkpoints(&self) -> Vec<Arc<Checkpoint>> {
        self.table.lock().checkpoints.clone()
    }

    pub(super) fn add_segment(&self, segment: Arc<Segment>) {
        self.table.lock().segments.push(segment);
    }

    pub(super) fn add_checkpoint(&self, checkpoint: Arc<Checkpoint>) {
        let mut table = self.table.lock();
        // One of the same revision has taken the other's name.
        table.checkpoints.retain(|own| own.path != checkpoint.path);
        table.checkpoints.push(checkpoint);
    }

    /// The revision of the newest checkpoint, when history before it has files of its own.
    pub(super) fn history_ends(&self) -> Option<Revision> {
        let table = self.table.lock();
        let newest = table.checkpoints.last()?;
        let behind = table.segments_behind(newest.header.batch) > 0;
        (behind || table.checkpoints.len() > 1).then(|| newest.revision())
    }

    /// Bytes of the segments that hold changes after a revision. Older ones, as far as they are there, are for the next
    /// start and the state that those changes begin from.
    pub(super) fn bytes_after(&self, revision: Revision) -> Result<u64, StorageError> {
        let length = |segment: Arc<Segment>| {
            let failed = StorageError::io(format!("looking at {}", segment.path.display()));
            segment.file.len().map_err(failed)
        };
        self.segments_from(revision.next()).into_iter().map(length).sum()
    }

    /// Bytes of the files that a checkpoint of now makes superfluous.
    pub(super) fn superseded_bytes(&self) -> Result<u64, StorageError> {
        let (segments, checkpoints) = (self.segments(), self.checkpoints());
        let ended = segments.split_last().map_or(&[][..], |(_, ended)| ended);
        let mut bytes = checkpoints.iter().map(|checkpoint| checkpoint.bytes()).sum();
        for segment in ended {
            let failed = StorageError::io(format!("looking at {}", segment.path.display()));
            bytes += segment.file.len().map_err(failed)?;
        }
        Ok(bytes)
    }

    /// Reports whether a file is still a part of the log.
    pub(super) fn has(&self, path: &Path) -> bool {
        let table = self.table.lock();
        let mut segments = table.segments.iter().map(|segment| &segment.path);
        let mut checkpoints = table.checkpoints.iter().map(|checkpoint| &checkpoint.path);
        segments.any(|own| own == path) || checkpoints.any(|own| own == path)
    }

    /// The segments that hold what comes after a revision.
    pub(super) fn segments_from(&self, revision: Revision) -> Vec<Arc<Segment>> {
        let table = self.table.lock();
        let after = table
            .segments
            .partition_point(|segment| segment.header.first_revision <= revision.0);
        table.segments[after.saturating_sub(1)..].to_vec()
    }

    /// Closes every file and releases the lock.
    pub(super) fn close(&self) {
        *self.table.lock() = Table::default();
    }

    /// Gives room that ended segments do not need to the reserve, where it makes a piece: a segment that was one stays as
    /// long, so that it can be one again.
    pub(super) fn refill(&self) -> Result<(), StorageError> {
        if self.room.is_full() {
            let segments = self.segments();
            let ended = segments.split_last().map_or(&[][..], |(_, ended)| ended);
            let blank = ended
                .iter()
                .map(|segment| segment.blank_bytes())
                .sum::<Result<u64, _>>()?;
            if blank > 0 && self.room.makes_a_piece(blank) {
                ended.iter().try_for_each(|segment| segment.trim())?;
            }
        }
        self.room.refill()
    }

    /// Deletes what no read at or after the floor, and no recovery, will read.
    ///
    /// Kept are the newest checkpoint, for recovery; the newest one not above the floor, for reads of the past; and
    /// the log behind that one.
    pub(super) fn prune(&self, floor: Revision) -> Result<(), StorageError> {
        let (segments, checkpoints) = self.table.lock().take_prunable(floor);
        if segments.is_empty() && checkpoints.is_empty() {
            return Ok(());
        }
        for segment in segments {
            self.discard(&segment.path.clone(), segment)?;
        }
        for checkpoint in checkpoints {
            self.discard(&checkpoint.path.clone(), checkpoint)?;
        }
        self.disk
            .sync_dir(&self.dir)
            .map_err(StorageError::io(format!("syncing {}", self.dir.display())))
    }

    /// Takes a file away. One that is still read stays as it is until then.
    fn discard<T>(&self, path: &Path, file: Arc<T>) -> Result<(), StorageError> {
        // A reader has the file open: its blocks cannot become a piece of the reserve under it, only its name
        // can go.
        if Arc::into_inner(file).is_some() {
            return self.room.discard(path);
        }
        self.disk
            .remove(path)
            .map_err(StorageError::io(format!("removing {}", path.display())))
    }
}

impl Table {
    fn take_prunable(&mut self, floor: Revision) -> (Vec<Arc<Segment>>, Vec<Arc<Checkpoint>>) {
        let mut segments = self.take_superseded();
        let Some(base) = self
            .checkpoints
            .iter()
            .rposition(|checkpoint| checkpoint.revision() <= floor)
        else {
            return (segments, Vec::new());
        };
        let batch = self.checkpoints[base].header.batch;
        let newest = self.checkpoints.len() - 1;
        let all = std::mem::take(&mut self.checkpoints);
        let mut gone = Vec::new();
        for (at, checkpoint) in all.into_iter().enumerate() {
            // The base serves reads of the past down to the floor, the newest one recovery; those between serve
            // neither.
            if at == base || at == newest {
                self.checkpoints.push(checkpoint)
            } else {
                gone.push(checkpoint)
            }
        }
        let behind = self.segments_behind(batch);
        segments.extend(self.segments.drain(..behind));
        (segments, gone)
    }

    /// Returns the number of segments that hold nothing but batches up to this one.
    fn segments_behind(&self, batch: u64) -> usize {
        // A segment is behind the checkpoint when the one after it begins no later than the first batch that is not.
        let next = self
            .segments
            .partition_point(|segment| segment.header.first_batch <= batch + 1);
        next.saturating_sub(1)
    }

    /// Segments whose only batch the next one repeats: a start without a write leaves such a one.
    fn take_superseded(&mut self) -> Vec<Arc<Segment>> {
        let firsts: Vec<u64> = self
            .segments
            .iter()
            .map(|segment| segment.header.first_batch)
            .collect();
        let all = std::mem::take(&mut self.segments);
        let mut gone = Vec::new();
        for (at, segment) in all.into_iter().enumerate() {
            let superseded = firsts.get(at + 1).is_some_and(|next| *next <= firsts[at]);
            if superseded {
                gone.push(segment)
            } else {
                self.segments.push(segment)
            }
        }
        gone
    }
}

/// The limit of a segment on a disk that has room.
const NO_LIMIT: u64 = u64::MAX;

/// Makes a segment that holds `batch` or nothing, where the disk has room. The segment, and where it must end.
pub(super) fn new_segment(
    (disk, dir): (&dyn Disk, &Path),
    room: &DiskReserve,
    header: SegmentHeader,
    batch: &[u8],
) -> Result<Option<(Arc<Segment>, u64)>, StorageError> {
    if room.is_full() {
        // Nothing new on a full disk: what a start or a deletion frees is for the reserve first.
        return Ok(None);
    }
    match Segment::create(disk, dir, header, batch) {
        Ok(segment) => return Ok(Some((Arc::new(segment), NO_LIMIT))),
        Err(error) if error.is_no_space() => room.fill(),
        Err(error) => return Err(error),
    }
    let path = Segment::path(dir, header.index);
    match disk.remove(&path) {
        // A segment that was created in part would be taken for the newest one by the next start.
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StorageError::io(format!("removing {}", path.display()))(error))
        }
        Ok(()) | Err(_) => Ok(None),
    }
}

/// The same in a piece of the reserve, as long as more than `leave` of them are there.
pub(super) fn segment_in_reserve(
    (disk, dir): (&dyn Disk, &Path),
    room: &DiskReserve,
    header: SegmentHeader,
    batch: &[u8],
    leave: usize,
) -> Result<(Arc<Segment>, u64), StorageError> {
    let path = Segment::path(dir, header.index);
    let limit = room.take(leave, &path)?;
    let segment = Segment::create_in(disk, dir, header, batch)?;
    Ok((Arc::new(segment), limit))
}

impl Appender {
    /// Appends behind what `segment` holds, up to `limit`.
    pub(super) fn new(
        (segment, limit): (Arc<Segment>, u64),
        next_batch: u64,
        next_index: u64,
        segment_bytes: u64,
    ) -> Self {
        let offset = segment.end();
        Self {
            segment: Some(segment),
            offset,
            laid_out: offset,
            next_batch,
            next_index,
            segment_bytes,
            limit,
            roll: false,
            since_checkpoint: 0,
        }
    }

    /// Reports whether a batch of this size would exceed the piece that the segment is.
    fn is_beyond(&self, batch_bytes: usize) -> bool {
        batch_start(self.offset) + (batch_bytes + TRAILER.len()) as u64 > self.limit
    }

    /// Room of the reserve is used to its end.
    fn is_long_enough(&self) -> bool {
        self.limit == NO_LIMIT && self.offset >= self.segment_bytes
    }

    /// Writes one batch. `bytes` begins with room for the header and ends with the last record.
    ///
    /// Errors: [`StorageError::is_no_space`] when the batch is not there as a whole; the next one begins a new segment with
    /// the same number, and its header takes away from this one what was written.
    pub(super) fn write(
        &mut self,
        files: &Files,
        bytes: &mut Vec<u8>,
        records: u32,
        first_revision: u64,
    ) -> Result<Written, StorageError> {
        if self.roll || self.is_long_enough() || self.is_beyond(bytes.len()) {
            self.begin_segment(files, first_revision)?;
        }
        if self.is_beyond(bytes.len()) {
            return Err(StorageError::NoSpace);
        }
        let written = self.append(files, bytes, records, first_revision);
        // What a failed write has left in the file is unknown: nothing is appended behind it.
        self.roll |= written.is_err();
        written
    }

    fn append(
        &mut self,
        files: &Files,
        bytes: &mut Vec<u8>,
        records: u32,
        first_revision: u64,
    ) -> Result<Written, StorageError> {
        let segment = self
            .segment
            .clone()
            .ok_or_else(|| StorageError::Unavailable("storage is closed".to_owned()))?;
        let header_bytes = super::format::BATCH_HEADER_BYTES;
        let body_bytes = u32::try_from(bytes.len() - header_bytes).expect("what is queued is bounded");
        let header = BatchHeader {
            store: files.store,
            batch: self.next_batch,
            first_revision,
            records,
            body_bytes,
        };
        header.encode(&mut bytes[..header_bytes]);
        bytes.extend_from_slice(&TRAILER);
        let offset = batch_start(self.offset);
        let failed = StorageError::io(format!("writing {}", segment.path.display()));
        segment.file.write_at(offset, bytes).map_err(failed)?;
        let end = offset + bytes.len() as u64;
        // On a disk in memory there is no sync to save, and blanks would take the memory itself.
        if !files.disk.sync_is_free() {
            self.lay_out(&segment, end);
        }
        Ok(Written {
            batch: self.next_batch,
            segment,
            first_revision,
            offset,
            end,
        })
    }

    /// Writes blanks behind what was written, now and then: as long as a file keeps its length a sync is one write, not
    /// one of the data and one of where it is.
    fn lay_out(&mut self, segment: &Segment, end: u64) {
        if end <= self.laid_out {
            return;
        }
        let until = (end + LAID_OUT_BYTES).min(self.segment_bytes).min(self.limit);
        let blank = usize::try_from(until.saturating_sub(end)).unwrap_or(0);
        // Without room for it the batches themselves are tried as long as they can be.
        self.laid_out = match segment.file.write_at(end, &vec![0; blank]) {
            Ok(()) => until,
            Err(_) => end,
        };
    }

    /// Makes it durable, and says so in `ACTIVE`.
    pub(super) fn sync(&mut self, files: &Files, written: &Written) -> Result<(), StorageError> {
        let failed = StorageError::io(format!("syncing {}", written.segment.path.display()));
        written.segment.file.sync_data().map_err(failed)?;
        written
            .segment
            .extend(written.first_revision, written.offset, written.end);
        self.since_checkpoint += written.end - self.offset;
        self.offset = written.end;
        self.next_batch += 1;
        // After the sync: `ACTIVE` names what is durable, never more.
        files.active.note(ActiveHeader {
            store: files.store,
            index: written.segment.header.index,
            batch: written.batch,
        })
    }

    /// Goes on in a new segment, whose first batch will be the next one.
    pub(super) fn begin_segment(&mut self, files: &Files, first_revision: u64) -> Result<(), StorageError> {
        let header = SegmentHeader {
            store: files.store,
            index: self.next_index,
            first_batch: self.next_batch,
            first_revision,
            is_guarded: files.active.is_kept(),
        };
        let place = (&*files.disk, files.dir.as_path());
        let (segment, limit) = match new_segment(place, &files.room, header, &[])? {
            Some(begun) => begun,
            None => segment_in_reserve(place, &files.room, header, &[], FOR_RECOVERY)?,
        };
        files.active.name(ActiveHeader {
            store: files.store,
            index: header.index,
            // Named before its first batch: a start that does not find the segment knows that it was lost.
            batch: self.next_batch - 1,
        })?;
        files.add_segment(Arc::clone(&segment));
        self.offset = segment.end();
        self.laid_out = self.offset;
        self.segment = Some(segment);
        self.limit = limit;
        self.next_index += 1;
        self.roll = false;
        Ok(())
    }

    pub(super) fn close(&mut self) {
        self.segment = None;
    }
}
