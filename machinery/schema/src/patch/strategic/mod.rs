//! Strategic merge patch: merge keys and strategies come from the schema, directives from the patch.
//!
//! The patch is copied into the document's arena first; merging then makes new nodes out of old ones, and
//! nothing that stays is copied.

mod lists;
mod members;
mod order;

use super::{PatchError, allow, read_object, settled};
use crate::json::{Decoded, Strictness};
use crate::table::{Schema, Shape, TypeId};
use crate::tree::{Node, Ref, Tag, Tree};
use members::{ItemKey, Members};
use std::collections::HashSet;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

const BAD_PRIMITIVE_LIST: &str = "invalid patch format of primitive list";
const BAD_RETAIN_KEYS: &str = "invalid patch format of retainKeys";
const BAD_SET_ORDER: &str = "invalid patch format of setElementOrder list";

/// Applies a strategic merge patch to a free-form document of a type; gives the duplicate fields of the patch.
pub fn strategic_merge_patch(
    schema: &Schema,
    ty: TypeId,
    document: &mut Tree,
    patch: &[u8],
    strictness: Strictness,
) -> Result<Vec<String>, PatchError> {
    debug_assert_eq!(document.ty(), TypeId::ANY, "patches work on free-form documents");
    allow(document, patch.len());
    let decoded = read(patch, strictness)?;
    merge(schema, ty, document, decoded.tree.root())?;
    Ok(decoded.strict_errors)
}

/// Reads a patch, which must be an object.
pub(super) fn read(patch: &[u8], strictness: Strictness) -> Result<Decoded, PatchError> {
    read_object(patch, strictness)
        .map_err(|error| PatchError::BadPatch(error.to_string().replacen("error decoding patch: ", "", 1)))
}

/// Applies a patch that was read.
pub(super) fn merge(
    schema: &Schema,
    ty: TypeId,
    document: &mut Tree,
    patch: Ref<'_>,
) -> Result<(), PatchError> {
    let patch = document.copy(patch, TypeId::ANY, 0);
    let original = document.root;
    document.root = Merge {
        schema,
        tree: document,
    }
    .map(original, patch, ty)?;
    settled(document)
}

struct Merge<'a> {
    schema: &'a Schema,
    tree: &'a mut Tree,
}

/// Rules of the schema for a member.
#[derive(Clone, Copy)]
struct Meta<'a> {
    ty: TypeId,
    merge: bool,
    replace: bool,
    merge_key: &'a str,
}

impl<'a> Merge<'a> {
    fn map(&mut self, original: Node, patch: Node, ty: TypeId) -> Result<Node, PatchError> {
        settled(self.tree)?;
        let mut changes = Members::of(self.tree, patch);
        if let Some(directive) = changes.take(self.tree, DIRECTIVE) {
            return match self.tree.text_of(directive) {
                "replace" => Ok(self.make_map(changes.left().collect())),
                "delete" => Ok(Node::map((0, 0))),
                other => Err(unknown_directive(other, self.shown(patch))),
            };
        }
        self.tree
            .charge(original.span().1 as usize + patch.span().1 as usize);
        let mut members = Members::of(self.tree, original);
        self.retain_keys(&mut members, &mut changes)?;
        self.ordered_lists(&mut members, &mut changes, ty)?;
        members.settle(self.tree);
        for change in changes.left() {
            self.member(&mut members, change, ty)?;
        }
        Ok(self.make_map(members.left().collect()))
    }

    fn member(&mut self, members: &mut Members, change: Node, ty: TypeId) -> Result<(), PatchError> {
        let mut name = self.tree.key_of(change).to_owned();
        let delete_list = name.starts_with(DELETE_FROM);
        if delete_list {
            let own = name
                .strip_prefix(DELETE_FROM)
                .and_then(|rest| rest.strip_prefix('/'));
            name = own.ok_or_else(|| bad(BAD_PRIMITIVE_LIST))?.to_owned();
        }
        let found = members.find(self.tree, &name);
        if change.is_null() {
            found.map(|found| members.remove(found));
            return Ok(());
        }
        let Some(found) = found else {
            if !delete_list && let Some(value) = self.without_directives(change, true) {
                members.add(value.at_place_of(change));
            }
            return Ok(());
        };
        let original = members.get(found);
        let merged = match (original.tag(), change.tag()) {
            (Tag::Map, Tag::Map) => {
                let meta = self.meta(ty, &name);
                Some(if meta.replace {
                    change
                } else {
                    self.map(original, change, meta.ty)?
                })
            }
            (Tag::List, Tag::List) => {
                let meta = self.meta(ty, &name);
                Some(self.list(original, change, meta, delete_list)?)
            }
            _ if delete_list => Some(original),
            _ => self.without_directives(change, true),
        };
        match merged {
            Some(merged) => members.set(found, merged),
            None => drop(members.remove(found)),
        }
        Ok(())
    }

