//! Writing a tree: [`Mut`] is a cursor into it, the path methods of [`Tree`] are made of it.
//!
//! Setting a member that is not there inserts it at its place, so the normal order survives any change.
//! A set member stays, also where the normal form would leave it out (an empty `omitempty` list):
//! [`Mut::prune_empty`] and decoding know that rule, defaults and strategies rarely need it.

use super::read::find;
use super::{MAX_KEY, Node, Ref, Tag, Tree, child_type, effective, narrow};
use crate::table::TypeId;
use std::ops::Range;

/// A value that can be written. `&str`, `String`, `bool`, `i32`, `i64`, `usize`, `f64` and [`Ref`] convert.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(&'a str),
    /// Opaque JSON text; must be valid.
    Raw(&'a str),
    EmptyList,
    EmptyMap,
    /// A copy of a value of this or another tree.
    Copy(Ref<'a>),
    /// A value of this tree that was removed from its place.
    #[doc(hidden)]
    Taken(Taken),
}

/// A value and how many lists and maps it stood inside of. It is put into the same tree, of free-form JSON, once: two
/// places with one value's children would change together.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    pub(super) node: Node,
    pub(super) depth: usize,
}

macro_rules! value_from {
    ($($from:ty => |$v:ident| $to:expr),* $(,)?) => {
        $(impl<'a> From<$from> for Value<'a> { fn from($v: $from) -> Self { $to } })*
    };
}
value_from! {
    &'a str => |v| Value::Str(v),
    &'a String => |v| Value::Str(v),
    bool => |v| Value::Bool(v),
    i32 => |v| Value::Int(i64::from(v)),
    u32 => |v| Value::Int(i64::from(v)),
    i64 => |v| Value::Int(v),
    f64 => |v| Value::Float(v),
    Ref<'a> => |v| Value::Copy(v),
}

/// Location of a cursor's node.
#[derive(Debug, Clone, Copy)]
enum NodeLocation {
    Root,
    At(usize),
    /// Beyond a bound: null, and what is written there is lost. The tree has noted it.
    Nowhere,
}

/// A value that can be changed.
#[derive(Debug)]
pub struct Mut<'t> {
    tree: &'t mut Tree,
    place: NodeLocation,
    ty: TypeId,
    /// Number of lists and maps around it.
    depth: usize,
}

impl<'t> Mut<'t> {
    pub(super) fn root(tree: &'t mut Tree, ty: TypeId) -> Self {
        Self {
            tree,
            place: NodeLocation::Root,
            ty,
            depth: 0,
        }
    }

    fn node(&self) -> Node {
        match self.place {
            NodeLocation::Root => self.tree.root,
            NodeLocation::At(at) => self.tree.nodes[at],
            NodeLocation::Nowhere => Node::NULL,
        }
    }

    pub(super) fn replace(&mut self, node: Node) {
        match self.place {
            NodeLocation::Root => self.tree.root = node,
            NodeLocation::At(at) => {
                let here = self.tree.nodes[at];
                self.tree.nodes[at] = node.at_place_of(here);
            }
            NodeLocation::Nowhere => {}
        }
    }

    /// The value, to be put elsewhere once it is removed from here.
    pub(crate) fn taken(&self) -> Taken {
        debug_assert_eq!(self.ty, TypeId::ANY, "of free-form JSON only");
        Taken {
            node: self.node().bare(),
            depth: self.depth,
        }
    }

