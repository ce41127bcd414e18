//! The messages that etcd keeps: keys with their values, and leases. Protobuf, by hand.

use crate::backends::log::wire::{Malformed, Put, Reader};

/// etcd's `mvccpb.KeyValue`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KeyValue {
    pub(super) key: Vec<u8>,
    pub(super) created: u64,
    pub(super) modified: u64,
    pub(super) version: u64,
    pub(super) value: Vec<u8>,
    pub(super) lease: u64,
}

/// etcd's `leasepb.Lease`, times in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) id: u64,
    pub(super) granted: u64,
    pub(super) remaining: u64,
}

const NUMBER: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const BYTES: u64 = 2;
const FOUR_BYTES: u64 = 5;

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn each_field<'a>(bytes: &'a [u8], mut each: impl FnMut(u64, Field<'a>)) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let tag = reader.varint()?;
        match tag & 7 {
            NUMBER => each(tag >> 3, Field::Number(reader.varint()?)),
            BYTES => each(tag >> 3, Field::Bytes(reader.bytes()?)),
            EIGHT_BYTES => drop(reader.take(8)?),
            FOUR_BYTES => drop(reader.take(4)?),
            _ => return Err(Malformed("a message has a field of unknown form")),
        }
    }
    Ok(())
}

fn put_number(out: &mut Vec<u8>, field: u64, value: u64) {
    if value != 0 {
        out.put_varint(field << 3 | NUMBER);
        out.put_varint(value);
    }
}

fn put_bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    if !value.is_empty() {
        out.put_varint(field << 3 | BYTES);
        out.put_bytes(value);
    }
}

impl KeyValue {
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut own = Self::default();
        each_field(bytes, |field, value| match (field, value) {
            (1, Field::Bytes(key)) => own.key = key.to_vec(),
            (2, Field::Number(created)) => own.created = created,
            (3, Field::Number(modified)) => own.modified = modified,
            (4, Field::Number(version)) => own.version = version,
            (5, Field::Bytes(value)) => own.value = value.to_vec(),
            (6, Field::Number(lease)) => own.lease = lease,
            _ => {}
        })?;
        Ok(own)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.key.len() + self.value.len() + 40);
        put_bytes(&mut out, 1, &self.key);
        put_number(&mut out, 2, self.created);
        put_number(&mut out, 3, self.modified);
        put_number(&mut out, 4, self.version);
        put_bytes(&mut out, 5, &self.value);
        put_number(&mut out, 6, self.lease);
        out
    }
}

impl Lease {
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut own = Self::default();
        each_field(bytes, |field, value| match (field, value) {
            (1, Field::Number(id)) => own.id = id,
            (2, Field::Number(granted)) => own.granted = granted,
            (3, Field::Number(remaining)) => own.remaining = remaining,
            _ => {}
        })?;
        Ok(own)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, 1, self.id);
        put_number(&mut out, 2, self.granted);
        put_number(&mut out, 3, self.remaining);
        out
    }
}

/// The key of a change in the bucket of changes: the revision and the place within it.
pub(super) fn revision_key(revision: u64) -> Vec<u8> {
    [&revision.to_be_bytes()[..], b"_", &0_u64.to_be_bytes()].concat()
}

/// The revision of a change, and whether it is a deletion.
pub(super) fn read_revision_key(key: &[u8]) -> Option<(u64, bool)> {
    let (revision, rest) = key.split_first_chunk::<8>()?;
    let (sub, mark) = rest.strip_prefix(b"_")?.split_first_chunk::<8>()?;
    let _: &[u8; 8] = sub;
    match mark {
        b"" => Some((u64::from_be_bytes(*revision), false)),
        b"t" => Some((u64::from_be_bytes(*revision), true)),
        _ => None,
    }
}
