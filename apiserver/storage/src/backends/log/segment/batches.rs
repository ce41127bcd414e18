//! A batch as it is read back, and what stands in its place where it is not whole.

use super::Segment;
use crate::StorageError;
use crate::backends::log::format::{
    self, BATCH_HEADER_BYTES, BatchHeader, FORMAT_VERSION, HeaderError, SECTOR, Stored, TRAILER,
};
use crate::backends::log::wire::{Malformed, Reader};
use machinery_meta::Revision;

/// A batch as it was read.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) header: BatchHeader,
    pub(crate) offset: u64,
    /// Offset at which the next batch may begin.
    pub(crate) end: u64,
    /// Every record, and whether it commits its group.
    pub(crate) records: Vec<(Stored, bool)>,
    /// Header, records and trailer.
    pub(crate) bytes: Vec<u8>,
}

/// The content at an offset.
#[derive(Debug)]
pub(crate) enum Next {
    Batch(Batch),
    /// Nothing was written here.
    End,
    /// The power went while this was written; no caller was answered that it is stored.
    Torn {
        bytes: u64,
    },
    /// This was written and durable, and is not what was written.
    Damaged {
        offset: u64,
        found: String,
    },
    Unknown {
        version: u32,
    },
}

impl Segment {
    /// Returns the content at `offset`, in a file of `length` bytes.
    pub(crate) fn next(&self, offset: u64, length: u64) -> Result<Next, StorageError> {
        let start = format::batch_start(offset);
        if start > offset && !is_blank(&self.read(offset, start - offset)?) {
            return Ok(Next::Damaged {
                offset,
                found: "the space between two batches is not empty".to_owned(),
            });
        }
        if start >= length {
            return Ok(Next::End);
        }
        let head = self.read(start, BATCH_HEADER_BYTES as u64)?;
        match BatchHeader::decode(&head) {
            Ok(header) => self.body(header, (start, length), head),
            Err(HeaderError::Unknown(version)) => Ok(Next::Unknown { version }),
            Err(HeaderError::Blank) => self.after_blank(start, length),
            Err(HeaderError::Damaged) if head.len() < BATCH_HEADER_BYTES => Ok(Next::Torn {
                bytes: length - start,
            }),
            // A header lies in one sector: it is there as it was written, or not at all.
            Err(HeaderError::Damaged) => Ok(Next::Damaged {
                offset: start,
                found: "the header of a batch is damaged".to_owned(),
            }),
        }
    }

    /// A header was never written, or its sector was lost. Either way nothing of the batch counts.
    fn after_blank(&self, start: u64, length: u64) -> Result<Next, StorageError> {
        Ok(if self.any_piece(start, length, |piece| !is_blank(piece))? {
            Next::Torn {
                bytes: length - start,
            }
        } else {
            Next::End
        })
    }

    /// Reports whether a piece of the file is such a one. Each begins with the last bytes of the one before it, so that a batch's
    /// header is whole in one of them. A file may be of any size, where the disk has lost its end.
    fn any_piece(
        &self,
        start: u64,
        length: u64,
        is_such: impl Fn(&[u8]) -> bool,
    ) -> Result<bool, StorageError> {
        const PIECE_BYTES: u64 = 1 << 20;
        let mut at = start;
        while at < length {
            let piece = self.read(at, PIECE_BYTES.min(length - at))?;
            if is_such(&piece) {
                return Ok(true);
            }
            if piece.len() as u64 != PIECE_BYTES {
                break;
            }
            at += PIECE_BYTES - (BATCH_HEADER_BYTES as u64 - 1);
        }
        Ok(false)
    }

