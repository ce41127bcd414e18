//! What upstream answers to a patch that cannot be applied.

use crate::engine::{self, PatchError};
use crate::negotiation::PatchType;
use apiserver_registry::{RegistryError, ResourceRow};
use machinery_schema::{Decoded, Tree};

/// Applies a patch of any type to an object.
pub(crate) fn apply(
    row: &ResourceRow,
    name: &str,
    kind: PatchType,
    live: &Tree,
    patch: &[u8],
) -> Result<Decoded, RegistryError> {
    let patched = match kind {
        PatchType::Json => engine::json_patch(live, patch),
        PatchType::Merge => engine::merge_patch(live, patch),
        PatchType::Strategic => engine::strategic_merge_patch(live, patch),
        PatchType::Apply(_) => return Err(RegistryError::Internal("apply is answered before".into())),
    };
    patched.map_err(|error| answer(row, name, &error))
}

fn answer(_row: &ResourceRow, _name: &str, error: &PatchError) -> RegistryError {
    match error {
        PatchError::Unsupported(what) => RegistryError::BadRequest((*what).to_owned()),
    }
}

/// Unknown or duplicate fields in the patched object, under strict validation.
pub(crate) fn strict(row: &ResourceRow, name: &str, problem: &str) -> RegistryError {
    use machinery_meta::{FieldError, FieldPath};
    let path = FieldPath::new("patch");
    let error = FieldError::invalid(&path, name, format!("strict decoding error: {problem}"));
    RegistryError::Invalid { kind: row.group_kind(), name: name.to_owned(), errors: vec![error] }
}
