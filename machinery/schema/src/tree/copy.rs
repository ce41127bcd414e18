//! Values into a tree: what can be written, copied from another tree, or put elsewhere in the same one.

use super::{Exceeded, Node, Ref, Tag, Tree, Value, child_type, effective, narrow, nests_within};
use crate::MAX_DEPTH;
use crate::table::{Shape, TypeId};

impl Tree {
    /// The node of a value that stands inside of `depth` lists and maps; null where a bound forbids it.
    pub(crate) fn make(&mut self, value: Value<'_>, target: TypeId, depth: usize) -> Node {
        match value {
            Value::Null => Node::NULL,
            Value::Bool(value) => Node::bool(value),
            Value::Int(value) => Node::int(value),
            Value::Float(value) => Node::float(value),
            Value::Str(text) => Node::str(self.push_text(text)),
            Value::Raw(text) => self.raw(text, depth),
            Value::EmptyList if self.may_nest(depth) => Node::list((0, 0)),
            Value::EmptyMap if self.may_nest(depth) => Node::map((0, 0)),
            Value::EmptyList | Value::EmptyMap => Node::NULL,
            Value::Copy(from) => self.copy(from, target, depth),
            Value::Taken(taken) => {
                let fits = depth <= taken.depth || self.may_stand(taken.node, depth);
                if fits { taken.node } else { Node::NULL }
            }
        }
    }

    /// Copies a value of another tree into a place of type `target`, members matched by name.
    pub(crate) fn copy(&mut self, from: Ref<'_>, target: TypeId, depth: usize) -> Node {
        if self.schema.ty(target).shape == Shape::Raw && !from.node.is_null() {
            return self.raw(&from.to_json(), depth);
        }
        match from.node.tag() {
            Tag::Null | Tag::Bool | Tag::Int | Tag::Float => from.node.bare(),
            Tag::Str => Node::str(self.push_text(from.tree.text_of(from.node))),
            Tag::Raw => self.copy_raw(from, target, depth),
            Tag::List | Tag::Map if !self.may_nest(depth) => Node::NULL,
            Tag::List => Node::list(self.copy_children(from, target, depth)),
            Tag::Map => Node::map(self.copy_children(from, target, depth)),
        }
    }

    /// Opaque JSON stays so where the target is opaque too, and is opened where it is free-form.
    fn copy_raw(&mut self, from: Ref<'_>, target: TypeId, depth: usize) -> Node {
        let text = from.tree.text_of(from.node);
        if target == TypeId::ANY
            && let Ok(opened) = Tree::from_json(text)
        {
            return self.copy(opened.root(), target, depth);
        }
        self.raw(text, depth)
    }

    /// Opaque JSON inside of `depth` lists and maps.
    fn raw(&mut self, text: &str, depth: usize) -> Node {
        if !nests_within(text, MAX_DEPTH.saturating_sub(depth)) {
            self.exceed(Exceeded::Depth);
            return Node::NULL;
        }
        Node::raw(self.push_text(text))
    }

    /// A struct with more fields in it, which it did not have: in the order of their positions.
    pub(crate) fn with_fields(&mut self, parent: Node, more: &[Node]) -> Node {
        let range = parent.range();
        if !self.fits_nodes(range.len() + more.len()) {
            return parent;
        }
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

    fn copy_children(&mut self, from: Ref<'_>, target: TypeId, depth: usize) -> (u32, u32) {
        let target = effective(&self.schema, target, from.node.tag());
        let children = from.tree.children(from.node);
        if !self.fits_nodes(children.len()) || !self.charge(children.len()) {
            return (0, 0);
        }
        let first = self.nodes.len();
        self.nodes.resize(first + children.len(), Node::NULL);
        for (at, child) in children.iter().enumerate() {
            let place = self.place_for(from, *child, target);
            let value = self.copy(
                from.child(*child),
                child_type(&self.schema, target, place),
                depth + 1,
            );
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
