//! The object header in stored form, so that recovery needs no schema.

use super::wire::{Malformed, Put, Reader};
use machinery_meta::{Fields, ObjectHeader, ObjectKey, OwnerRef, Uid};

const CONTROLLER: u8 = 1;
const BLOCK_OWNER_DELETION: u8 = 2;
/// No header has more items than this in one of its lists; a larger count is damage, not data.
const MAX_ITEMS: usize = 1 << 20;

pub(super) fn encode(header: &ObjectHeader, out: &mut Vec<u8>) {
    out.put_bytes(header.key.namespace.as_bytes());
    out.put_bytes(header.key.name.as_bytes());
    out.put_bytes(header.uid.0.as_bytes());
    out.put_varint(header.generation.cast_unsigned());
    put_pairs(&header.labels, out);
    out.put_varint(header.owners.len() as u64);
    for owner in &header.owners {
        for text in [&*owner.api_version, &*owner.kind, &*owner.name] {
            out.put_bytes(text.as_bytes());
        }
        out.put_bytes(owner.uid.0.as_bytes());
        let controller = if owner.controller { CONTROLLER } else { 0 };
        out.push(
            controller
                | if owner.block_owner_deletion {
                    BLOCK_OWNER_DELETION
                } else {
                    0
                },
        );
    }
    out.put_varint(header.finalizers.len() as u64);
    for finalizer in &header.finalizers {
        out.put_bytes(finalizer.as_bytes());
    }
    for time in [&header.creation_timestamp, &header.deletion_timestamp] {
        // Absent is empty; no timestamp is.
        out.put_bytes(time.as_deref().unwrap_or_default().as_bytes());
    }
    out.put_varint(header.fields.len() as u64);
    for (path, value) in header.fields.iter() {
        out.put_bytes(path.as_bytes());
        out.put_bytes(value.as_bytes());
    }
}

pub(super) fn decode(bytes: &[u8]) -> Result<ObjectHeader, Malformed> {
    let mut reader = Reader::new(bytes);
    let header = ObjectHeader {
        key: ObjectKey {
            namespace: reader.str()?.to_owned(),
            name: reader.str()?.to_owned(),
        },
        uid: Uid(reader.str()?.to_owned()),
        generation: reader.varint()?.cast_signed(),
        labels: pairs(&mut reader)?,
        owners: list(&mut reader, owner)?,
        finalizers: list(&mut reader, |reader| Ok(reader.str()?.into()))?,
        creation_timestamp: time(&mut reader)?,
        deletion_timestamp: time(&mut reader)?,
        fields: fields(&mut reader)?,
    };
    if reader.is_empty() {
        Ok(header)
    } else {
        Err(Malformed("the header is followed by something"))
    }
}

type Pairs = Vec<(Box<str>, Box<str>)>;

fn put_pairs(pairs: &Pairs, out: &mut Vec<u8>) {
    out.put_varint(pairs.len() as u64);
    for (key, value) in pairs {
        out.put_bytes(key.as_bytes());
        out.put_bytes(value.as_bytes());
    }
}

fn pairs(reader: &mut Reader<'_>) -> Result<Pairs, Malformed> {
    list(reader, |reader| Ok((reader.str()?.into(), reader.str()?.into())))
}

fn fields(reader: &mut Reader<'_>) -> Result<Fields, Malformed> {
    let pairs = list(reader, |reader| Ok((reader.str()?, reader.str()?)))?;
    Ok(pairs.into_iter().collect())
}

fn list<'a, T>(
    reader: &mut Reader<'a>,
    item: impl Fn(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = reader.length()?;
    if count > MAX_ITEMS {
        return Err(Malformed("the header has too many items"));
    }
    (0..count).map(|_| item(reader)).collect()
}

fn owner(reader: &mut Reader<'_>) -> Result<OwnerRef, Malformed> {
    let mut owner = OwnerRef {
        api_version: reader.str()?.into(),
        kind: reader.str()?.into(),
        name: reader.str()?.into(),
        uid: Uid(reader.str()?.to_owned()),
        ..OwnerRef::default()
    };
    let flags = reader.u8()?;
    owner.controller = flags & CONTROLLER != 0;
    owner.block_owner_deletion = flags & BLOCK_OWNER_DELETION != 0;
    Ok(owner)
}

fn time(reader: &mut Reader<'_>) -> Result<Option<Box<str>>, Malformed> {
    let text = reader.str()?;
    Ok((!text.is_empty()).then(|| text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_header_round_trips() {
        let full = ObjectHeader {
            key: ObjectKey::new("default", "web"),
            uid: Uid("u".to_owned()),
            generation: -3,
            labels: vec![("app".into(), "web".into())],
            owners: vec![OwnerRef {
                api_version: "apps/v1".into(),
                kind: "ReplicaSet".into(),
                name: "web".into(),
                uid: Uid("o".to_owned()),
                controller: true,
                block_owner_deletion: true,
            }],
            finalizers: vec!["f".into()],
            creation_timestamp: Some("2026-01-01T00:00:00Z".into()),
            deletion_timestamp: None,
            fields: Fields::from([("spec.nodeName", "n1")]),
        };
        for header in [full, ObjectHeader::default()] {
            let mut out = Vec::new();
            encode(&header, &mut out);
            assert_eq!(decode(&out), Ok(header));
            for end in 0..out.len() {
                assert!(decode(&out[..end]).is_err(), "cut at {end}");
            }
        }
    }
}
