//! Headers of files and of batches.

use super::SECTOR;
use crate::StorageError;
use crate::backends::log::wire::Reader;
use std::ops::RangeInclusive;
use std::path::Path;

/// The version that files are written in, and those that are read.
pub(crate) const FORMAT_VERSION: u32 = 1;
const KNOWN_VERSIONS: RangeInclusive<u32> = 1..=FORMAT_VERSION;
pub(crate) const BATCH_HEADER_BYTES: usize = 48;
pub(crate) const TRAILER: [u8; 4] = [0xa5, 0x5a, 0xc3, 0x3c];
const SEGMENT_MAGIC: &[u8; 8] = b"KNARRSEG";
const ACTIVE_MAGIC: &[u8; 8] = b"KNARRACT";
const CHECKPOINT_MAGIC: &[u8; 8] = b"KNARRCKP";
const BACKUP_MAGIC: &[u8; 8] = b"KNARRBAK";
const BATCH_MAGIC: u32 = 0x7461_426b;
/// The largest revision, and the largest number of a batch, of a file or of entries: etcd's. The next one fits in any case.
pub(crate) const NUMBER_MAX: u64 = i64::MAX.cast_unsigned();

/// Contents of a file's first sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileHeader {
    Segment(SegmentHeader),
    Checkpoint(CheckpointHeader),
    Active(ActiveHeader),
    Backup(BackupHeader),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Drawn once, when the directory was first used; files of another store are refused.
    pub(crate) store: u64,
    pub(crate) index: u64,
    /// The number of the first batch. Batches of earlier segments with this number or a later one do not count.
    pub(crate) first_batch: u64,
    /// No record of this segment has an earlier revision.
    pub(crate) first_revision: u64,
    /// `ACTIVE` was durable before this segment was begun: where it is not there, it was lost.
    pub(crate) is_guarded: bool,
}

/// The end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ActiveHeader {
    pub(crate) store: u64,
    /// The newest segment; 0 where none was begun.
    pub(crate) index: u64,
    /// A batch that is durable. All up to it are; 0 where it is unknown.
    pub(crate) batch: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckpointHeader {
    pub(crate) store: u64,
    pub(crate) revision: u64,
    pub(crate) compacted: u64,
    /// The last batch that the checkpoint holds.
    pub(crate) batch: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackupHeader {
    /// The store that the objects were in.
    pub(crate) store: u64,
    /// The revision that all of them are at.
    pub(crate) revision: u64,
    pub(crate) entries: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) store: u64,
    pub(crate) batch: u64,
    pub(crate) first_revision: u64,
    pub(crate) records: u32,
    pub(crate) body_bytes: u32,
}

/// The reason for which the first sector, or a batch header, is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// Never written.
    Blank,
    /// Written, and not what was written.
    Damaged,
    /// Of a version that this program does not know.
    Unknown(u32),
}

impl FileHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (magic, numbers) = match self {
            Self::Segment(h) => {
                let guarded = u64::from(h.is_guarded);
                let numbers = [h.store, h.index, h.first_batch, h.first_revision, guarded];
                (SEGMENT_MAGIC, numbers)
            }
            Self::Checkpoint(h) => (CHECKPOINT_MAGIC, [h.store, h.revision, h.compacted, h.batch, 0]),
            Self::Active(h) => (ACTIVE_MAGIC, [h.store, h.index, h.batch, 0, 0]),
            Self::Backup(h) => (BACKUP_MAGIC, [h.store, h.revision, h.entries, 0, 0]),
        };
        let mut out = Vec::with_capacity(SECTOR);
        out.extend_from_slice(magic);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        for number in numbers {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.resize(SECTOR - 4, 0);
        let checksum = crc32c::crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    pub(crate) fn decode(sector: &[u8]) -> Result<Self, HeaderError> {
        if sector.iter().all(|byte| *byte == 0) {
            return Err(HeaderError::Blank);
        }
        let damaged = |_| HeaderError::Damaged;
        let (body, checksum) = sector.split_last_chunk::<4>().ok_or(HeaderError::Damaged)?;
        if sector.len() != SECTOR || crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
            return Err(HeaderError::Damaged);
        }
        let mut reader = Reader::new(body);
        let magic = reader.take(8).map_err(damaged)?;
        let version = reader.u32().map_err(damaged)?;
        if !KNOWN_VERSIONS.contains(&version) {
            return Err(HeaderError::Unknown(version));
        }
        let mut next = || reader.u64().map_err(damaged);
        let [a, b, c, d, e] = [next()?, next()?, next()?, next()?, next()?];
        if [b, c, d, e].iter().any(|number| *number > NUMBER_MAX) {
            return Err(HeaderError::Damaged);
        }
        if magic == SEGMENT_MAGIC {
            Ok(Self::Segment(SegmentHeader {
                store: a,
                index: b,
                first_batch: c,
                first_revision: d,
                is_guarded: e != 0,
            }))
        } else if magic == CHECKPOINT_MAGIC {
            Ok(Self::Checkpoint(CheckpointHeader {
                store: a,
                revision: b,
                compacted: c,
                batch: d,
            }))
        } else if magic == ACTIVE_MAGIC {
            Ok(Self::Active(ActiveHeader {
                store: a,
                index: b,
                batch: c,
            }))
        } else if magic == BACKUP_MAGIC {
            Ok(Self::Backup(BackupHeader {
                store: a,
                revision: b,
                entries: c,
            }))
        } else {
            Err(HeaderError::Damaged)
        }
    }
}

