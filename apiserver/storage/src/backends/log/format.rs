//! Format of the files, byte by byte; `docs/decisions/0002-segment-log.md` has the reasons.
//!
//! A segment begins with one sector of header. Then come batches, each written by one flush: a header that never
//! crosses a sector, records with a length and a checksum each, and four bytes of trailer that are not zero. Behind
//! the last one there may be blank room for more. A checkpoint begins with the same kind of sector, holds blocks of
//! records in key order, and ends with an index.

use super::header;
use super::seal;
use super::stuffing;
use super::wire::{Malformed, Put, Reader};
use crate::encryption::Seal;
use crate::{Entry, Key, Record, StorageError};
use bytes::Bytes;
use machinery_meta::Revision;
use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

pub(super) const SECTOR: usize = 512;
/// The version that files are written in, and those that are read.
pub(super) const FORMAT_VERSION: u32 = 1;
const KNOWN_VERSIONS: RangeInclusive<u32> = 1..=FORMAT_VERSION;
const RECORD_VERSION: u8 = 1;
/// The same with everything behind the version stuffed.
const STUFFED_VERSION: u8 = 2;
pub(super) const BATCH_HEADER_BYTES: usize = 48;
pub(super) const TRAILER: [u8; 4] = [0xa5, 0x5a, 0xc3, 0x3c];
const SEGMENT_MAGIC: &[u8; 8] = b"KNARRSEG";
const ACTIVE_MAGIC: &[u8; 8] = b"KNARRACT";
const CHECKPOINT_MAGIC: &[u8; 8] = b"KNARRCKP";
const BACKUP_MAGIC: &[u8; 8] = b"KNARRBAK";
const BATCH_MAGIC: u32 = 0x7461_426b;
/// Length and checksum before each record.
pub(super) const RECORD_PREFIX_BYTES: usize = 8;
/// A record larger than this is damage, not data: the limit of a record with its key and header, doubled, and doubled
/// again for what stuffing adds. (A header repeats strings of its record, so both together stay below twice the limit.)
pub(super) const MAX_STORED_RECORD_BYTES: usize = 4 * crate::write::MAX_RECORD_BYTES;

/// Contents of a file's first sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileHeader {
    Segment(SegmentHeader),
    Checkpoint(CheckpointHeader),
    Active(ActiveHeader),
    Backup(BackupHeader),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// Drawn once, when the directory was first used; files of another store are refused.
    pub(super) store: u64,
    pub(super) index: u64,
    /// The number of the first batch. Batches of earlier segments with this number or a later one do not count.
    pub(super) first_batch: u64,
    /// No record of this segment has an earlier revision.
    pub(super) first_revision: u64,
    /// `ACTIVE` was durable before this segment was begun: where it is not there, it was lost.
    pub(super) is_guarded: bool,
}

