//! JSON merge patch (RFC 7386).

use super::{PatchError, read_object};
use crate::json::Strictness;
use crate::tree::{Mut, Ref, Tree, Value};
use crate::{Kind, TypeId};

/// Applies a merge patch to a free-form document; gives the duplicate fields of the patch.
pub fn merge_patch(
    document: &mut Tree,
    patch: &[u8],
    strictness: Strictness,
) -> Result<Vec<String>, PatchError> {
    debug_assert_eq!(document.ty(), TypeId::ANY, "patches work on free-form documents");
    let patch = read_object(patch, strictness)?;
    merge(&mut document.root_mut(), patch.tree.root());
    Ok(patch.strict_errors)
}

/// Applies a patch that was read.
pub(super) fn merge(target: &mut Mut<'_>, patch: Ref<'_>) {
    if patch.kind() != Kind::Map {
        target.set_value(Value::Copy(patch));
        return;
    }
    if target.as_ref().kind() != Kind::Map {
        target.set_value(Value::EmptyMap);
    }
    for (name, value) in patch.entries() {
        if value.is_null() {
            target.remove(name);
        } else if value.kind() == Kind::Map || target.as_ref().get(name).is_some() {
            merge(&mut target.entry(name), value);
        } else {
            target.set(name, Value::Copy(value));
        }
    }
}