impl BatchHeader {
    pub(crate) fn encode(&self, out: &mut [u8]) {
        let mut bytes = Vec::with_capacity(BATCH_HEADER_BYTES);
        bytes.extend_from_slice(&BATCH_MAGIC.to_le_bytes());
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        for number in [self.store, self.batch, self.first_revision] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.records.to_le_bytes());
        bytes.extend_from_slice(&self.body_bytes.to_le_bytes());
        bytes.resize(BATCH_HEADER_BYTES - 4, 0);
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        out.copy_from_slice(&bytes);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(HeaderError::Blank);
        }
        let damaged = |_| HeaderError::Damaged;
        let (body, checksum) = bytes.split_last_chunk::<4>().ok_or(HeaderError::Damaged)?;
        if bytes.len() != BATCH_HEADER_BYTES || crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
            return Err(HeaderError::Damaged);
        }
        let mut reader = Reader::new(body);
        if reader.u32() != Ok(BATCH_MAGIC) {
            return Err(HeaderError::Damaged);
        }
        let version = reader.u32().map_err(damaged)?;
        if !KNOWN_VERSIONS.contains(&version) {
            return Err(HeaderError::Unknown(version));
        }
        let own = Self {
            store: reader.u64().map_err(damaged)?,
            batch: reader.u64().map_err(damaged)?,
            first_revision: reader.u64().map_err(damaged)?,
            records: reader.u32().map_err(damaged)?,
            body_bytes: reader.u32().map_err(damaged)?,
        };
        match own.batch.max(own.first_revision) {
            0..=NUMBER_MAX => Ok(own),
            _ => Err(HeaderError::Damaged),
        }
    }

    /// A quick look, before the checksum is worth computing.
    pub(crate) fn is_possible(bytes: &[u8]) -> bool {
        bytes.starts_with(&BATCH_MAGIC.to_le_bytes())
    }

    /// The bytes a batch takes behind its header.
    pub(crate) fn following(&self) -> usize {
        self.body_bytes as usize + TRAILER.len()
    }
}

/// The error of a file whose version is not known: either it was written later than this program, or long before.
pub(crate) fn unknown_version(path: &Path, found: u32) -> StorageError {
    let what = path.display().to_string();
    if found < *KNOWN_VERSIONS.start() {
        return StorageError::OlderFormat {
            what,
            found,
            oldest: *KNOWN_VERSIONS.start(),
        };
    }
    StorageError::NewerFormat {
        what,
        found,
        known: FORMAT_VERSION,
    }
}

/// The next offset at which a batch may begin: a header never crosses a sector, so that a power loss keeps all of it
/// or nothing.
pub(crate) fn batch_start(offset: u64) -> u64 {
    let sector = SECTOR as u64;
    let within = offset % sector;
    if within + BATCH_HEADER_BYTES as u64 > sector {
        offset - within + sector
    } else {
        offset
    }
}
