//! Format of the files, byte by byte; `docs/decisions/0002-segment-log.md` has the reasons.
//!
//! A segment begins with one sector of header. Then come batches, each written by one flush: a header that never
//! crosses a sector, records with a length and a checksum each, and four bytes of trailer that are not zero. Behind
//! the last one there may be blank room for more. A checkpoint begins with the same kind of sector, holds blocks of
//! records in key order, and ends with an index. [`headers`] are those of files and batches, [`records`] all between.

mod headers;
mod records;
#[cfg(test)]
mod tests;

pub(super) use headers::{
    ActiveHeader, BATCH_HEADER_BYTES, BackupHeader, BatchHeader, CheckpointHeader, FORMAT_VERSION,
    FileHeader, HeaderError, NUMBER_MAX, SegmentHeader, TRAILER, batch_start, unknown_version,
};
pub(super) use records::{
    MAX_STORED_RECORD_BYTES, NEWER_RECORD, RECORD_PREFIX_BYTES, Stored, put_contents, put_stored,
    take_contents, take_stored,
};

/// Bytes that a disk writes as a whole or not at all.
pub(super) const SECTOR: usize = 512;
