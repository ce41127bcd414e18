//! Strategic merge patch: merge keys and strategies come from the schema, directives from the patch.
//!
//! The patch is copied into the document's arena first; merging then makes new nodes out of old ones, and
//! nothing that stays is copied.

use super::{PatchError, read_object};
use crate::json::{Decoded, Strictness};
use crate::table::{Schema, Shape, TypeId};
use crate::tree::{Node, Ref, Tag, Tree};

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
    let patch = document.copy(patch, TypeId::ANY);
    let original = document.root;
    document.root = Merge {
        schema,
        tree: document,
    }
    .map(original, patch, ty)?;
    Ok(())
}

struct Merge<'a> {
    schema: &'a Schema,
    tree: &'a mut Tree,
}

/// What the schema says of a member.
#[derive(Clone, Copy)]
struct Meta<'a> {
    ty: TypeId,
    merge: bool,
    replace: bool,
    merge_key: &'a str,
}

impl<'a> Merge<'a> {
    fn map(&mut self, original: Node, patch: Node, ty: TypeId) -> Result<Node, PatchError> {
        let mut changes = self.tree.children(patch).to_vec();
        if let Some(directive) = self.take(&mut changes, DIRECTIVE) {
            return match self.tree.text_of(directive) {
                "replace" => Ok(self.make_map(changes)),
                "delete" => Ok(Node::map((0, 0))),
                other => Err(unknown_directive(other, self.shown(patch))),
            };
        }
        let mut members = self.tree.children(original).to_vec();
        self.retain_keys(&mut members, &mut changes)?;
        self.ordered_lists(&mut members, &mut changes, ty)?;
        for change in changes {
            self.member(&mut members, change, ty)?;
        }
        Ok(self.make_map(members))
    }

