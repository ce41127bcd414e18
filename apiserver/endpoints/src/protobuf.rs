//! Watch events in protobuf: length-delimited `WatchEvent` messages around whole objects.

use crate::error::ApiError;
use apiserver_registry::RegistryError;
use bytes::{BufMut, BytesMut};
use machinery_schema::protobuf::write_bytes;
use machinery_schema::{Strictness, Tree, decode_json, encode_protobuf};

/// Field numbers of `meta/v1.WatchEvent` and of the `RawExtension` in it.
const TYPE: u16 = 1;
const OBJECT: u16 = 2;
const RAW: u16 = 1;

/// Appends an event with its length before it.
pub(crate) fn watch_event(kind: &str, object: &Tree, out: &mut BytesMut) -> Result<(), ApiError> {
    let mut extension = Vec::new();
    write_bytes(&mut extension, RAW, &encode_protobuf(object));
    let mut event = Vec::with_capacity(extension.len() + 16);
    write_bytes(&mut event, TYPE, kind.as_bytes());
    write_bytes(&mut event, OBJECT, &extension);
    let length = u32::try_from(event.len()).map_err(|error| RegistryError::Internal(error.to_string()))?;
    out.put_u32(length);
    out.put_slice(&event);
    Ok(())
}

/// Appends the event that ends a watch.
pub(crate) fn watch_error(status_json: &str, out: &mut BytesMut) {
    if let Some(status) = tree_of("Status", status_json.as_bytes()) {
        // A length beyond u32 cannot come of a Status.
        let _ = watch_event("ERROR", &status, out);
    }
}

/// A document of one of the kinds that belong to no group (`Status`, `APIResourceList` …) as protobuf; nothing where it
/// has no such form.
pub(crate) fn from_json(kind: &str, json: &[u8]) -> Option<Vec<u8>> {
    tree_of(kind, json).map(|tree| encode_protobuf(&tree))
}

fn tree_of(kind: &str, json: &[u8]) -> Option<Tree> {
    let (schema, ty) = machinery_api::schema_for("", "v1", kind)?;
    let decoded = decode_json(schema, ty, json, Strictness::Ignore).ok()?;
    Some(decoded.tree)
}
