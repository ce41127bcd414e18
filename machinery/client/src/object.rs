//! An object as informers keep it: parsed header, projection, and (where readers request them) its shared bytes.

use crate::error::ClientError;
use bytes::Bytes;
use machinery_meta::{ObjectHeader, ObjectKey, OwnerRef, Revision, Uid, Word};
use machinery_runtime::HeldRoom;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// One version of one object.
#[derive(Debug)]
pub struct Object<P> {
    /// Key, uid, labels, owners, finalizers, times.
    pub header: Arc<ObjectHeader>,
    /// Its `resourceVersion`.
    pub revision: Revision,
    /// Projection of its readers.
    pub projection: P,
    pub(crate) bytes: Slices,
    /// Room that it takes, where an API extension sent it.
    pub(crate) _room: Option<Box<HeldRoom>>,
}

impl<P> Object<P> {
    /// Namespace and name.
    pub fn key(&self) -> &ObjectKey {
        &self.header.key
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.header.key.name
    }

    /// The namespace, empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        &self.header.key.namespace
    }

    /// The uid.
    pub fn uid(&self) -> &Uid {
        &self.header.uid
    }

    /// Decodes the kept bytes; only stores whose projection says `KEEP_BYTES` have them.
    pub fn decode<K: DeserializeOwned>(&self) -> Result<K, ClientError> {
        let json = self.bytes.joined();
        crate::json::from_slice(&json).map_err(|source| ClientError::Decode {
            what: self.header.key.to_string(),
            source,
        })
    }

    /// The object's JSON, where the store keeps it.
    pub fn json(&self) -> Cow<'_, [u8]> {
        self.bytes.joined()
    }
}

impl<P> Deref for Object<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.projection
    }
}

/// Bytes of one object in as many pieces as the transport delivered; in one process these are the server's own slices.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slices(pub(crate) Vec<Bytes>);

impl Slices {
    pub(crate) fn joined(&self) -> Cow<'_, [u8]> {
        match self.0.as_slice() {
            [one] => Cow::Borrowed(one),
            many => Cow::Owned(many.concat()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// The part from `start` to `end`, sharing memory.
    pub(crate) fn part(&self, start: usize, end: usize) -> Self {
        let mut out = Vec::with_capacity(self.0.len());
        let mut at = 0;
        for slice in &self.0 {
            let from = start.saturating_sub(at).min(slice.len());
            let to = end.saturating_sub(at).min(slice.len());
            if from < to {
                out.push(slice.slice(from..to));
            }
            at += slice.len();
        }
        Self(out)
    }

    /// A copy that pins no larger buffer.
    pub(crate) fn compact(&self) -> Self {
        Self(vec![Bytes::from(self.joined().into_owned())])
    }
}

/// An object from its JSON, with its bytes; for tests of what reads projections.
pub fn object_of<P: crate::projection::Projection>(json: &str) -> Result<Object<P>, serde_json::Error> {
    let (header, revision) = parse_header(json.as_bytes())?;
    let projection = P::project(&header, json.as_bytes())?;
    let bytes = Slices(vec![Bytes::copy_from_slice(json.as_bytes())]);
    Ok(Object {
        header: Arc::new(header),
        revision,
        projection,
        bytes,
        _room: None,
    })
}

/// An object just read: its header, and the bytes it came in.
#[derive(Debug)]
pub(crate) struct RawObject {
    pub(crate) header: Arc<ObjectHeader>,
    pub(crate) revision: Revision,
    /// Empty for readers of the header alone.
    pub(crate) bytes: Slices,
    /// Room that it takes, where an API extension sent it.
    pub(crate) room: Option<Box<HeldRoom>>,
    /// The header has name, namespace, uid and the time of deletion alone: the rest cannot be read.
    pub(crate) is_partial: bool,
}

/// The metadata that a header is made of.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    #[serde(default, borrow)]
    name: Cow<'a, str>,
    #[serde(default, borrow)]
    namespace: Cow<'a, str>,
    #[serde(default, borrow)]
    uid: Cow<'a, str>,
    #[serde(default, borrow)]
    resource_version: Cow<'a, str>,
    #[serde(default)]
    generation: i64,
    #[serde(default)]
    labels: Option<BTreeMap<Box<str>, Box<str>>>,
    #[serde(default)]
    owner_references: Option<Vec<Owner>>,
    #[serde(default)]
    finalizers: Option<Vec<Box<str>>>,
    #[serde(default)]
    creation_timestamp: Option<Box<str>>,
    #[serde(default)]
    deletion_timestamp: Option<Box<str>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    #[serde(default)]
    api_version: Word,
    #[serde(default)]
    kind: Word,
    #[serde(default)]
    name: Box<str>,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    controller: Option<bool>,
    #[serde(default)]
    block_owner_deletion: Option<bool>,
}

/// A member of an object.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Member {
    Metadata,
    #[serde(other)]
    Other,
}

