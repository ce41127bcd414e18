//! One file of the log; [`batches`] says how a batch is read back.

mod batches;

pub(super) use batches::{Batch, Next};

use super::format::{self, FileHeader, SECTOR, SegmentHeader, Stored};
use super::verified::{Verified, past_cache};
use crate::StorageError;
use machinery_meta::Revision;
use machinery_runtime::{Disk, DiskFile, OpenMode};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};

/// An open segment.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) header: SegmentHeader,
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn DiskFile>,
    extent: Mutex<Extent>,
}

/// The readable part of a segment, and the offset at which reading begins.
#[derive(Debug, Default)]
struct Extent {
    /// Everything before this offset is durable and whole.
    end: u64,
    /// Now and then the first revision of a batch and where the batch begins.
    index: Vec<(u64, u64)>,
    /// Recovery had no need to read this segment: it holds the batches before this one.
    unread_until: Option<u64>,
}

/// One entry of the index (16 bytes) for so many bytes: a look-up of one revision reads the heads of so many at most.
const INDEX_EVERY_BYTES: u64 = 4 << 10;

/// The end of a scan of a whole segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScanEnd {
    pub(super) next_batch: u64,
    /// Bytes of a batch that the power loss left incomplete.
    pub(super) torn_bytes: u64,
}

impl Segment {
    /// The name of a segment's file.
    pub(super) fn path(dir: &Path, index: u64) -> PathBuf {
        dir.join(format!("log-{index:016x}.seg"))
    }

    /// The index in a segment's file name.
    pub(super) fn index_of(name: &str) -> Option<u64> {
        u64::from_str_radix(name.strip_prefix("log-")?.strip_suffix(".seg")?, 16).ok()
    }

    /// Makes a segment that holds `batch` (whole, already durable elsewhere) or nothing, and makes it durable.
    ///
    /// The header is written last: a segment without one was never begun, so a power loss on the way loses nothing.
    pub(super) fn create(
        disk: &dyn Disk,
        dir: &Path,
        header: SegmentHeader,
        batch: &[u8],
    ) -> Result<Self, StorageError> {
        Self::begin(disk, dir, OpenMode::CreateNew, header, batch)
    }

    /// The same in a blank file that has its name.
    pub(super) fn create_in(
        disk: &dyn Disk,
        dir: &Path,
        header: SegmentHeader,
        batch: &[u8],
    ) -> Result<Self, StorageError> {
        Self::begin(disk, dir, OpenMode::ReadWrite, header, batch)
    }

    fn begin(
        disk: &dyn Disk,
        dir: &Path,
        mode: OpenMode,
        header: SegmentHeader,
        batch: &[u8],
    ) -> Result<Self, StorageError> {
        let path = Self::path(dir, header.index);
        let failed = || StorageError::io(format!("creating {}", path.display()));
        let file = disk.open(&path, mode).map_err(failed())?;
        // The header's sector is there before the header, which a full disk therefore never takes in part.
        file.write_at(0, &[0; SECTOR]).map_err(failed())?;
        if !batch.is_empty() {
            file.write_at(SECTOR as u64, batch).map_err(failed())?;
            file.sync_data().map_err(failed())?;
        }
        file.write_at(0, &FileHeader::Segment(header).encode())
            .map_err(failed())?;
        file.sync_data().map_err(failed())?;
        disk.sync_dir(dir).map_err(failed())?;
        let segment = Self::new(header, path, file);
        if !batch.is_empty() {
            segment.extend(
                header.first_revision,
                SECTOR as u64,
                (SECTOR + batch.len()) as u64,
            );
        }
        Ok(segment)
    }

    pub(super) fn new(header: SegmentHeader, path: PathBuf, file: Box<dyn DiskFile>) -> Self {
        let extent = Extent {
            end: SECTOR as u64,
            index: Vec::new(),
            unread_until: None,
        };
        Self {
            header,
            path,
            file,
            extent: Mutex::new(extent),
        }
    }

    /// The segment holds the batches before this one, and is read at the first request.
    pub(super) fn read_later(&self, until: u64) {
        self.extent.lock().unread_until = Some(until);
    }

