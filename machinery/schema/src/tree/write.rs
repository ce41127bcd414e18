//! Writing a tree: [`Mut`] is a cursor into it, the path methods of [`Tree`] are made of it.
//!
//! Setting a member that is not there inserts it at its place, so the normal order survives any change.
//! What a writer sets stays, also where the normal form would leave it out (an empty `omitempty` list):
//! [`Mut::prune_empty`] and decoding know that rule, defaults and strategies rarely need it.

use super::read::find;
use super::{MAX_KEY, Node, Ref, Tag, Tree, child_type, effective, narrow};
use crate::table::{Shape, TypeId};
use std::ops::Range;

/// One step of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    Name(&'a str),
    Index(usize),
}

impl<'a> From<&'a str> for Step<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name)
    }
}

impl From<usize> for Step<'_> {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// What can be written. `&str`, `String`, `bool`, `i32`, `i64`, `usize`, `f64` and [`Ref`] convert.
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

/// Where a cursor's node is kept.
#[derive(Debug, Clone, Copy)]
enum Place {
    Root,
    At(usize),
}

/// A value that can be changed.
#[derive(Debug)]
pub struct Mut<'t> {
    tree: &'t mut Tree,
    place: Place,
    ty: TypeId,
}

impl<'t> Mut<'t> {
    pub(super) fn root(tree: &'t mut Tree, ty: TypeId) -> Self {
        Self {
            tree,
            place: Place::Root,
            ty,
        }
    }

    fn node(&self) -> Node {
        match self.place {
            Place::Root => self.tree.root,
            Place::At(at) => self.tree.nodes[at],
        }
    }

    fn replace(&mut self, node: Node) {
        match self.place {
            Place::Root => self.tree.root = node,
            Place::At(at) => {
                let here = self.tree.nodes[at];
                self.tree.nodes[at] = node.at_place_of(here);
            }
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
        let node = self.tree.make(value.into(), self.ty);
        self.replace(node);
    }

    /// A member that is there.
    pub fn field(&mut self, name: &str) -> Option<Mut<'_>> {
        let here = self.as_ref();
        if here.node.tag() != Tag::Map {
            return None;
        }
        let (parent, node) = (here.ty, here.node);
        let found = find(self.tree, parent, self.tree.children(node), name)?;
        Some(self.child_at(parent, node.range().start + found))
    }

