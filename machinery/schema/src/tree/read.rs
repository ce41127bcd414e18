//! Reading a tree: [`Ref`] is a cursor that can be copied.

use super::{Node, Tag, Tree, effective};
use crate::table::{Field, Schema, Shape, TypeId};

/// Kind of a value in JSON's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Null,
    Bool,
    Int,
    Float,
    String,
    List,
    /// Objects, whether maps or structs.
    Map,
    /// Opaque JSON text: `RawExtension`, `FieldsV1`, apiextensions' `JSON`.
    Raw,
}

/// A value in a tree.
#[derive(Clone, Copy)]
pub struct Ref<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) node: Node,
    pub(crate) ty: TypeId,
}

impl std::fmt::Debug for Ref<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_json())
    }
}

/// As JSON, which is written only where a problem is reported.
impl machinery_meta::field::FieldValue for Ref<'_> {
    fn shown(&self) -> String {
        self.to_json()
    }
}

impl<'a> Ref<'a> {
    pub fn kind(self) -> Kind {
        match self.node.tag() {
            Tag::Null => Kind::Null,
            Tag::Bool => Kind::Bool,
            Tag::Int => Kind::Int,
            Tag::Float => Kind::Float,
            Tag::Str => Kind::String,
            Tag::Raw => Kind::Raw,
            Tag::List => Kind::List,
            Tag::Map => Kind::Map,
        }
    }

    /// The type the schema gives this value.
    pub fn ty(self) -> TypeId {
        self.ty
    }

    pub fn shape(self) -> Shape {
        self.schema().ty(self.ty).shape
    }