    /// Reads every batch in order. With `until`, all batches before that one must be there and nothing after counts.
    pub(super) fn scan(
        &self,
        until: Option<u64>,
        mut each: impl FnMut(Batch),
    ) -> Result<ScanEnd, StorageError> {
        let length = self.file.len().map_err(self.failed())?;
        let (mut offset, mut expected) = (SECTOR as u64, self.header.first_batch);
        while until.is_none_or(|until| expected < until) {
            let torn_bytes = match self.next(offset, length)? {
                Next::Batch(batch) if batch.header.batch != expected => {
                    return Err(self.corrupt(batch.offset, "a batch has the wrong number"));
                }
                Next::Batch(batch) => {
                    self.extend(batch.header.first_revision, batch.offset, batch.end);
                    offset = batch.end;
                    expected += 1;
                    each(batch);
                    continue;
                }
                Next::Damaged { offset, found } => return Err(self.corrupt(offset, &found)),
                Next::Unknown { version } => return Err(format::unknown_version(&self.path, version)),
                Next::End => 0,
                Next::Torn { bytes } => bytes,
            };
            if until.is_some() || self.has_later_batch(offset, expected)? {
                return Err(self.corrupt(offset, "a batch is missing"));
            }
            return Ok(ScanEnd {
                next_batch: expected,
                torn_bytes,
            });
        }
        Ok(ScanEnd {
            next_batch: expected,
            torn_bytes: 0,
        })
    }

    fn ensure_read(&self) -> Result<(), StorageError> {
        let until = self.extent.lock().unread_until;
        if until.is_some() {
            self.scan(until, drop)?;
            self.extent.lock().unread_until = None;
        }
        Ok(())
    }

    /// Reads everything that should be there once more.
    pub(super) fn verify(&self) -> Result<(), StorageError> {
        self.verify_some(0, u64::MAX).map(drop)
    }

    /// The same from an offset on, about so many bytes.
    pub(super) fn verify_some(&self, from: u64, at_most: u64) -> Result<Verified, StorageError> {
        let rest = self.end().saturating_sub(from);
        past_cache(&*self.file, (from, rest), || self.verify_from(from, at_most))
    }

    fn verify_from(&self, from: u64, at_most: u64) -> Result<Verified, StorageError> {
        self.ensure_read()?;
        if from == 0 {
            self.verify_header()?;
        }
        let start = from.max(SECTOR as u64);
        let (mut offset, end) = (start, self.end());
        while offset < end && offset - start < at_most {
            offset = match self.next(offset, end)? {
                Next::Batch(batch) => batch.end,
                // Below the durable end there is nothing but batches.
                Next::End | Next::Torn { .. } => return Err(self.corrupt(offset, "a batch is incomplete")),
                Next::Damaged { offset, found } => return Err(self.corrupt(offset, &found)),
                Next::Unknown { version } => return Err(format::unknown_version(&self.path, version)),
            };
        }
        Ok(Verified {
            bytes: offset - start,
            next: (offset < end).then_some(offset),
        })
    }

    fn verify_header(&self) -> Result<(), StorageError> {
        let mut sector = vec![0; SECTOR];
        let read = self.file.read_at(0, &mut sector).map_err(self.failed())?;
        match FileHeader::decode(&sector[..read]) {
            Ok(FileHeader::Segment(header)) if header == self.header => Ok(()),
            _ => Err(self.corrupt(0, "the header of a segment is damaged")),
        }
    }

    /// A batch became durable.
    pub(super) fn extend(&self, first_revision: u64, offset: u64, end: u64) {
        let mut extent = self.extent.lock();
        if offset < extent.end {
            return; // Two readers scanned at once.
        }
        let due = extent
            .index
            .last()
            .is_none_or(|(_, last)| offset >= last + INDEX_EVERY_BYTES);
        if due {
            extent.index.push((first_revision, offset));
        }
        extent.end = end;
    }

    pub(super) fn end(&self) -> u64 {
        self.extent.lock().end
    }

    /// Bytes of the room behind the last batch; none while the segment is unread.
    pub(super) fn blank_bytes(&self) -> Result<u64, StorageError> {
        let end = {
            let extent = self.extent.lock();
            if extent.unread_until.is_some() {
                return Ok(0);
            }
            extent.end
        };
        let failed = StorageError::io(format!("looking at {}", self.path.display()));
        Ok(self.file.len().map_err(failed)?.saturating_sub(end))
    }