    /// A member, made as null when it is not there. A value that is not a map becomes one.
    pub fn entry(&mut self, name: &str) -> Mut<'_> {
        if self.node().tag() != Tag::Map {
            self.replace(Node::map((0, 0)));
        }
        let here = self.as_ref();
        let (parent, node) = (here.ty, here.node);
        let found = find(self.tree, parent, self.tree.children(node), name);
        let at = match found {
            Some(at) => node.range().start + at,
            None => self.insert_member(parent, node, name),
        };
        self.child_at(parent, at)
    }

    /// An item of a list.
    pub fn item(&mut self, index: usize) -> Option<Mut<'_>> {
        let here = self.as_ref();
        if here.node.tag() != Tag::List || index >= here.len() {
            return None;
        }
        let (parent, at) = (here.ty, here.node.range().start + index);
        Some(self.child_at(parent, at))
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

    /// Sets a member unless it has a value already; empty text and null count as none. Says whether it did.
    pub fn default<'v>(&mut self, name: &str, value: impl Into<Value<'v>>) -> bool {
        let unset = match self.as_ref().get(name) {
            None => true,
            Some(own) => own.is_null() || own.as_str() == Some(""),
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
        if self.node().tag() != Tag::List {
            self.replace(Node::list((0, 0)));
        }
        let ty = child_type(&self.tree.schema, self.ty, Node::NULL);
        let item = self.tree.make(value.into(), ty);
        let node = self.node();
        let index = index.min(node.span().1 as usize);
        let at = self.insert_child(node, index, item);
        let parent = self.ty;
        self.child_at(parent, at)
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
        let child = self.tree.nodes[at];
        // A null has its field's own type: a `SchemaOr…` is only resolved once there is a value.
        let ty = child_type(&self.tree.schema, parent, child);
        Mut {
            tree: self.tree,
            place: Place::At(at),
            ty,
        }
    }

    fn insert_member(&mut self, parent: TypeId, node: Node, name: &str) -> usize {
        let schema = std::sync::Arc::clone(&self.tree.schema);
        let (member, index) = match schema.field(parent, name) {
            Some((position, _)) => {
                let children = self.tree.children(node);
                let before = |child: &Node| !child.is_named() && child.position() < position;
                (
                    Node::NULL.in_field(position),
                    children.iter().take_while(|child| before(child)).count(),
                )
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

    /// Puts one more among the children, where there is room behind them or at the arena's end; says where it is.
    fn insert_child(&mut self, node: Node, index: usize, child: Node) -> usize {
        let old = node.range();
        let first = match self.tree.has_room(&old) {
            true => {
                let (at, nodes) = (old.start + index, &mut self.tree.nodes);
                nodes.copy_within(at..old.end, at + 1);
                nodes[at] = child;
                old.start
            }
            false => self.tree.move_with(&old, index, child),
        };
        let span = (narrow(first), narrow(old.len() + 1));
        self.replace(if node.tag() == Tag::List {
            Node::list(span)
        } else {
            Node::map(span)
        });
        first + index
    }

    fn remove_child(&mut self, index: usize) {
        let node = self.node();
        let range = node.range();
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
    fn move_with(&mut self, old: &Range<usize>, index: usize, child: Node) -> usize {
        let (first, count) = (self.nodes.len(), old.len() + 1);
        let room = if old.len() < ROOM_FROM { count } else { 2 * count };
        self.nodes.reserve(room);
        self.nodes.extend_from_within(old.start..old.start + index);
        self.nodes.push(child);
        self.nodes.extend_from_within(old.start + index..old.end);
        if room > count {
            self.nodes.resize(first + room, Node::NULL);
            self.rooms.remove(&narrow(old.start));
            self.rooms.insert(narrow(first), narrow(room));
        }
        first
    }

    /// Sets the value at a path, making maps on the way; an index must be there or be the end of its list.
    pub fn set<'v>(&mut self, path: &[Step<'_>], value: impl Into<Value<'v>>) {
        let ty = self.ty;
        Mut::root(self, ty).set_at(path, value.into());
    }

    /// Sets a string at a path of member names.
    pub fn set_str(&mut self, path: &[&str], value: &str) {
        self.set(&names(path), value);
    }

    /// Sets a number at a path of member names.
    pub fn set_i64(&mut self, path: &[&str], value: i64) {
        self.set(&names(path), value);
    }

    /// Takes the member at a path of member names away; says whether it was there.
    pub fn remove(&mut self, path: &[&str]) -> bool {
        let Some((last, above)) = path.split_last() else {
            return false;
        };
        self.with(above, |mut at| at.remove(last)).unwrap_or(false)
    }

    /// Puts a member of the root back to what it is when nobody has set it.
    pub fn reset(&mut self, member: &str) {
        let (schema, ty) = (std::sync::Arc::clone(&self.schema), self.ty);
        let always = |position: usize| {
            let all = schema.always(schema.ty(ty));
            all.iter().any(|own| usize::from(*own) == position)
        };
        match schema.field(ty, member).filter(|(position, _)| always(*position)) {
            Some((position, _)) => {
                let zero = self.zero_field(&schema, ty, position);
                Mut::root(self, ty).entry(member).replace(zero);
            }
            None => {
                self.remove(&[member]);
            }
        }
    }

    /// Appends to the list at a path of member names, making it when it is not there.
    pub fn push<'v>(&mut self, path: &[&str], value: impl Into<Value<'v>>) {
        let (ty, value) = (self.ty, value.into());
        Mut::root(self, ty).enter(path, |mut at| {
            at.push(value);
        });
    }

    /// Calls `change` with the value at a path of member names, when it is there.
    pub fn with<T>(&mut self, path: &[&str], change: impl FnOnce(Mut<'_>) -> T) -> Option<T> {
        let ty = self.ty;
        Mut::root(self, ty).walk(path, change)
    }

    pub(crate) fn make(&mut self, value: Value<'_>, target: TypeId) -> Node {
        match value {
            Value::Null => Node::NULL,
            Value::Bool(value) => Node::bool(value),
            Value::Int(value) => Node::int(value),
            Value::Float(value) => Node::float(value),
            Value::Str(text) => Node::str(self.push_text(text)),
            Value::Raw(text) => Node::raw(self.push_text(text)),
            Value::EmptyList => Node::list((0, 0)),
            Value::EmptyMap => Node::map((0, 0)),
            Value::Copy(from) => self.copy(from, target),
        }
    }

    /// Copies a value of another tree into a place of type `target`, members matched by name.
    pub(crate) fn copy(&mut self, from: Ref<'_>, target: TypeId) -> Node {
        if self.schema.ty(target).shape == Shape::Raw && !from.node.is_null() {
            let text = from.to_json();
            return Node::raw(self.push_text(&text));
        }
        match from.node.tag() {
            Tag::Null | Tag::Bool | Tag::Int | Tag::Float => from.node.bare(),
            Tag::Str => Node::str(self.push_text(from.tree.text_of(from.node))),
            Tag::Raw => self.copy_raw(from, target),
            Tag::List => Node::list(self.copy_children(from, target)),
            Tag::Map => Node::map(self.copy_children(from, target)),
        }
    }

    /// Opaque JSON stays so where the target is opaque too, and is opened where it is free-form.
    fn copy_raw(&mut self, from: Ref<'_>, target: TypeId) -> Node {
        let text = from.tree.text_of(from.node);
        match Tree::from_json(text) {
            Ok(opened) if target == TypeId::ANY => self.copy(opened.root(), target),
            _ => Node::raw(self.push_text(text)),
        }
    }

    /// A struct with more fields in it, which it did not have: in the order of their positions.
    pub(crate) fn with_fields(&mut self, parent: Node, more: &[Node]) -> Node {
        let range = parent.range();
        let first = self.nodes.len();
        self.nodes.reserve(range.len() + more.len());
        let mut at = range.start;
        for field in more {
            while at < range.end && self.nodes[at].label() < field.label() {
                self.nodes.push(self.nodes[at]);
                at += 1;
            }
            self.nodes.push(*field);
        }
        self.nodes.extend_from_within(at..range.end);
        let span = (narrow(first), narrow(range.len() + more.len()));
        Node::map(span).at_place_of(parent)
    }

    fn copy_children(&mut self, from: Ref<'_>, target: TypeId) -> (u32, u32) {
        let target = effective(&self.schema, target, from.node.tag());
        let children = from.tree.children(from.node);
        let first = self.nodes.len();
        self.nodes.resize(first + children.len(), Node::NULL);
        for (at, child) in children.iter().enumerate() {
            let place = self.place_for(from, *child, target);
            let value = self.copy(from.child(*child), child_type(&self.schema, target, place));
            self.nodes[first + at] = value.at_place_of(place);
        }
        if from.node.tag() == Tag::Map {
            self.sort_members(first, children.len());
        }
        (narrow(first), narrow(children.len()))
    }

    /// The label a child gets in a parent of type `target`.
    fn place_for(&mut self, from: Ref<'_>, child: Node, target: TypeId) -> Node {
        if from.node.tag() == Tag::List {
            return Node::NULL;
        }
        if !child.is_named() && target == from.ty && std::ptr::eq(&*self.schema, from.schema()) {
            return Node::NULL.in_field(child.position());
        }
        let name = from.tree.name_of(from.ty, child);
        match self.schema.field(target, name) {
            Some((position, _)) => Node::NULL.in_field(position),
            None => {
                let key = self.push_text(name);
                Node::NULL.in_key(key)
            }
        }
    }

    /// Sorts named children; of equal keys the last stays. Gives how many are left.
    pub(crate) fn sort_and_dedup(&mut self, (first, count): (u32, u32)) -> u32 {
        let start = first as usize;
        self.sort_members(start, count as usize);
        let mut kept: Vec<Node> = Vec::with_capacity(count as usize);
        for at in start..start + count as usize {
            let child = self.nodes[at];
            match kept.last_mut() {
                Some(last) if self.key_of(*last) == self.key_of(child) => *last = child,
                _ => kept.push(child),
            }
        }
        self.nodes[start..start + kept.len()].copy_from_slice(&kept);
        narrow(kept.len())
    }

    pub(crate) fn sort_members(&mut self, first: usize, count: usize) {
        let text = &self.text;
        let children = &mut self.nodes[first..first + count];
        let key = |node: &Node| {
            let (start, len) = node.key_slice();
            &text[start as usize..(start + len) as usize]
        };
        let order = |a: &Node, b: &Node| match (a.is_named(), b.is_named()) {
            (false, false) => a.position().cmp(&b.position()),
            (true, true) => key(a).cmp(key(b)),
            (a, b) => a.cmp(&b),
        };
        if !children.is_sorted_by(|a, b| order(a, b).is_le()) {
            children.sort_by(order);
        }
    }
}

impl Mut<'_> {
    fn set_at(&mut self, path: &[Step<'_>], value: Value<'_>) {
        let Some((step, rest)) = path.split_first() else {
            self.set_value(value);
            return;
        };
        match step {
            Step::Name(name) => self.entry(name).set_at(rest, value),
            Step::Index(index) if *index < self.as_ref().items().len() => {
                if let Some(mut item) = self.item(*index) {
                    item.set_at(rest, value);
                }
            }
            Step::Index(_) => self.push(Value::Null).set_at(rest, value),
        }
    }

    fn walk<T>(&mut self, path: &[&str], change: impl FnOnce(Mut<'_>) -> T) -> Option<T> {
        match path.split_first() {
            None => Some(change(Mut {
                tree: self.tree,
                place: self.place,
                ty: self.ty,
            })),
            Some((name, rest)) => self.field(name)?.walk(rest, change),
        }
    }

    fn enter(&mut self, path: &[&str], change: impl FnOnce(Mut<'_>)) {
        match path.split_first() {
            None => change(Mut {
                tree: self.tree,
                place: self.place,
                ty: self.ty,
            }),
            Some((name, rest)) => self.entry(name).enter(rest, change),
        }
    }
}

fn names<'a>(path: &[&'a str]) -> Vec<Step<'a>> {
    path.iter().map(|name| Step::Name(name)).collect()
}