    pub fn schema(self) -> &'a Schema {
        &self.tree.schema
    }

    /// Reports whether Go has a pointer for a member, so that an empty value is another than none.
    pub fn is_pointer(self, name: &str) -> bool {
        let field = self.schema().field(self.ty, name);
        field.is_some_and(|(_, field)| field.pointer)
    }

    /// A member of a map or struct by its JSON name. A field that the normal form leaves out is `None`.
    pub fn get(self, name: &str) -> Option<Self> {
        let children = self.member_nodes();
        let (first, schema) = (children.first()?, self.schema());
        // Fields stand before named members.
        match schema.field(self.ty, name) {
            Some((position, field)) if !first.is_named() => {
                let node = children[find_field(children, position)?];
                Some(Ref {
                    tree: self.tree,
                    node,
                    ty: effective(schema, field.ty, node.tag()),
                })
            }
            Some(_) => None,
            None => {
                let found = find_named(self.tree, children, name)?;
                Some(self.child(children[found]))
            }
        }
    }

    /// Several members deep.
    pub fn at(self, path: &[&str]) -> Option<Self> {
        path.iter().try_fold(self, |at, name| at.get(name))
    }

    /// The string at a path, empty when there is none.
    pub fn str_at(self, path: &[&str]) -> &'a str {
        self.at(path).and_then(Ref::as_str).unwrap_or_default()
    }

    /// Text of a string member, empty when there is none.
    pub fn str(self, name: &str) -> &'a str {
        self.get(name).and_then(Ref::as_str).unwrap_or_default()
    }

    pub fn is_null(self) -> bool {
        self.node.is_null()
    }

    pub fn as_str(self) -> Option<&'a str> {
        (self.node.tag() == Tag::Str).then(|| self.tree.text_of(self.node))
    }

    pub fn as_i64(self) -> Option<i64> {
        (self.node.tag() == Tag::Int).then(|| self.node.as_int())
    }

    pub fn as_bool(self) -> Option<bool> {
        (self.node.tag() == Tag::Bool).then(|| self.node.as_bool())
    }

    /// Any number.
    #[expect(
        clippy::cast_precision_loss,
        reason = "JSON has one kind of number; this reads it as a float"
    )]
    pub fn as_f64(self) -> Option<f64> {
        match self.node.tag() {
            Tag::Float => Some(self.node.as_float()),
            Tag::Int => Some(self.node.as_int() as f64),
            _ => None,
        }
    }

    /// The JSON text of an opaque value.
    pub fn as_raw(self) -> Option<&'a str> {
        (self.node.tag() == Tag::Raw).then(|| self.tree.text_of(self.node))
    }

    /// Items of a list, or members of a map.
    pub fn len(self) -> usize {
        self.tree.children(self.node).len()
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The items of a list; none of anything else.
    pub fn items(self) -> impl DoubleEndedIterator<Item = Ref<'a>> + ExactSizeIterator {
        let items = if self.node.tag() == Tag::List {
            self.tree.children(self.node)
        } else {
            &[]
        };
        items.iter().map(move |child| self.child(*child))
    }

    /// One item of a list.
    pub fn item(self, index: usize) -> Option<Self> {
        if self.node.tag() != Tag::List {
            return None;
        }
        self.tree
            .children(self.node)
            .get(index)
            .map(|child| self.child(*child))
    }

    /// The items of a list member; none when there is no such list.
    pub fn list(self, name: &str) -> impl DoubleEndedIterator<Item = Ref<'a>> + ExactSizeIterator {
        let nothing = Ref {
            tree: self.tree,
            node: Node::NULL,
            ty: TypeId::ANY,
        };
        self.get(name).unwrap_or(nothing).items()
    }

    /// Name and value of each member, in the order they are written; none of anything else.
    pub fn entries(self) -> impl DoubleEndedIterator<Item = (&'a str, Ref<'a>)> + ExactSizeIterator {
        self.member_nodes()
            .iter()
            .map(move |child| (self.tree.name_of(self.ty, *child), self.child(*child)))
    }

    /// This value as compact JSON.
    pub fn to_json(self) -> String {
        let mut out = Vec::new();
        crate::json::encode_node(self, &mut out);
        String::from_utf8(out).unwrap_or_default()
    }

    /// This value as free-form JSON, opaque text opened.
    pub(crate) fn opened(self) -> Tree {
        let mut free = Tree::untyped();
        free.root = free.copy(self, TypeId::ANY, 0);
        free
    }

    /// This value as a tree of its own.
    pub fn to_tree(self) -> Tree {
        let mut tree = Tree::empty(&self.tree.schema, self.ty, 0);
        tree.root = tree.copy(self, self.ty, 0);
        tree
    }

    /// The members of a map or struct, fields before others and each in its order; none of anything else.
    pub(crate) fn member_nodes(self) -> &'a [Node] {
        if self.node.tag() == Tag::Map {
            self.tree.children(self.node)
        } else {
            &[]
        }
    }

    /// The child that is the value of a field of this type.
    pub(crate) fn child_of(self, node: Node, field: &Field) -> Self {
        Ref {
            tree: self.tree,
            node,
            ty: effective(self.schema(), field.ty, node.tag()),
        }
    }

    pub(crate) fn child(self, node: Node) -> Self {
        Ref {
            tree: self.tree,
            node,
            ty: self.tree.type_of_child(self.ty, node),
        }
    }
}

/// Index of a member among the children of a map or struct.
pub(crate) fn find(tree: &Tree, parent: TypeId, children: &[Node], name: &str) -> Option<usize> {
    let first = children.first()?;
    match tree.schema.field(parent, name) {
        Some((position, _)) if !first.is_named() => find_field(children, position),
        Some(_) => None,
        None => find_named(tree, children, name),
    }
}

/// Index, among the children of a map or struct, of a member that is no field.
fn find_named(tree: &Tree, children: &[Node], name: &str) -> Option<usize> {
    // Fields stand before named members, which are sorted.
    if !children.last()?.is_named() {
        return None;
    }
    let at = children.partition_point(|child| !child.is_named() || tree.key_of(*child) < name);
    (tree.key_of(*children.get(at)?) == name).then_some(at)
}

/// Index of a field among the children of a struct.
pub(crate) fn find_field(children: &[Node], position: usize) -> Option<usize> {
    let position = u32::try_from(position).ok()?;
    // They are sorted; most structs have few.
    let at = if children.len() <= 32 {
        children.iter().position(|child| child.label() >= position)?
    } else {
        children.partition_point(|child| child.label() < position)
    };
    (children.get(at)?.label() == position).then_some(at)
}
