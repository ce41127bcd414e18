//! The engines of `machinery-schema` that are still on their way; until they land, each answers that it is missing.

use machinery_schema::{DecodeError, Decoded, Schema, Strictness, Tree, TypeId};
use std::sync::Arc;

/// A patch that cannot be applied; whose words upstream has.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum PatchError {
    #[error("{0}")]
    Unsupported(&'static str),
}

fn missing(what: &str) -> DecodeError {
    DecodeError::Syntax(format!("this server does not read {what} yet"))
}

pub(crate) fn apply_defaults(_tree: &mut Tree) {}

pub(crate) fn decode_yaml(_: &Arc<Schema>, _: TypeId, _: &[u8], _: Strictness) -> Result<Decoded, DecodeError> {
    Err(missing("YAML"))
}

pub(crate) fn decode_protobuf(_: &Arc<Schema>, _: TypeId, _: &[u8], _: Strictness) -> Result<Decoded, DecodeError> {
    Err(missing("protobuf"))
}

pub(crate) fn json_patch(_: &Tree, _: &[u8]) -> Result<Decoded, PatchError> {
    Err(PatchError::Unsupported("JSON patches are not served yet"))
}

pub(crate) fn merge_patch(_: &Tree, _: &[u8]) -> Result<Decoded, PatchError> {
    Err(PatchError::Unsupported("merge patches are not served yet"))
}

pub(crate) fn strategic_merge_patch(_: &Tree, _: &[u8]) -> Result<Decoded, PatchError> {
    Err(PatchError::Unsupported("strategic merge patches are not served yet"))
}

/// Whether answers can be written in this format yet.
pub(crate) const HAS_YAML: bool = false;
pub(crate) const HAS_PROTOBUF: bool = false;