/// Finds the metadata and reads no further.
struct Find<'m, 'a>(&'m mut Option<Meta<'a>>);

impl<'a> Visitor<'a> for Find<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(member) = members.next_key()? {
            if let Member::Metadata = member {
                *self.0 = Some(members.next_value()?);
                return Ok(());
            }
            members.next_value::<IgnoredAny>()?;
        }
        Err(serde::de::Error::missing_field("metadata"))
    }
}

fn metadata(json: &[u8]) -> Result<Meta<'_>, serde_json::Error> {
    let mut found = None;
    let read = serde_json::Deserializer::from_slice(json).deserialize_map(Find(&mut found));
    match (found, read) {
        // That the members behind it were not read is no error here.
        (Some(meta), _) => Ok(meta),
        (None, Err(error)) => Err(error),
        (None, Ok(())) => Err(serde::de::Error::missing_field("metadata")),
    }
}

/// Reads header and revision from an object's JSON. The part behind the metadata is not looked at, and that is most
/// of an object.
pub fn parse_header(json: &[u8]) -> Result<(ObjectHeader, Revision), serde_json::Error> {
    let meta = metadata(json)?;
    let revision = meta.resource_version.parse().unwrap_or(Revision::ZERO);
    let owners = meta
        .owner_references
        .unwrap_or_default()
        .into_iter()
        .map(|owner| OwnerRef {
            api_version: owner.api_version,
            kind: owner.kind,
            name: owner.name,
            uid: Uid(owner.uid),
            controller: owner.controller.unwrap_or(false),
            block_owner_deletion: owner.block_owner_deletion.unwrap_or(false),
        });
    let header = ObjectHeader {
        key: ObjectKey::new(meta.namespace, meta.name),
        uid: Uid(meta.uid.into_owned()),
        generation: meta.generation,
        labels: meta.labels.unwrap_or_default().into_iter().collect(),
        owners: owners.collect(),
        finalizers: meta.finalizers.unwrap_or_default(),
        creation_timestamp: meta.creation_timestamp,
        deletion_timestamp: meta.deletion_timestamp,
        ..ObjectHeader::default()
    };
    Ok((header, revision))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_read_without_decoding_the_rest() {
        let json = br#"{"kind":"Pod","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7",
            "labels":{"b":"2","a":"1"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r",
            "uid":"x","controller":true}]},"spec":{"deep":[1,2,{"x":null}]}}"#;
        let (header, revision) = parse_header(json).unwrap();
        assert_eq!(header.key.to_string(), "n/a");
        assert_eq!(revision, Revision(7));
        assert_eq!(header.label("a"), Some("1"));
        assert_eq!(header.controller().unwrap().uid.0, "x");
        let end = json.windows(6).position(|at| at == b"\"spec\"").unwrap();
        assert_eq!(parse_header(&json[..end]).unwrap().0, header);
    }

    #[test]
    fn metadata_is_found_wherever_it_stands_and_missed_where_it_is_not() {
        let (header, _) = parse_header(br#"{"spec":{"metadata":1},"metadata":{"name":"a"}}"#).unwrap();
        assert_eq!(header.key.name, "a");
        for json in [
            &b"{}"[..],
            b"[]",
            b"",
            br#"{"metadata":1}"#,
            br#"{"metadata":{"name""#,
        ] {
            assert!(parse_header(json).is_err());
        }
    }

    #[test]
    fn parts_share_the_slices_they_cross() {
        let slices = Slices(vec![
            Bytes::from_static(b"abc"),
            Bytes::from_static(b"defg"),
            Bytes::from_static(b"h"),
        ]);
        assert_eq!(&*slices.part(2, 5).joined(), b"cde");
        assert_eq!(&*slices.part(0, 8).joined(), b"abcdefgh");
        assert_eq!(slices.part(3, 7).0.len(), 1);
    }
}