    /// Gives the blank room behind the last batch back. For segments that nothing is appended to any more.
    pub(super) fn trim(&self) -> Result<(), StorageError> {
        if self.blank_bytes()? == 0 {
            return Ok(());
        }
        let failed = || StorageError::io(format!("cutting {}", self.path.display()));
        self.file.truncate(self.end()).map_err(failed())?;
        self.file.sync_data().map_err(failed())
    }

    /// Offset from which a read meets the revision.
    fn start_for(&self, revision: Revision) -> u64 {
        let extent = self.extent.lock();
        let after = extent.index.partition_point(|(first, _)| *first <= revision.0);
        after
            .checked_sub(1)
            .map_or(SECTOR as u64, |at| extent.index[at].1)
    }

    /// Calls `each` for every record from the one of revision `from` on, until it says `false` or the segment ends.
    pub(super) fn read_from(
        &self,
        from: Revision,
        mut each: impl FnMut(Stored) -> bool,
    ) -> Result<(), StorageError> {
        self.ensure_read()?;
        let (mut offset, end) = (self.start_for(from), self.end());
        while offset < end {
            match self.next(offset, end)? {
                Next::Batch(batch) => {
                    for (stored, _) in batch.records {
                        if stored.revision().is_some_and(|revision| revision >= from) && !each(stored) {
                            return Ok(());
                        }
                    }
                    offset = batch.end;
                }
                Next::End => return Ok(()),
                // Below the durable end nothing can be torn.
                Next::Torn { .. } => return Err(self.corrupt(offset, "a batch is incomplete")),
                Next::Damaged { offset, found } => return Err(self.corrupt(offset, &found)),
                Next::Unknown { version } => return Err(format::unknown_version(&self.path, version)),
            }
        }
        Ok(())
    }

    /// Calls `each` for the changes of these revisions, which are in order. Of batches that hold none of them the head
    /// alone is read, of others each once.
    pub(super) fn read_at(
        &self,
        revisions: &[Revision],
        mut each: impl FnMut(Stored),
    ) -> Result<(), StorageError> {
        self.ensure_read()?;
        let (mut offset, end) = (SECTOR as u64, self.end());
        let mut rest = revisions;
        while let Some(first) = rest.first() {
            offset = offset.max(self.start_for(*first));
            if offset >= end {
                return Ok(());
            }
            if let Some(behind) = self.behind_batch_before(offset, *first)? {
                offset = behind;
                continue;
            }
            let batch = match self.next(offset, end)? {
                Next::Batch(batch) => batch,
                Next::End => return Ok(()),
                // Below the durable end nothing can be torn.
                Next::Torn { .. } => return Err(self.corrupt(offset, "a batch is incomplete")),
                Next::Damaged { offset, found } => return Err(self.corrupt(offset, &found)),
                Next::Unknown { version } => return Err(format::unknown_version(&self.path, version)),
            };
            offset = batch.end;
            for (stored, _) in batch.records {
                let Some(revision) = stored.revision() else {
                    continue;
                };
                // A revision that is not there is passed over.
                rest = &rest[rest.partition_point(|own| *own < revision)..];
                if rest.first() == Some(&revision) {
                    each(stored);
                }
            }
        }
        Ok(())
    }

    /// Up to `count` bytes; fewer at the end of the file.
    fn read(&self, offset: u64, count: u64) -> Result<Vec<u8>, StorageError> {
        let mut buffer = vec![0; usize::try_from(count).expect("a segment fits in memory")];
        let read = self.file.read_at(offset, &mut buffer).map_err(self.failed())?;
        buffer.truncate(read);
        Ok(buffer)
    }

    fn failed(&self) -> impl FnOnce(std::io::Error) -> StorageError {
        StorageError::io(format!("reading {}", self.path.display()))
    }

    pub(super) fn corrupt(&self, offset: u64, found: &str) -> StorageError {
        StorageError::Corrupt {
            file: self.path.display().to_string(),
            offset,
            found: found.to_owned(),
        }
    }
}
