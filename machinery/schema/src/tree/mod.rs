//! An object as one tree in one arena.
//!
//! Nodes are 16 bytes and lie in one vector; the children of a list, map or struct are consecutive, in the
//! order in which they are written: fields of a struct in the type's order (named by position), map keys
//! sorted (named by a slice of the text). Strings are slices of one text, which begins as a copy of the
//! input, so that a string without escapes costs nothing. A change appends: the replaced nodes stay behind
//! until the tree is dropped, which is soon, for stores keep encoded bytes. A tree's depth and size,
//! and the growth by a change, are bounded by the tree itself ([`Tree::check_bounds`]).
//!
//! [`Ref`] reads, [`Mut`] and the path methods of [`Tree`] write.

mod bounds;
mod copy;
mod equal;
mod path;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use bounds::{Bounds, Growth, nests_within};
pub use bounds::{Exceeded, MAX_NODES, MAX_TEXT};
pub use path::Step;
pub(crate) use read::find_field;
pub use read::{Kind, Ref};
pub(crate) use write::Taken;
pub use write::{Mut, Value};

use crate::table::{Schema, Shape, TypeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One value; see the module's comment for what is where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    /// Tag in the top byte; below it the field's position, or the length of the key with `NAMED` in the tag.
    meta: u32,
    /// Start of a named child's key in the text.
    key: u32,
    /// Payload: a number's halves, a text's start and length, a parent's first child and count.
    x: u32,
    y: u32,
}

/// Kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    Null = 0,
    Bool,
    Int,
    Float,
    Str,
    /// Opaque JSON text.
    Raw,
    List,
    /// A map or a struct.
    Map,
}

const NAMED: u32 = 0x80;
const LABEL_MASK: u32 = 0x00ff_ffff;

/// Names of map keys are shorter than this.
pub(crate) const MAX_KEY: usize = LABEL_MASK as usize;

impl Node {
    fn new(tag: Tag, x: u32, y: u32) -> Self {
        Self {
            meta: (tag as u32) << 24,
            key: 0,
            x,
            y,
        }
    }

    pub(crate) const NULL: Self = Self {
        meta: 0,
        key: 0,
        x: 0,
        y: 0,
    };

    /// A field whose value a later one took away; only while a struct is decoded.
    pub(crate) fn gone(position: usize) -> Self {
        Self {
            key: u32::MAX,
            ..Self::NULL.in_field(position)
        }
    }

    pub(crate) fn is_gone(self) -> bool {
        !self.is_named() && self.key == u32::MAX
    }

    pub(crate) fn bool(value: bool) -> Self {
        Self::new(Tag::Bool, u32::from(value), 0)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the two halves of one number"
    )]
    pub(crate) fn int(value: i64) -> Self {
        Self::new(Tag::Int, value as u32, (value >> 32) as u32)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves of one number")]
    pub(crate) fn float(value: f64) -> Self {
        let bits = value.to_bits();
        Self::new(Tag::Float, bits as u32, (bits >> 32) as u32)
    }

    pub(crate) fn str((start, len): (u32, u32)) -> Self {
        Self::new(Tag::Str, start, len)
    }

    pub(crate) fn raw((start, len): (u32, u32)) -> Self {
        Self::new(Tag::Raw, start, len)
    }

    pub(crate) fn list((first, count): (u32, u32)) -> Self {
        Self::new(Tag::List, first, count)
    }

    pub(crate) fn map((first, count): (u32, u32)) -> Self {
        Self::new(Tag::Map, first, count)
    }

    pub(crate) fn tag(self) -> Tag {
        match self.meta >> 24 & 0x7f {
            0 => Tag::Null,
            1 => Tag::Bool,
            2 => Tag::Int,
            3 => Tag::Float,
            4 => Tag::Str,
            5 => Tag::Raw,
            6 => Tag::List,
            _ => Tag::Map,
        }
    }

    pub(crate) fn is_null(self) -> bool {
        self.meta >> 24 & 0x7f == 0
    }

    #[must_use]
    pub(crate) fn in_field(self, position: usize) -> Self {
        let position = u32::try_from(position).unwrap_or(LABEL_MASK) & LABEL_MASK;
        Self {
            meta: self.meta & 0x7f00_0000 | position,
            key: 0,
            ..self
        }
    }

    #[must_use]
    pub(crate) fn in_key(self, (start, len): (u32, u32)) -> Self {
        Self {
            meta: self.meta & 0x7f00_0000 | NAMED << 24 | len & LABEL_MASK,
            key: start,
            ..self
        }
    }

    /// The value without its place.
    #[must_use]
    pub(crate) fn bare(self) -> Self {
        Self {
            meta: self.meta & 0x7f00_0000,
            key: 0,
            ..self
        }
    }

    /// The same place, another value.
    #[must_use]
    pub(crate) fn at_place_of(self, other: Self) -> Self {
        Self {
            meta: self.meta & 0x7f00_0000 | other.meta & 0x80ff_ffff,
            key: other.key,
            ..self
        }
    }

    pub(crate) fn is_named(self) -> bool {
        self.meta >> 24 & NAMED != 0
    }

    /// The position of a field; more than any position for a named child, so that siblings are in its order.
    pub(crate) fn label(self) -> u32 {
        self.meta & (NAMED << 24 | LABEL_MASK)
    }

    /// Position of the field this node is the value of.
    pub(crate) fn position(self) -> usize {
        (self.meta & LABEL_MASK) as usize
    }

    fn key_range(self) -> std::ops::Range<usize> {
        self.key as usize..self.key as usize + (self.meta & LABEL_MASK) as usize
    }

    pub(crate) fn key_slice(self) -> (u32, u32) {
        (self.key, self.meta & LABEL_MASK)
    }

    #[expect(clippy::cast_possible_wrap, reason = "the two halves of one number")]
    pub(crate) fn as_int(self) -> i64 {
        (u64::from(self.y) << 32 | u64::from(self.x)) as i64
    }

    pub(crate) fn as_float(self) -> f64 {
        f64::from_bits(u64::from(self.y) << 32 | u64::from(self.x))
    }

    pub(crate) fn as_bool(self) -> bool {
        self.x != 0
    }

    /// Place of text; first child and count of parents.
    pub(crate) fn span(self) -> (u32, u32) {
        (self.x, self.y)
    }

    pub(crate) fn range(self) -> std::ops::Range<usize> {
        self.x as usize..self.x as usize + self.y as usize
    }
}