    fn member(&mut self, members: &mut Vec<Node>, change: Node, ty: TypeId) -> Result<(), PatchError> {
        let mut name = self.tree.key_of(change).to_owned();
        let delete_list = name.starts_with(DELETE_FROM);
        if delete_list {
            let own = name
                .strip_prefix(DELETE_FROM)
                .and_then(|rest| rest.strip_prefix('/'));
            name = own.ok_or_else(|| bad(BAD_PRIMITIVE_LIST))?.to_owned();
        }
        let found = self.find(members, &name);
        if change.is_null() {
            found.map(|found| members.remove(found));
            return Ok(());
        }
        let Some(found) = found else {
            if !delete_list && let Some(value) = self.without_directives(change, true) {
                self.add(members, value.at_place_of(change));
            }
            return Ok(());
        };
        let original = members[found];
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
            Some(merged) => members[found] = merged.at_place_of(original),
            None => drop(members.remove(found)),
        }
        Ok(())
    }

    fn list(
        &mut self,
        original: Node,
        patch: Node,
        meta: Meta<'_>,
        delete: bool,
    ) -> Result<Node, PatchError> {
        if !meta.merge && !delete {
            return Ok(patch);
        }
        let (own, theirs) = (
            self.tree.children(original).to_vec(),
            self.tree.children(patch).to_vec(),
        );
        if own.is_empty() && theirs.is_empty() {
            return Ok(original);
        }
        let merged = self.items(own, theirs, meta, delete)?;
        Ok(Node::list(self.tree.push_children(&merged)))
    }

    fn items(
        &mut self,
        own: Vec<Node>,
        theirs: Vec<Node>,
        meta: Meta<'_>,
        delete: bool,
    ) -> Result<Vec<Node>, PatchError> {
        let tag = self.element_tag(&own, &theirs)?;
        if tag != Tag::Map {
            if delete {
                return Ok(own
                    .into_iter()
                    .filter(|item| !self.contains(&theirs, *item))
                    .collect());
            }
            let mut merged: Vec<Node> = Vec::new();
            for item in own.iter().chain(&theirs) {
                if !self.contains(&merged, *item) {
                    merged.push(*item);
                }
            }
            return Ok(self.in_order(merged, &theirs, &own, ""));
        }
        if meta.merge_key.is_empty() {
            let name = self.schema.text(self.schema.ty(meta.ty).go_name);
            return Err(PatchError::Unmergeable(format!(
                "cannot merge lists without merge key for {name}"
            )));
        }
        let (own, theirs) = self.special_items(own, theirs, meta.merge_key)?;
        let mut merged = own.clone();
        for item in &theirs {
            let key = self.key_value(*item, meta.merge_key)?;
            match self.with_key(&merged, meta.merge_key, key) {
                Some(found) => merged[found] = self.map(merged[found], *item, meta.ty)?,
                None => merged.push(*item),
            }
        }
        Ok(self.in_order(merged, &theirs, &own, meta.merge_key))
    }

    /// Carries out `$patch` items: deletions in the list, or the replacement of all of it.
    fn special_items(
        &mut self,
        mut own: Vec<Node>,
        theirs: Vec<Node>,
        merge_key: &str,
    ) -> Result<(Vec<Node>, Vec<Node>), PatchError> {
        let mut plain = Vec::with_capacity(theirs.len());
        let mut replace = false;
        for item in theirs {
            let Some(directive) = self.value_of(item, DIRECTIVE) else {
                plain.push(item);
                continue;
            };
            match self.tree.text_of(directive) {
                "delete" => {
                    let key = self.key_value(item, merge_key)?;
                    own.retain(|own| {
                        !self
                            .value_of(*own, merge_key)
                            .is_some_and(|value| self.same(value, key))
                    });
                }
                "replace" => replace = true,
                "merge" => {
                    let problem = "merging lists cannot yet be specified in the patch";
                    return Err(PatchError::Unmergeable(problem.to_owned()));
                }
                other => return Err(unknown_directive(other, self.shown(item))),
            }
        }
        Ok(if replace {
            (plain, Vec::new())
        } else {
            (own, plain)
        })
    }

    /// `$retainKeys`: what it does not name goes, and the patch may not set it.
    fn retain_keys(&mut self, members: &mut Vec<Node>, changes: &mut Vec<Node>) -> Result<(), PatchError> {
        let Some(list) = self.take(changes, RETAIN_KEYS) else {
            return Ok(());
        };
        if list.tag() != Tag::List {
            return Err(bad(BAD_RETAIN_KEYS));
        }
        let tree = &*self.tree;
        let keep = |name: &str| tree.children(list).iter().any(|key| tree.text_of(*key) == name);
        let excused = |name: &str| name.starts_with(DELETE_FROM) || name.starts_with(SET_ORDER);
        let foreign = changes.iter().any(|change| {
            let name = tree.key_of(*change);
            !change.is_null() && !excused(name) && !keep(name)
        });
        if foreign {
            return Err(bad(BAD_RETAIN_KEYS));
        }
        members.retain(|member| keep(tree.key_of(*member)));
        Ok(())
    }

    /// `$setElementOrder/x`: merges list `x` and brings it into the stated order; takes both out of the changes.
    fn ordered_lists(
        &mut self,
        members: &mut Vec<Node>,
        changes: &mut Vec<Node>,
        ty: TypeId,
    ) -> Result<(), PatchError> {
        let is_order = |tree: &Tree, change: &Node| tree.key_of(*change).starts_with(SET_ORDER);
        while let Some(at) = changes.iter().position(|change| is_order(self.tree, change)) {
            let order = changes.remove(at);
            let name = self.tree.key_of(order)[SET_ORDER.len()..].strip_prefix('/');
            let name = name.ok_or_else(|| bad(BAD_SET_ORDER))?.to_owned();
            self.ordered_list(members, changes, order, &name, ty)?;
        }
        Ok(())
    }

    fn ordered_list(
        &mut self,
        members: &mut Vec<Node>,
        changes: &mut Vec<Node>,
        order: Node,
        name: &str,
        ty: TypeId,
    ) -> Result<(), PatchError> {
        let own_at = self.find(members, name);
        let change = self.take(changes, name);
        for node in [Some(order), own_at.map(|at| members[at]), change]
            .into_iter()
            .flatten()
        {
            if node.tag() != Tag::List {
                let problem = format!(
                    "expected a []interface {{}}, but received a {}",
                    go_type(node.tag())
                );
                return Err(PatchError::Unmergeable(problem));
            }
        }
        let meta = self.meta(ty, name);
        let order_items = self.tree.children(order).to_vec();
        if let Some(change) = change {
            self.check_order(change, order, meta.merge_key)?;
        }
        let own = own_at.map(|at| self.tree.children(members[at]).to_vec());
        let merged = match (own_at, change) {
            (None, None) => return Ok(()),
            (Some(at), None) => members[at],
            (None, Some(change)) => self
                .without_directives(change, false)
                .unwrap_or(Node::list((0, 0))),
            (Some(at), Some(change)) => self.list(members[at], change, meta, false)?,
        };
        let merged = self.tree.children(merged).to_vec();
        let sorted = self.in_order(merged, &order_items, &own.unwrap_or_default(), meta.merge_key);
        let list = Node::list(self.tree.push_children(&sorted));
        match own_at {
            Some(at) => members[at] = list.at_place_of(members[at]),
            None => {
                let key = self.tree.push_text(name);
                self.add(members, list.in_key(key));
            }
        }
        Ok(())
    }

    /// The items a patch sets must come in the order it states.
    fn check_order(&self, change: Node, order: Node, merge_key: &str) -> Result<(), PatchError> {
        let order_items = self.tree.children(order);
        let mut rest = order_items.iter();
        let special = |item: &Node| self.value_of(*item, DIRECTIVE).is_some();
        let set: Vec<Node> = self
            .tree
            .children(change)
            .iter()
            .copied()
            .filter(|item| !special(item))
            .collect();
        if order_items.is_empty() || set.is_empty() {
            return Ok(());
        }
        for item in set {
            if !self.found_in(&mut rest, item, merge_key)? {
                let (change, order) = (self.shown(change), self.shown(order));
                return Err(PatchError::Unmergeable(format!(
                    "The order in patch list:\n{change}\n doesn't match {SET_ORDER} list:\n{order}\n"
                )));
            }
        }
        Ok(())
    }

    /// Goes on in an order up to the place of an item; both must have keys where there is one.
    fn found_in(
        &self,
        rest: &mut std::slice::Iter<'_, Node>,
        item: Node,
        merge_key: &str,
    ) -> Result<bool, PatchError> {
        for other in rest {
            if !merge_key.is_empty() {
                self.key_value(item, merge_key)?;
                self.key_value(*other, merge_key)?;
            }
            if self.same_item(item, *other, merge_key) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Items named by the patch take its order, the others keep theirs, the two are woven together.
    fn in_order(&self, items: Vec<Node>, order: &[Node], own_order: &[Node], merge_key: &str) -> Vec<Node> {
        let place = |list: &[Node], item: Node| {
            list.iter()
                .position(|other| self.same_item(item, *other, merge_key))
        };
        let (mut named, mut others): (Vec<Node>, Vec<Node>) =
            items.into_iter().partition(|item| place(order, *item).is_some());
        named.sort_by_key(|item| place(order, *item));
        others.sort_by_key(|item| place(own_order, *item).unwrap_or(usize::MAX));
        let mut merged = Vec::with_capacity(named.len() + others.len());
        let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
        loop {
            let other_first = match (others.peek(), named.peek()) {
                (None, None) => return merged,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some(other), Some(named)) => {
                    let places = (place(own_order, *other), place(own_order, *named));
                    matches!(places, (Some(other), Some(named)) if other < named)
                }
            };
            merged.extend(if other_first { others.next() } else { named.next() });
        }
    }

    /// A value of the patch as it is taken over where nothing was: maps that give a directive of their own go, and the other
    /// directives, and nulls in maps where asked.
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

    /// What the schema says of a member: its type (of a list the item's), strategy and merge key.
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

    /// Where a member is; they are sorted, as everywhere.
    fn find(&self, members: &[Node], name: &str) -> Option<usize> {
        let order = |member: &Node| self.tree.key_of(*member).cmp(name);
        members.binary_search_by(order).ok()
    }

    /// Puts a member that is not there at its place.
    fn add(&self, members: &mut Vec<Node>, member: Node) {
        let name = self.tree.key_of(member);
        let at = members.partition_point(|own| self.tree.key_of(*own) < name);
        members.insert(at, member);
    }

    fn take(&self, members: &mut Vec<Node>, name: &str) -> Option<Node> {
        self.find(members, name).map(|at| members.remove(at))
    }

    fn value_of(&self, item: Node, name: &str) -> Option<Node> {
        if item.tag() != Tag::Map {
            return None;
        }
        self.tree
            .children(item)
            .iter()
            .copied()
            .find(|member| self.tree.key_of(*member) == name)
    }

    fn key_value(&self, item: Node, merge_key: &str) -> Result<Node, PatchError> {
        self.value_of(item, merge_key).ok_or_else(|| {
            let shown = self.shown(item);
            PatchError::Unmergeable(format!(
                "map: {shown} does not contain declared merge key: {merge_key}"
            ))
        })
    }

    fn with_key(&self, items: &[Node], merge_key: &str, key: Node) -> Option<usize> {
        items.iter().position(|item| {
            self.value_of(*item, merge_key)
                .is_some_and(|own| self.same(own, key))
        })
    }

    fn same_item(&self, a: Node, b: Node, merge_key: &str) -> bool {
        if merge_key.is_empty() {
            return self.same(a, b);
        }
        match (self.value_of(a, merge_key), self.value_of(b, merge_key)) {
            (Some(a), Some(b)) => self.same(a, b),
            _ => false,
        }
    }

    fn contains(&self, items: &[Node], item: Node) -> bool {
        items.iter().any(|own| self.same(*own, item))
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

    /// As Go prints a map or a list.
    fn shown(&self, node: Node) -> String {
        crate::leaf::go_value(self.free(node))
    }

    /// All items are of one kind, and no lists.
    fn element_tag(&self, own: &[Node], theirs: &[Node]) -> Result<Tag, PatchError> {
        let mut items = own.iter().chain(theirs);
        let first = items.next().map_or(Tag::Null, |item| item.tag());
        if first == Tag::List {
            let problem = "lists of lists are not supported";
            return Err(PatchError::DoesNotApply(problem.to_owned()));
        }
        if items.all(|item| item.tag() == first) {
            return Ok(first);
        }
        let list = |items: &[Node]| -> String {
            let shown: Vec<String> = items.iter().map(|item| self.shown(*item)).collect();
            format!("[{}]", shown.join(" "))
        };
        Err(PatchError::Unmergeable(format!(
            "list element types are not identical: [{} {}]",
            list(own),
            list(theirs)
        )))
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