    pub fn as_ref(&self) -> Ref<'_> {
        let node = self.node();
        Ref {
            tree: self.tree,
            node,
            ty: effective(&self.tree.schema, self.ty, node.tag()),
        }
    }

    pub fn ty(&self) -> TypeId {
        self.as_ref().ty
    }

    pub fn is_null(&self) -> bool {
        self.node().is_null()
    }

    /// Puts another value here.
    pub fn set_value<'v>(&mut self, value: impl Into<Value<'v>>) {
        let node = self.tree.make(value.into(), self.ty, self.depth);
        self.replace(node);
    }

    /// A member that is there.
    pub fn field(&mut self, name: &str) -> Option<Mut<'_>> {
        self.here().into_field(name)
    }

    /// A member that is there, in place of this cursor.
    pub fn into_field(self, name: &str) -> Option<Mut<'t>> {
        let here = self.as_ref();
        if here.node.tag() != Tag::Map {
            return None;
        }
        let (parent, node) = (here.ty, here.node);
        let found = find(self.tree, parent, self.tree.children(node), name)?;
        Some(self.into_child(parent, node.range().start + found))
    }

    /// A member, made as null when it is not there. A value that is not a map becomes one.
    pub fn entry(&mut self, name: &str) -> Mut<'_> {
        self.here().into_entry(name)
    }

    /// A member, made as null when it is not there, in place of this cursor.
    pub fn into_entry(mut self, name: &str) -> Mut<'t> {
        if !self.becomes(Tag::Map) {
            return self.nowhere();
        }
        let here = self.as_ref();
        let (parent, node) = (here.ty, here.node);
        let found = find(self.tree, parent, self.tree.children(node), name);
        match found.map(|at| node.range().start + at) {
            Some(at) => self.into_child(parent, at),
            None => match self.insert_member(parent, node, name) {
                Some(at) => self.into_child(parent, at),
                None => self.nowhere(),
            },
        }
    }

    /// An item of a list.
    pub fn item(&mut self, index: usize) -> Option<Mut<'_>> {
        self.here().into_item(index)
    }

    /// An item of a list, in place of this cursor.
    pub fn into_item(self, index: usize) -> Option<Mut<'t>> {
        let here = self.as_ref();
        if here.node.tag() != Tag::List || index >= here.len() {
            return None;
        }
        let (parent, at) = (here.ty, here.node.range().start + index);
        Some(self.into_child(parent, at))
    }

    /// An item of a list, or a new one at its end, in place of this cursor.
    pub(super) fn into_item_or_new(self, index: usize) -> Mut<'t> {
        if index < self.as_ref().items().len() {
            let (parent, at) = (self.as_ref().ty, self.node().range().start + index);
            return self.into_child(parent, at);
        }
        let end = self.as_ref().items().len();
        self.into_inserted(end, Value::Null)
    }

    /// The child at a place among the children, whatever this is.
    pub(crate) fn nth(&mut self, index: usize) -> Option<Mut<'_>> {
        let here = self.as_ref();
        if index >= here.len() {
            return None;
        }
        let (parent, at) = (here.ty, here.node.range().start + index);
        Some(self.child_at(parent, at))
    }

    /// Calls `change` for each item of the list; does nothing when this is none.
    pub fn each_item(&mut self, mut change: impl FnMut(Mut<'_>)) {
        let count = self.as_ref().items().len();
        for index in 0..count {
            if let Some(item) = self.item(index) {
                change(item);
            }
        }
    }

    /// Calls `change` for each item of a list member, when there is one.
    pub fn each(&mut self, name: &str, change: impl FnMut(Mut<'_>)) {
        if let Some(mut list) = self.field(name) {
            list.each_item(change);
        }
    }

    /// Sets a member.
    pub fn set<'v>(&mut self, name: &str, value: impl Into<Value<'v>>) {
        self.entry(name).set_value(value);
    }

    /// Makes this a map or struct of these members, no two of one name, and no others.
    pub fn set_members(&mut self, members: &[(&str, Value<'_>)]) {
        if !self.becomes(Tag::Map) {
            return;
        }
        let (schema, parent) = (std::sync::Arc::clone(&self.tree.schema), self.ty());
        let mut nodes = Vec::with_capacity(members.len());
        for (name, value) in members {
            let place = match schema.field(parent, name) {
                Some((position, _)) => Node::NULL.in_field(position),
                None => Node::NULL.in_key(self.tree.push_text(&name[..name.floor_char_boundary(MAX_KEY)])),
            };
            let ty = child_type(&schema, parent, place);
            let value = self.tree.make(*value, ty, self.depth + 1);
            nodes.push(value.at_place_of(place));
        }
        let (first, count) = self.tree.push_children(&nodes);
        self.tree.sort_members(first as usize, count as usize);
        self.replace(Node::map((first, count)));
    }

    /// Sets a member unless it has a value already; null counts as none, and so does empty text where Go has no pointer.
    /// Says whether it did.
    pub fn default<'v>(&mut self, name: &str, value: impl Into<Value<'v>>) -> bool {
        let unset = match self.as_ref().get(name) {
            None => true,
            Some(own) => own.is_null() || (own.as_str() == Some("") && !self.as_ref().is_pointer(name)),
        };
        if unset {
            self.set(name, value);
        }
        unset
    }

    /// Takes a member away; says whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        let here = self.as_ref();
        if here.node.tag() != Tag::Map {
            return false;
        }
        let (parent, node) = (here.ty, here.node);
        let Some(found) = find(self.tree, parent, self.tree.children(node), name) else {
            return false;
        };
        self.remove_child(found);
        true
    }

    /// Appends to a list; null becomes a list first. Gives the new item.
    pub fn push<'v>(&mut self, value: impl Into<Value<'v>>) -> Mut<'_> {
        let end = if self.node().tag() == Tag::List {
            self.node().span().1 as usize
        } else {
            0
        };
        self.insert(end, value)
    }

    /// Inserts into a list before `index` (or at its end).
    pub fn insert<'v>(&mut self, index: usize, value: impl Into<Value<'v>>) -> Mut<'_> {
        self.here().into_inserted(index, value.into())
    }

    fn into_inserted(mut self, index: usize, value: Value<'_>) -> Mut<'t> {
        if !self.becomes(Tag::List) {
            return self.nowhere();
        }
        let ty = child_type(&self.tree.schema, self.ty, Node::NULL);
        let item = self.tree.make(value, ty, self.depth + 1);
        let node = self.node();
        let index = index.min(node.span().1 as usize);
        let parent = self.ty;
        match self.insert_child(node, index, item) {
            Some(at) => self.into_child(parent, at),
            None => self.nowhere(),
        }
    }

    /// Takes an item of a list away; says whether it was there.
    pub fn remove_item(&mut self, index: usize) -> bool {
        let there = self.node().tag() == Tag::List && index < self.node().span().1 as usize;
        if there {
            self.remove_child(index);
        }
        there
    }

    /// Keeps the items (or members) for which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(Ref<'_>) -> bool) {
        let here = self.as_ref();
        let kept: Vec<Node> = self
            .tree
            .children(here.node)
            .iter()
            .copied()
            .filter(|child| keep(here.child(*child)))
            .collect();
        if kept.len() != here.len() {
            let span = self.tree.push_children(&kept);
            let node = if self.node().tag() == Tag::List {
                Node::list(span)
            } else {
                Node::map(span)
            };
            self.replace(node);
        }
    }

    /// Brings the items of a list into another order: `order[i]` is the old index of the new item `i`.
    pub fn reorder(&mut self, order: &[usize]) {
        let node = self.node();
        let old = self.tree.children(node);
        let new: Vec<Node> = order.iter().filter_map(|at| old.get(*at).copied()).collect();
        let span = self.tree.push_children(&new);
        self.replace(Node::list(span));
    }

    /// A member that is a map or list and has nothing in it is taken away, as `omitempty` does.
    pub fn prune_empty(&mut self, name: &str) {
        let empty = self.as_ref().get(name).is_some_and(|own| {
            own.is_null() || (matches!(own.node.tag(), Tag::List | Tag::Map) && own.is_empty())
        });
        if empty {
            self.remove(name);
        }
    }

    fn child_at(&mut self, parent: TypeId, at: usize) -> Mut<'_> {
        self.here().into_child(parent, at)
    }

    /// The same place, borrowed.
    fn here(&mut self) -> Mut<'_> {
        Mut {
            tree: self.tree,
            place: self.place,
            ty: self.ty,
            depth: self.depth,
        }
    }

    fn into_child(self, parent: TypeId, at: usize) -> Mut<'t> {
        let child = self.tree.nodes[at];
        // A null has its field's own type: a `SchemaOr…` is only resolved once there is a value.
        let ty = child_type(&self.tree.schema, parent, child);
        Mut {
            tree: self.tree,
            place: NodeLocation::At(at),
            ty,
            depth: self.depth + 1,
        }
    }

    fn nowhere(self) -> Mut<'t> {
        Mut {
            place: NodeLocation::Nowhere,
            ..self
        }
    }

    /// Makes an empty list or map of whatever else is here; false where that would nest too deep.
    fn becomes(&mut self, tag: Tag) -> bool {
        if self.node().tag() == tag {
            return true;
        }
        if matches!(self.place, NodeLocation::Nowhere) || !self.tree.may_nest(self.depth) {
            return false;
        }
        self.replace(match tag {
            Tag::List => Node::list((0, 0)),
            _ => Node::map((0, 0)),
        });
        true
    }

    fn insert_member(&mut self, parent: TypeId, node: Node, name: &str) -> Option<usize> {
        let schema = std::sync::Arc::clone(&self.tree.schema);
        let (member, index) = match schema.field(parent, name) {
            Some((position, _)) => {
                let children = self.tree.children(node);
                let before = |child: &Node| !child.is_named() && child.position() < position;
                (Node::NULL.in_field(position), children.partition_point(before))
            }
            None => {
                let name = &name[..name.floor_char_boundary(MAX_KEY)];
                let key = self.tree.push_text(name);
                let children = self.tree.children(node);
                let before = |child: &Node| !child.is_named() || self.tree.key_of(*child) < name;
                (Node::NULL.in_key(key), children.partition_point(before))
            }
        };
        self.insert_child(node, index, member)
    }

    /// Puts one more among the children, where there is room behind them or at the arena's end; says where it is, unless
    /// a bound forbids it.
    fn insert_child(&mut self, node: Node, index: usize, child: Node) -> Option<usize> {
        let old = node.range();
        if !self.tree.charge(old.len() - index) {
            return None;
        }
        let first = match self.tree.has_room(&old) {
            true => {
                let (at, nodes) = (old.start + index, &mut self.tree.nodes);
                nodes.copy_within(at..old.end, at + 1);
                nodes[at] = child;
                old.start
            }
            false => self.tree.move_with(&old, index, child)?,
        };
        let span = (narrow(first), narrow(old.len() + 1));
        self.replace(if node.tag() == Tag::List {
            Node::list(span)
        } else {
            Node::map(span)
        });
        Some(first + index)
    }

    fn remove_child(&mut self, index: usize) {
        let node = self.node();
        let range = node.range();
        if !self.tree.charge(range.len() - index) {
            return;
        }
        self.tree
            .nodes
            .copy_within(range.start + index + 1..range.end, range.start + index);
        let span = (node.span().0, node.span().1 - 1);
        self.replace(if node.tag() == Tag::List {
            Node::list(span)
        } else {
            Node::map(span)
        });
    }
}

