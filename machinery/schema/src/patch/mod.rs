//! The three patches that change a document without knowledge of its fields' owners.
//!
//! [`apply_patch`] is how the server uses them: the live object becomes a free-form document, the patch is
//! applied there, and the result goes through the typed decoder again, which is where unknown fields and
//! wrong types are noticed, exactly as upstream does it. The parts can be had alone: [`json_patch`],
//! [`merge_patch`] and [`strategic_merge_patch`], which reads merge keys and strategies from the schema.

#[cfg(test)]
mod bounds_tests;
mod json_patch;
mod merge;
mod strategic;
#[cfg(test)]
mod tests;

pub use json_patch::json_patch;
pub use merge::merge_patch;
pub use strategic::strategic_merge_patch;

use crate::TypeId;
use crate::json::{DecodeError, Decoded, Strictness, decode_json, encode_json};
use crate::tree::{Exceeded, Growth, Ref, Step, Tree, untyped_schema};

/// Type of a patch, from the content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// `application/json-patch+json`
    Json,
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`
    StrategicMerge,
}

/// Reason why a patch was not applied, with upstream's sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself cannot be read: 400 `BadRequest`.
    #[error("{0}")]
    BadPatch(String),
    /// It requests more operations than are allowed: 413.
    #[error("The allowed maximum operations in a JSON patch is {limit}, got {count}")]
    TooManyOperations { count: usize, limit: usize },
    /// It takes more memory or steps than are allowed: 413.
    #[error("{0}")]
    TooLarge(Exceeded),
    /// It does not fit the document: 422 with a generic message.
    #[error("{0}")]
    DoesNotApply(String),
    /// Its lists and the document's cannot be merged: 500, as upstream has no class for it.
    #[error("{0}")]
    Unmergeable(String),
    /// The patched document is not an object of its kind: 422, field `patch`, `document` as its value.
    #[error("{error}")]
    Result { error: DecodeError, document: String },
}

/// A JSON patch has at most this many operations.
pub const MAX_OPERATIONS: usize = 10_000;
/// Copies of one JSON patch may add at most this many bytes.
pub const MAX_COPIED: usize = 3 << 20;

/// A patch may add this many times what document and patch hold to a document, and a constant.
const GROWTH: usize = 8;
const GROWTH_CONSTANT: usize = 1 << 16;
/// Nodes that a patch may copy, move aside or look at.
pub(crate) const MAX_STEPS: u64 = 1 << 27;

/// Limits what a patch of so many bytes may do to a document.
fn allow(document: &mut Tree, patch: usize) {
    let more = |own: usize| GROWTH * (own + patch) + MAX_COPIED + GROWTH_CONSTANT;
    let growth = Growth {
        nodes: more(document.node_count()),
        text: more(document.text.len()),
        steps: MAX_STEPS,
    };
    document.limit(growth);
}

/// Checks that all of a patch could be carried out.
fn settled(document: &Tree) -> Result<(), PatchError> {
    document.check_bounds().map_err(|bound| match bound {
        // Go's decoder and encoder refuse it, and upstream says so as of any patch that does not fit.
        Exceeded::Depth => PatchError::DoesNotApply(bound.to_string()),
        Exceeded::Size | Exceeded::Steps => PatchError::TooLarge(bound),
    })
}

/// Patches an object of a type; the result is in normal form, strict errors of patch and result listed.
pub fn apply_patch(
    current: &Tree,
    how: PatchType,
    patch: &[u8],
    strictness: Strictness,
) -> Result<Decoded, PatchError> {
    let read = match how {
        PatchType::Json => None,
        PatchType::Merge => Some(read_object(patch, strictness)?),
        PatchType::StrategicMerge => Some(strategic::read(patch, strictness)?),
    };
    let Some(read) = read else {
        return whole(current, strictness, |document| json_patch(document, patch));
    };
    let merge = |document: &mut Tree| {
        allow(document, patch.len());
        match how {
            PatchType::StrategicMerge => {
                strategic::merge(current.schema(), current.ty(), document, read.tree.root())
            }
            _ => merge::merge(document, read.tree.root()),
        }
    };
    let mut patched = match members(current, read.tree.root(), strictness, merge) {
        Some(patched) => patched,
        None => whole(current, strictness, merge)?,
    };
    patched.strict_errors.splice(..0, read.strict_errors);
    Ok(patched)
}

/// Patches the whole document, which is how upstream does it and where its errors come from.
fn whole(
    current: &Tree,
    strictness: Strictness,
    patch: impl Fn(&mut Tree) -> Result<(), PatchError>,
) -> Result<Decoded, PatchError> {
    let text = patched_text(current, patch)?;
    decode_json(current.schema(), current.ty(), text.as_bytes(), strictness).map_err(|error| match error {
        DecodeError::TooManyValues | DecodeError::TooLarge { .. } => PatchError::TooLarge(Exceeded::Size),
        error => PatchError::Result {
            error,
            document: text,
        },
    })
}

fn patched_text(
    current: &Tree,
    patch: impl Fn(&mut Tree) -> Result<(), PatchError>,
) -> Result<String, PatchError> {
    let mut document = to_untyped(current);
    settled(&document)?;
    patch(&mut document)?;
    Ok(document.root().to_json())
}

/// Result of a JSON or merge patch on an object, as text: upstream quotes it where it is an object of another kind.
pub fn patched_document(current: &Tree, how: PatchType, patch: &[u8]) -> Result<String, PatchError> {
    patched_text(current, |document| match how {
        PatchType::Json => json_patch(document, patch),
        _ => merge_patch(document, patch, Strictness::Ignore).map(drop),
    })
}

/// Patches only the members of the object that the patch names: the others are what they were, and need no reading.
/// `None` when that is not enough: a directive is about the object as a whole, and errors quote all of it.
fn members(
    current: &Tree,
    patch: Ref<'_>,
    strictness: Strictness,
    apply: impl Fn(&mut Tree) -> Result<(), PatchError>,
) -> Option<Decoded> {
    if patch.entries().any(|(name, _)| name.starts_with('$')) {
        return None;
    }
    let mut document = Tree::untyped();
    for (name, _) in patch.entries() {
        if let Some(own) = current.get(name) {
            document.set(&[Step::Name(name)], own);
        }
    }
    apply(&mut document).ok()?;
    let mut text = Vec::with_capacity(1024);
    encode_json(&document, &mut text);
    let part = decode_json(current.schema(), current.ty(), &text, strictness).ok()?;
    let mut tree = current.clone();
    for (name, _) in patch.entries() {
        match part.tree.get(name) {
            Some(own) => tree.set(&[Step::Name(name)], own),
            None => {
                tree.remove(&[name]);
            }
        }
    }
    tree.check_bounds().ok()?;
    Some(Decoded {
        tree,
        strict_errors: part.strict_errors,
    })
}

/// The same document without a schema: members by name, opaque JSON opened.
pub fn to_untyped(tree: &Tree) -> Tree {
    let mut free = Tree::empty(&untyped_schema(), TypeId::ANY, tree.node_count());
    free.text = String::with_capacity(tree.text.len());
    free.root = free.copy(tree.root(), TypeId::ANY, 0);
    free
}

/// Upstream's message for a patch of any type that is not JSON.
const NOT_JSON: &str = "invalid JSON patch";

/// Reads a patch that must be an object.
fn read_object(patch: &[u8], strictness: Strictness) -> Result<Decoded, PatchError> {
    let bad = |problem: String| PatchError::BadPatch(format!("error decoding patch: {problem}"));
    let decoded = decode_json(&untyped_schema(), TypeId::ANY, patch, strictness)
        .map_err(|_| PatchError::BadPatch(NOT_JSON.into()))?;
    let kind = match decoded.tree.root().kind() {
        crate::Kind::Map => return Ok(decoded),
        crate::Kind::List => "array",
        crate::Kind::String => "string",
        crate::Kind::Bool => "bool",
        crate::Kind::Null => {
            return Ok(Decoded {
                tree: Tree::untyped(),
                strict_errors: Vec::new(),
            });
        }
        _ => "number",
    };
    Err(bad(format!(
        "json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
    )))
}