    /// `$retainKeys`: what it does not name goes, and the patch may not set it.
    fn retain_keys(&self, members: &mut Members, changes: &mut Members) -> Result<(), PatchError> {
        let Some(list) = changes.take(self.tree, RETAIN_KEYS) else {
            return Ok(());
        };
        if list.tag() != Tag::List {
            return Err(bad(BAD_RETAIN_KEYS));
        }
        let tree = &*self.tree;
        let names = tree.children(list).iter().map(|key| tree.text_of(*key));
        let kept: HashSet<&str> = names.collect();
        let excused = |name: &str| name.starts_with(DELETE_FROM) || name.starts_with(SET_ORDER);
        let foreign = changes.left().any(|change| {
            let name = tree.key_of(change);
            !change.is_null() && !excused(name) && !kept.contains(name)
        });
        if foreign {
            return Err(bad(BAD_RETAIN_KEYS));
        }
        members.retain(|member| kept.contains(tree.key_of(member)));
        Ok(())
    }

    /// A value of the patch as it is taken over where nothing was: maps that give a directive of their own go, and the other
    /// directives, and nulls in maps if requested.
    fn without_directives(&mut self, value: Node, nulls_go: bool) -> Option<Node> {
        let children = self.tree.children(value).to_vec();
        match value.tag() {
            Tag::Map => {
                if self.value_of(value, DIRECTIVE).is_some() {
                    return None;
                }
                let mut kept = Vec::with_capacity(children.len());
                for child in children {
                    let name = self.tree.key_of(child);
                    let directive =
                        name == RETAIN_KEYS || name.starts_with(DELETE_FROM) || name.starts_with(SET_ORDER);
                    if directive || (nulls_go && child.is_null()) {
                        continue;
                    }
                    kept.extend(
                        self.without_directives(child, nulls_go)
                            .map(|own| own.at_place_of(child)),
                    );
                }
                Some(self.make_map(kept))
            }
            Tag::List => {
                let mut kept = Vec::with_capacity(children.len());
                for child in children {
                    kept.extend(self.without_directives(child, nulls_go));
                }
                Some(Node::list(self.tree.push_children(&kept)))
            }
            _ => Some(value),
        }
    }

    /// Rules of the schema for a member: its type (of a list the item's), strategy and merge key.
    fn meta(&self, parent: TypeId, name: &str) -> Meta<'a> {
        let free = Meta {
            ty: TypeId::ANY,
            merge: false,
            replace: false,
            merge_key: "",
        };
        let ty = self.schema.ty(parent);
        if ty.shape == Shape::Map {
            return Meta { ty: ty.item, ..free };
        }
        let Some((_, field)) = self.schema.field(parent, name) else {
            return free;
        };
        let own = self.schema.ty(field.ty);
        let ty = match own.shape {
            Shape::List | Shape::SchemaOrArray | Shape::SchemaOrBool | Shape::SchemaOrStrings => own.item,
            _ => field.ty,
        };
        match self.schema.extra(field) {
            None => Meta { ty, ..free },
            Some(extra) => Meta {
                ty,
                merge: extra.patch_merge,
                replace: extra.patch_replace,
                merge_key: self.schema.text(extra.patch_merge_key),
            },
        }
    }

    /// A member of an item; they are sorted, as everywhere.
    fn value_of(&self, item: Node, name: &str) -> Option<Node> {
        if item.tag() != Tag::Map {
            return None;
        }
        let members = self.tree.children(item);
        let found = members.binary_search_by(|member| self.tree.key_of(*member).cmp(name));
        found.ok().map(|at| members[at])
    }

    /// Key that finds an item in its list: the value of its merge key, or without one the item itself.
    fn item_key(&self, item: Node, merge_key: &str) -> Option<ItemKey> {
        let value = match merge_key {
            "" => item,
            _ => self.value_of(item, merge_key)?,
        };
        Some(ItemKey::of(self.tree, value))
    }

    fn key_value(&self, item: Node, merge_key: &str) -> Result<Node, PatchError> {
        self.value_of(item, merge_key).ok_or_else(|| {
            let shown = self.shown(item);
            PatchError::Unmergeable(format!(
                "map: {shown} does not contain declared merge key: {merge_key}"
            ))
        })
    }

    fn same(&self, a: Node, b: Node) -> bool {
        self.free(a) == self.free(b)
    }

    fn free(&self, node: Node) -> Ref<'_> {
        Ref {
            tree: self.tree,
            node,
            ty: TypeId::ANY,
        }
    }

    /// A map or a list as Go prints it.
    fn shown(&self, node: Node) -> String {
        crate::leaf::go_value(self.free(node))
    }

    fn make_map(&mut self, members: Vec<Node>) -> Node {
        let span = self.tree.push_children(&members);
        self.tree.sort_members(span.0 as usize, members.len());
        Node::map(span)
    }
}

fn go_type(tag: Tag) -> &'static str {
    match tag {
        Tag::Null => "nil",
        Tag::Bool => "bool",
        Tag::Int => "int64",
        Tag::Float => "float64",
        Tag::Str | Tag::Raw => "string",
        Tag::List => "[]interface {}",
        Tag::Map => "map[string]interface {}",
    }
}

fn bad(problem: &str) -> PatchError {
    PatchError::BadPatch(problem.to_owned())
}

fn unknown_directive(directive: &str, shown: String) -> PatchError {
    PatchError::Unmergeable(format!("unknown patch type: {directive} in map: {shown}"))
}