/// Children that are moved to the arena's end get room for as many again from this many on, so that what is left behind
/// by growing one by one stays in proportion. Fewer are cheaper to move than to keep a note of.
const ROOM_FROM: usize = 16;

impl Tree {
    fn has_room(&self, children: &Range<usize>) -> bool {
        let count = children.len();
        count >= ROOM_FROM && {
            let room = self.rooms.get(&narrow(children.start));
            room.is_some_and(|room| count < *room as usize)
        }
    }

    /// Copies children with one more among them to the arena's end; says where the first is.
    fn move_with(&mut self, old: &Range<usize>, index: usize, child: Node) -> Option<usize> {
        let (first, count) = (self.nodes.len(), old.len() + 1);
        let room = if old.len() < ROOM_FROM { count } else { 2 * count };
        if !self.fits_nodes(room) || !self.charge(index) {
            return None;
        }
        self.nodes.reserve(room);
        self.nodes.extend_from_within(old.start..old.start + index);
        self.nodes.push(child);
        self.nodes.extend_from_within(old.start + index..old.end);
        if room > count {
            self.nodes.resize(first + room, Node::NULL);
            self.rooms.remove(&narrow(old.start));
            self.rooms.insert(narrow(first), narrow(room));
        }
        Some(first)
    }
}