/// The end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ActiveHeader {
    pub(super) store: u64,
    /// The newest segment; 0 where none was begun.
    pub(super) index: u64,
    /// A batch that is durable. All up to it are; 0 where it is unknown.
    pub(super) batch: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CheckpointHeader {
    pub(super) store: u64,
    pub(super) revision: u64,
    pub(super) compacted: u64,
    /// The last batch that the checkpoint holds.
    pub(super) batch: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BackupHeader {
    /// The store that the objects were in.
    pub(super) store: u64,
    /// The revision that all of them are at.
    pub(super) revision: u64,
    pub(super) entries: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchHeader {
    pub(super) store: u64,
    pub(super) batch: u64,
    pub(super) first_revision: u64,
    pub(super) records: u32,
    pub(super) body_bytes: u32,
}

/// The reason for which the first sector, or a batch header, is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderError {
    /// Never written.
    Blank,
    /// Written, and not what was written.
    Damaged,
    /// Of a version that this program does not know.
    Unknown(u32),
}

impl FileHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
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

    pub(super) fn decode(sector: &[u8]) -> Result<Self, HeaderError> {
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
    pub(super) fn encode(&self, out: &mut [u8]) {
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

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
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
        Ok(Self {
            store: reader.u64().map_err(damaged)?,
            batch: reader.u64().map_err(damaged)?,
            first_revision: reader.u64().map_err(damaged)?,
            records: reader.u32().map_err(damaged)?,
            body_bytes: reader.u32().map_err(damaged)?,
        })
    }

    /// A quick look, before the checksum is worth computing.
    pub(super) fn is_possible(bytes: &[u8]) -> bool {
        bytes.starts_with(&BATCH_MAGIC.to_le_bytes())
    }

    /// The bytes a batch takes behind its header.
    pub(super) fn following(&self) -> usize {
        self.body_bytes as usize + TRAILER.len()
    }
}

/// The error of a file whose version is not known: either it was written later than this program, or long before.
pub(super) fn unknown_version(path: &Path, found: u32) -> StorageError {
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
pub(super) fn batch_start(offset: u64) -> u64 {
    let sector = SECTOR as u64;
    let within = offset % sector;
    if within + BATCH_HEADER_BYTES as u64 > sector {
        offset - within + sector
    } else {
        offset
    }
}

/// One record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stored {
    /// An object came to be what it is.
    Put { entry: Arc<Entry>, previous: Revision },
    /// An object went.
    Delete {
        key: Key,
        revision: Revision,
        previous: Revision,
    },
    /// Everything before this revision may go.
    Compact { floor: Revision },
}

impl Stored {
    pub(super) fn revision(&self) -> Option<Revision> {
        match self {
            Self::Put { entry, .. } => Some(entry.revision),
            Self::Delete { revision, .. } => Some(*revision),
            Self::Compact { .. } => None,
        }
    }

    pub(super) fn key(&self) -> Option<&Key> {
        match self {
            Self::Put { entry, .. } => Some(&entry.key),
            Self::Delete { key, .. } => Some(key),
            Self::Compact { .. } => None,
        }
    }
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
const COMPACT: u8 = 3;
/// A put whose record is encrypted.
const SEALED: u8 = 4;
/// The record is the last of its group: the commit mark.
const COMMITS: u8 = 1;
const EXPIRES: u8 = 2;

/// Appends a record with its length and checksum. `commits` marks the last of a group.
pub(super) fn put_stored(out: &mut Vec<u8>, stored: &Stored, commits: bool) {
    let start = out.len();
    out.extend_from_slice(&[0; RECORD_PREFIX_BYTES]);
    let mark = if commits { COMMITS } else { 0 };
    match stored {
        Stored::Put { entry, previous } => put_entry(out, entry, *previous, mark),
        Stored::Delete {
            key,
            revision,
            previous,
        } => {
            out.extend_from_slice(&[RECORD_VERSION, DELETE, mark]);
            out.put_varint(revision.0);
            out.put_varint(previous.0);
            out.put_bytes(key.as_str().as_bytes());
        }
        Stored::Compact { floor } => {
            out.extend_from_slice(&[RECORD_VERSION, COMPACT, mark]);
            out.put_varint(floor.0);
        }
    }
    let payload = start + RECORD_PREFIX_BYTES;
    if stuffing::is_needed(&out[payload..]) {
        out[payload] = STUFFED_VERSION;
        stuffing::stuff(out, payload + 1);
    }
    debug_assert!(
        out.len() - payload <= MAX_STORED_RECORD_BYTES,
        "checked when it is taken up"
    );
    let length = u32::try_from(out.len() - payload).expect("a record's size is checked when it is taken up");
    let checksum = crc32c::crc32c(&out[payload..]);
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4..payload].copy_from_slice(&checksum.to_le_bytes());
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry, previous: Revision, mark: u8) {
    let expires = if entry.expires.is_some() { EXPIRES } else { 0 };
    let sealed = entry.record.is_sealed();
    let kind = if sealed { SEALED } else { PUT };
    out.extend_from_slice(&[RECORD_VERSION, kind, mark | expires]);
    out.put_varint(entry.revision.0);
    out.put_varint(previous.0);
    out.put_varint(entry.created.0);
    if let Some(seconds) = entry.expires {
        out.put_varint(seconds);
    }
    if sealed {
        out.put_bytes(entry.key.as_str().as_bytes());
        out.put_bytes(&entry.record.parts[0]);
        return;
    }
    out.extend_from_slice(&entry.record.fingerprint.to_le_bytes());
    out.put_bytes(entry.key.as_str().as_bytes());
    put_header_and_parts(out, &entry.record);
}

/// A record by itself, as it is encrypted.
pub(super) fn put_contents(out: &mut Vec<u8>, record: &Record) {
    out.extend_from_slice(&record.fingerprint.to_le_bytes());
    put_header_and_parts(out, record);
}

/// The record that [`put_contents`] wrote.
pub(super) fn take_contents(reader: &mut Reader<'_>) -> Result<Record, Malformed> {
    let fingerprint = reader.u64()?;
    let record = take_header_and_parts(reader, fingerprint)?;
    if reader.is_empty() {
        Ok(record)
    } else {
        Err(Malformed("a record is followed by something"))
    }
}

fn put_header_and_parts(out: &mut Vec<u8>, record: &Record) {
    let length_at = out.len();
    out.extend_from_slice(&[0; 4]);
    header::encode(&record.header, out);
    let length =
        u32::try_from(out.len() - length_at - 4).expect("a header's size is checked with its record");
    out[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    for part in &record.parts {
        out.put_varint(part.len() as u64);
    }
    for part in &record.parts {
        out.extend_from_slice(part);
    }
}

/// The record at the front of `bytes` and whether it commits its group; the checksum is verified.
pub(super) fn take_stored(bytes: &mut Reader<'_>) -> Result<(Stored, bool), Malformed> {
    let length = bytes.u32()? as usize;
    let checksum = bytes.u32()?;
    if length > MAX_STORED_RECORD_BYTES {
        return Err(Malformed("a record's length is impossible"));
    }
    let payload = bytes.take(length)?;
    if crc32c::crc32c(payload) != checksum {
        return Err(Malformed("a record's checksum does not match"));
    }
    let (version, body) = payload.split_first().ok_or(Malformed("a record is empty"))?;
    let body = match *version {
        RECORD_VERSION => Cow::Borrowed(body),
        STUFFED_VERSION => Cow::Owned(stuffing::plain(body)?),
        _ => return Err(Malformed(NEWER_RECORD)),
    };
    let mut reader = Reader::new(&body);
    let (kind, flags) = (reader.u8()?, reader.u8()?);
    let stored = match kind {
        PUT | SEALED => {
            let revision = Revision(reader.varint()?);
            let previous = Revision(reader.varint()?);
            Stored::Put {
                entry: Arc::new(take_entry(&mut reader, revision, (kind, flags))?),
                previous,
            }
        }
        DELETE => Stored::Delete {
            revision: Revision(reader.varint()?),
            previous: Revision(reader.varint()?),
            key: key(&mut reader)?,
        },
        COMPACT => Stored::Compact {
            floor: Revision(reader.varint()?),
        },
        _ => return Err(Malformed("a record is of unknown kind")),
    };
    if !reader.is_empty() {
        return Err(Malformed("a record is followed by something"));
    }
    Ok((stored, flags & COMMITS != 0))
}

/// The words for a record of a newer version whose checksum holds; recovery turns them into their own error.
pub(super) const NEWER_RECORD: &str = "a record has a newer format version";

fn key(reader: &mut Reader<'_>) -> Result<Key, Malformed> {
    Key::parse(reader.str()?).map_err(|_| Malformed("a key is not a path"))
}

fn take_entry(
    reader: &mut Reader<'_>,
    revision: Revision,
    (kind, flags): (u8, u8),
) -> Result<Entry, Malformed> {
    let created = Revision(reader.varint()?);
    let expires = if flags & EXPIRES != 0 {
        Some(reader.varint()?)
    } else {
        None
    };
    let (key, record) = if kind == SEALED {
        let key = key(reader)?;
        let stored = Bytes::copy_from_slice(reader.bytes()?);
        (key, seal::of_stored(stored))
    } else {
        let fingerprint = reader.u64()?;
        let key = key(reader)?;
        (key, take_header_and_parts(reader, fingerprint)?)
    };
    Ok(Entry {
        key,
        revision,
        created,
        expires,
        record,
        seal: Seal::default(),
    })
}

fn take_header_and_parts(reader: &mut Reader<'_>, fingerprint: u64) -> Result<Record, Malformed> {
    let header_length = reader.u32()? as usize;
    let header = Arc::new(header::decode(reader.take(header_length)?)?);
    let lengths = [reader.length()?, reader.length()?, reader.length()?];
    let total = lengths
        .iter()
        .try_fold(0_usize, |sum, next| sum.checked_add(*next));
    let all = Bytes::copy_from_slice(reader.take(total.ok_or(Malformed("a record's parts are too long"))?)?);
    let [first, second, _] = lengths;
    let parts = [
        all.slice(..first),
        all.slice(first..first + second),
        all.slice(first + second..),
    ];
    Ok(Record {
        parts,
        fingerprint,
        header,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite;

    /// A record with the checksum its bytes require: damage that a checksum does not see.
    fn sealed(payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
        [&length[..], &crc32c::crc32c(payload).to_le_bytes(), payload].concat()
    }

    #[test]
    fn record_with_zeros_as_long_as_a_sector_has_none_when_stored() {
        let mut record = suite::record("web", "node-1", "value");
        let mut header = (*record.header).clone();
        header.fields = [("involvedObject.name", "\0".repeat(3000))].into();
        record.header = Arc::new(header);
        let entry = Arc::new(Entry {
            key: Key::parse("/registry/events/default/e").unwrap(),
            revision: Revision(7),
            created: Revision(3),
            expires: None,
            record,
            seal: Seal::default(),
        });
        let put = Stored::Put {
            entry,
            previous: Revision(5),
        };
        let mut out = Vec::new();
        put_stored(&mut out, &put, true);
        assert!(!out.windows(SECTOR).any(|run| run.iter().all(|byte| *byte == 0)));
        assert_eq!(take_stored(&mut Reader::new(&out)), Ok((put, true)));
    }

    #[test]
    fn file_of_another_version_is_refused_by_number() {
        let path = Path::new("/data/log-1.seg");
        assert!(matches!(
            unknown_version(path, 0),
            StorageError::OlderFormat { found: 0, .. }
        ));
        assert!(matches!(
            unknown_version(path, 2),
            StorageError::NewerFormat { found: 2, .. }
        ));
    }

    #[test]
    fn log_format_record_fuzz_never_panics() {
        let key = Key::parse("/registry/pods/default/web").unwrap();
        let entry = Entry {
            key: key.clone(),
            revision: Revision(7),
            created: Revision(3),
            expires: Some(99),
            record: suite::record("web", "node-1", "value"),
            seal: Seal::default(),
        };
        let (revision, previous) = (Revision(8), Revision(7));
        let put = Stored::Put {
            entry: Arc::new(entry),
            previous: Revision(5),
        };
        let all = [
            put,
            Stored::Delete {
                key,
                revision,
                previous,
            },
            Stored::Compact { floor: revision },
        ];
        let payloads = all.map(|stored| {
            let mut out = Vec::new();
            put_stored(&mut out, &stored, true);
            out.split_off(RECORD_PREFIX_BYTES)
        });
        machinery_fuzz::fuzz(payloads, |payload| {
            let bytes = sealed(payload);
            if let Ok((stored, commits)) = take_stored(&mut Reader::new(&bytes)) {
                let mut again = Vec::new();
                put_stored(&mut again, &stored, commits);
                let read = take_stored(&mut Reader::new(&again)).unwrap();
                assert_eq!(
                    (read.0.revision(), read.0.key(), read.1),
                    (stored.revision(), stored.key(), commits)
                );
            }
        });
    }
}
