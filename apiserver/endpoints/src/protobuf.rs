//! Watch events in protobuf: length-delimited `WatchEvent` messages around whole objects.

use apiserver_registry::RegistryError;
use bytes::BytesMut;
use machinery_schema::Tree;

pub(crate) fn watch_event(_kind: &str, _object: &Tree, _out: &mut BytesMut) -> Result<(), RegistryError> {
    Err(RegistryError::Internal("watches are not served in protobuf yet".into()))
}

pub(crate) fn watch_error(_status_json: &str, _out: &mut BytesMut) {}
