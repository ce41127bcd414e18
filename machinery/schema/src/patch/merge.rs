//! JSON merge patch (RFC 7386).
//!
//! The patch is copied into the document's arena; each level is then one pass over two sorted lists of members.

use super::{PatchError, allow, read_object, settled};
use crate::TypeId;
use crate::json::Strictness;
use crate::tree::{Node, Ref, Tag, Tree};

/// Applies a merge patch to a free-form document; gives the duplicate fields of the patch.
pub fn merge_patch(
    document: &mut Tree,
    patch: &[u8],
    strictness: Strictness,
) -> Result<Vec<String>, PatchError> {
    debug_assert_eq!(document.ty(), TypeId::ANY, "patches work on free-form documents");
    allow(document, patch.len());
    let patch = read_object(patch, strictness)?;
    merge(document, patch.tree.root())?;
    Ok(patch.strict_errors)
}

/// Applies a patch that was read.
pub(super) fn merge(document: &mut Tree, patch: Ref<'_>) -> Result<(), PatchError> {
    let patch = document.copy(patch, TypeId::ANY, 0);
    document.root = merged(document, document.root, patch);
    settled(document)
}

fn merged(tree: &mut Tree, original: Node, patch: Node) -> Node {
    if patch.tag() != Tag::Map {
        return patch;
    }
    let changes = tree.children(patch).to_vec();
    let own = match original.tag() {
        Tag::Map => tree.children(original).to_vec(),
        _ => Vec::new(),
    };
    let mut members = Vec::with_capacity(own.len() + changes.len());
    let mut own = own.into_iter().peekable();
    for change in changes {
        while let Some(before) = own.next_if(|member| tree.key_of(*member) < tree.key_of(change)) {
            members.push(before);
        }
        let same = own.next_if(|member| tree.key_of(*member) == tree.key_of(change));
        if !change.is_null() {
            let value = merged(tree, same.unwrap_or(Node::NULL), change);
            members.push(value.at_place_of(change));
        }
    }
    members.extend(own);
    Node::map(tree.push_children(&members))
}