    fn body(
        &self,
        header: BatchHeader,
        (start, length): (u64, u64),
        mut bytes: Vec<u8>,
    ) -> Result<Next, StorageError> {
        let body_start = start + BATCH_HEADER_BYTES as u64;
        let following = header.following() as u64;
        let body = self.read(body_start, following.min(length.saturating_sub(body_start)))?;
        if header.store != self.header.store {
            return Ok(Next::Damaged {
                offset: start,
                found: "a batch belongs to another store".to_owned(),
            });
        }
        let broken = match parse(&header, &body) {
            Ok(records) => {
                bytes.extend_from_slice(&body);
                return Ok(Next::Batch(Batch {
                    header,
                    offset: start,
                    end: body_start + following,
                    records,
                    bytes,
                }));
            }
            Err(Malformed(format::NEWER_RECORD)) => {
                return Ok(Next::Unknown {
                    version: FORMAT_VERSION + 1,
                });
            }
            Err(broken) => broken,
        };
        if body.len() as u64 != following || has_blank_sector(body_start, &body) {
            return Ok(Next::Torn {
                bytes: body.len() as u64 + BATCH_HEADER_BYTES as u64,
            });
        }
        Ok(Next::Damaged {
            offset: start,
            found: broken.0.to_owned(),
        })
    }

    /// Returns where the next batch may begin, when the one at `offset` ends before a revision by its head.
    pub(super) fn behind_batch_before(
        &self,
        offset: u64,
        revision: Revision,
    ) -> Result<Option<u64>, StorageError> {
        let start = format::batch_start(offset);
        let head = self.read(start, BATCH_HEADER_BYTES as u64)?;
        let Ok(header) = BatchHeader::decode(&head) else {
            return Ok(None);
        };
        // At most: what compacts has no revision.
        let end = header.first_revision.saturating_add(u64::from(header.records));
        let behind = start + (BATCH_HEADER_BYTES + header.following()) as u64;
        Ok((header.store == self.header.store && end <= revision.0).then_some(behind))
    }

    /// Reports whether a batch later than `batch` begins somewhere after `offset`: then the missing bytes before it
    /// had been durable.
    pub(crate) fn has_later_batch(&self, offset: u64, batch: u64) -> Result<bool, StorageError> {
        let length = self.file.len().map_err(self.failed())?;
        let is_later = |window: &[u8]| {
            BatchHeader::is_possible(window)
                && BatchHeader::decode(window)
                    .is_ok_and(|header| header.store == self.header.store && header.batch > batch)
        };
        self.any_piece(offset, length, |piece| {
            piece.windows(BATCH_HEADER_BYTES).any(is_later)
        })
    }
}

/// Every record of a batch, or why it is not one.
fn parse(header: &BatchHeader, body: &[u8]) -> Result<Vec<(Stored, bool)>, Malformed> {
    let (records, trailer) = body
        .split_last_chunk::<4>()
        .ok_or(Malformed("a batch ends too early"))?;
    if body.len() != header.following() || *trailer != TRAILER {
        return Err(Malformed("a batch has no end"));
    }
    let mut reader = Reader::new(records);
    let mut out = Vec::with_capacity(header.records.min(4096) as usize);
    let mut next = header.first_revision;
    while !reader.is_empty() {
        let (stored, commits) = format::take_stored(&mut reader)?;
        if let Some(revision) = stored.revision() {
            if revision.0 != next {
                return Err(Malformed("revisions are not consecutive"));
            }
            next += 1;
        }
        out.push((stored, commits));
    }
    let committed = out.last().is_some_and(|(_, commits)| *commits);
    if out.len() != header.records as usize || !committed {
        return Err(Malformed("a batch has not all its records"));
    }
    Ok(out)
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Reports whether some sector of the bytes written at `start` is blank: a power loss leaves that, a flipped bit does
/// not.
///
/// Written bytes are text and never a whole sector of zeros, and the trailer ends them with bytes that are not zero.
fn has_blank_sector(start: u64, body: &[u8]) -> bool {
    let within = usize::try_from(start % SECTOR as u64).expect("less than a sector");
    // When the body begins inside the header's sector, that part came with the header.
    let with_header = if within == 0 {
        0
    } else {
        (SECTOR - within).min(body.len())
    };
    body[with_header..].chunks(SECTOR).any(is_blank)
}
