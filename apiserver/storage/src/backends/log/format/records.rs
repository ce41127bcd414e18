//! Records: an object as it came to be, one that went, and what was compacted.

use crate::backends::log::wire::{Malformed, Put, Reader};
use crate::backends::log::{header, seal, stuffing};
use crate::encryption::Seal;
use crate::{Entry, Key, Record};
use bytes::Bytes;
use machinery_meta::Revision;
use std::borrow::Cow;
use std::sync::Arc;

const RECORD_VERSION: u8 = 1;
/// The same with everything behind the version stuffed.
const STUFFED_VERSION: u8 = 2;
/// Length and checksum before each record.
pub(crate) const RECORD_PREFIX_BYTES: usize = 8;
/// A record larger than this is damage, not data: the limit of a record with its key and header, doubled, and doubled
/// again for what stuffing adds. (A header repeats strings of its record, so both together stay below twice the limit.)
pub(crate) const MAX_STORED_RECORD_BYTES: usize = 4 * crate::write::MAX_RECORD_BYTES;

/// One record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stored {
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
    pub(crate) fn revision(&self) -> Option<Revision> {
        match self {
            Self::Put { entry, .. } => Some(entry.revision),
            Self::Delete { revision, .. } => Some(*revision),
            Self::Compact { .. } => None,
        }
    }

    pub(crate) fn key(&self) -> Option<&Key> {
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
pub(crate) fn put_stored(out: &mut Vec<u8>, stored: &Stored, commits: bool) {
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
pub(crate) fn put_contents(out: &mut Vec<u8>, record: &Record) {
    out.extend_from_slice(&record.fingerprint.to_le_bytes());
    put_header_and_parts(out, record);
}

/// The record that [`put_contents`] wrote.
pub(crate) fn take_contents(reader: &mut Reader<'_>) -> Result<Record, Malformed> {
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
pub(crate) fn take_stored(bytes: &mut Reader<'_>) -> Result<(Stored, bool), Malformed> {
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
pub(crate) const NEWER_RECORD: &str = "a record has a newer format version";

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
