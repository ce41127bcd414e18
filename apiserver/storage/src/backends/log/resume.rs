//! A start that goes on in the newest segment.
//!
//! On a full disk a new segment would take a piece of the reserve at each start, and what is left of the former one is
//! another's once it is given back.

use super::disk_reserve;
use super::format::{FileHeader, SECTOR};
use super::segment::{Batch, Segment};
use crate::StorageError;

/// Makes everything in the newest segment durable, as recovery has made its name, and blanks what is behind it; where it
/// must end. `last` is the last batch of the log.
///
/// After a failed sync or a kill the header and the last batch may be readable without being on the disk: both are written
/// again, byte for byte, so a power loss meanwhile finds what was there or what should be. Behind them lies what a torn
/// or refused batch has left; it is gone before another batch begins there.
pub(super) fn resume(segment: &Segment, last: Option<&Batch>) -> Result<u64, StorageError> {
    let failed = || StorageError::io(format!("going on in {}", segment.path.display()));
    let (file, end) = (&*segment.file, segment.end());
    let length = file.len().map_err(failed())?;
    file.write_at(0, &FileHeader::Segment(segment.header).encode())
        .map_err(failed())?;
    if let Some(last) = last.filter(|_| end > SECTOR as u64) {
        file.write_at(last.offset, &last.bytes).map_err(failed())?;
    }
    let limit = disk_reserve::blank(file, end, length).map_err(failed())?;
    if limit < length {
        // A hole that the disk has no room for.
        file.truncate(limit).map_err(failed())?;
    }
    file.sync_data().map_err(failed())?;
    Ok(limit)
}