/// An object over a schema.
#[derive(Debug, Clone)]
pub struct Tree {
    pub(crate) schema: Arc<Schema>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) text: String,
    pub(crate) root: Node,
    pub(crate) ty: TypeId,
    /// Number of children that fit from an index on, where a grown list has room behind it.
    pub(crate) rooms: BTreeMap<u32, u32>,
    pub(crate) bounds: Bounds,
}

impl Tree {
    /// The zero value of a type: what Go's `T{}` encodes to.
    pub fn new(schema: &Arc<Schema>, ty: TypeId) -> Self {
        let mut tree = Self::empty(schema, ty, 0);
        tree.root = tree.zero(ty, 0);
        if tree.root.is_null() && matches!(schema.ty(ty).shape, Shape::Any | Shape::Struct | Shape::Map) {
            tree.root = Node::map((0, 0));
        }
        tree
    }

    /// A tree whose root is still to be made, with room for so many nodes.
    pub(crate) fn empty(schema: &Arc<Schema>, ty: TypeId, nodes: usize) -> Self {
        Self {
            schema: Arc::clone(schema),
            nodes: Vec::with_capacity(nodes.min(MAX_NODES)),
            text: String::new(),
            root: Node::NULL,
            ty,
            rooms: BTreeMap::new(),
            bounds: Bounds::default(),
        }
    }

    /// A tree of free-form JSON, which has no schema to speak of.
    pub fn untyped() -> Self {
        Self::new(&untyped_schema(), TypeId::ANY)
    }

    /// Some number in it is none of the whole ones.
    pub(crate) fn has_floats(&self) -> bool {
        self.nodes.iter().any(|node| node.tag() == Tag::Float) || self.root.tag() == Tag::Float
    }

    /// Nodes in the arena, dead ones included.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes the tree holds.
    pub fn size(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.text.capacity() + size_of::<Self>()
    }

    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The type of the root.
    pub fn ty(&self) -> TypeId {
        self.ty
    }

    pub fn root(&self) -> Ref<'_> {
        Ref {
            tree: self,
            node: self.root,
            ty: self.ty,
        }
    }

    pub fn root_mut(&mut self) -> Mut<'_> {
        let ty = self.ty;
        Mut::root(self, ty)
    }

    /// The value of a JSON member of the root, for the common `tree.get("spec")`.
    pub fn get(&self, name: &str) -> Option<Ref<'_>> {
        self.root().get(name)
    }

    /// The value at a path of member names.
    pub fn at(&self, path: &[&str]) -> Option<Ref<'_>> {
        self.root().at(path)
    }

    /// The string at a path, empty when there is none.
    pub fn str_at(&self, path: &[&str]) -> &str {
        self.at(path).and_then(Ref::as_str).unwrap_or_default()
    }

    pub(crate) fn children(&self, node: Node) -> &[Node] {
        match node.tag() {
            Tag::List | Tag::Map => &self.nodes[node.range()],
            _ => &[],
        }
    }

    pub(crate) fn text_of(&self, node: Node) -> &str {
        match node.tag() {
            Tag::Str | Tag::Raw => &self.text[node.range()],
            _ => "",
        }
    }

    /// The key of a named child.
    pub(crate) fn key_of(&self, node: Node) -> &str {
        &self.text[node.key_range()]
    }

    /// The JSON member name of a child of a map or struct.
    pub(crate) fn name_of(&self, parent: TypeId, child: Node) -> &str {
        if child.is_named() {
            return self.key_of(child);
        }
        self.schema
            .field_at(parent, child.position())
            .map_or("", |field| self.schema.text(field.name))
    }

    /// The type of a child of a value of type `parent`.
    pub(crate) fn type_of_child(&self, parent: TypeId, child: Node) -> TypeId {
        child_type(&self.schema, parent, child)
    }

    pub(crate) fn push_text(&mut self, text: &str) -> (u32, u32) {
        if !self.fits_text(text.len()) {
            return (0, 0);
        }
        let start = self.text.len();
        self.text.push_str(text);
        (narrow(start), narrow(text.len()))
    }

    pub(crate) fn push_children(&mut self, children: &[Node]) -> (u32, u32) {
        if !self.fits_nodes(children.len()) {
            return (0, 0);
        }
        let first = self.nodes.len();
        self.nodes.extend_from_slice(children);
        (narrow(first), narrow(children.len()))
    }

    /// Go's encoding of an unset value of this type, inside of `depth` lists and maps; null where Go has nil.
    pub(crate) fn zero(&mut self, ty: TypeId, depth: usize) -> Node {
        let schema = Arc::clone(&self.schema);
        self.zero_in(&schema, ty, depth)
    }

    fn zero_in(&mut self, schema: &Schema, id: TypeId, depth: usize) -> Node {
        let ty = schema.ty(id);
        match ty.shape {
            Shape::Bool => Node::bool(false),
            Shape::Int32 | Shape::Int64 | Shape::Uint32 | Shape::Uint64 | Shape::IntOrString => Node::int(0),
            Shape::Float => Node::float(0.0),
            Shape::Str => Node::str((0, 0)),
            Shape::Quantity => Node::str(self.push_text("0")),
            Shape::Duration => Node::str(self.push_text("0s")),
            Shape::SchemaOrBool => Node::bool(false),
            Shape::Struct if !self.may_nest(depth) => Node::NULL,
            Shape::Struct => {
                let always = schema.always(ty);
                let mut children = Vec::with_capacity(always.len());
                for position in always {
                    children.push(self.zero_field(schema, id, usize::from(*position), depth + 1));
                }
                Node::map(self.push_children(&children))
            }
            Shape::Any
            | Shape::Bytes
            | Shape::List
            | Shape::Map
            | Shape::Time
            | Shape::MicroTime
            | Shape::Raw
            | Shape::SchemaOrArray
            | Shape::SchemaOrStrings => Node::NULL,
        }
    }

    /// The node of a field that is written although it is unset.
    pub(crate) fn zero_field(
        &mut self,
        schema: &Schema,
        parent: TypeId,
        position: usize,
        depth: usize,
    ) -> Node {
        let Some(field) = schema.field_at(parent, position) else {
            return Node::NULL;
        };
        let value = if field.pointer {
            Node::NULL
        } else {
            self.zero_in(schema, field.ty, depth)
        };
        value.in_field(position)
    }
}

/// The type of a child by its parent's (effective) type.
pub(crate) fn child_type(schema: &Schema, parent: TypeId, child: Node) -> TypeId {
    let ty = schema.ty(parent);
    let own = match ty.shape {
        Shape::Struct if !child.is_named() => schema
            .field_at(parent, child.position())
            .map_or(TypeId::ANY, |field| field.ty),
        Shape::Struct | Shape::List | Shape::Map | Shape::SchemaOrArray => ty.item,
        _ => TypeId::ANY,
    };
    effective(schema, own, child.tag())
}

/// Effective type of a value: of the `SchemaOr…` shapes a map is the schema itself.
pub(crate) fn effective(schema: &Schema, id: TypeId, tag: Tag) -> TypeId {
    if tag != Tag::Map {
        return id;
    }
    let ty = schema.ty(id);
    match ty.shape {
        Shape::SchemaOrBool | Shape::SchemaOrArray | Shape::SchemaOrStrings => ty.item,
        _ => id,
    }
}

/// The schema with nothing but free-form JSON.
pub(crate) fn untyped_schema() -> Arc<Schema> {
    static UNTYPED: std::sync::OnceLock<Arc<Schema>> = std::sync::OnceLock::new();
    let made = UNTYPED.get_or_init(|| {
        Arc::new(
            crate::SchemaBuilder::new()
                .finish()
                .expect("a schema without structs has nothing undefined"),
        )
    });
    Arc::clone(made)
}

/// A position or length in a tree: both arenas are bounded far below four gigabytes.
pub(crate) fn narrow(length: usize) -> u32 {
    const { assert!(MAX_TEXT < u32::MAX as usize) };
    const { assert!(MAX_NODES < u32::MAX as usize) };
    u32::try_from(length).expect("arenas are bounded by MAX_TEXT and MAX_NODES")
}
