//! The normal form: which values Go's encoder leaves out, and which it writes although they are unset.

use crate::table::{Field, Shape, TypeId};
use crate::tree::{Node, Tag, Tree, effective};

/// Number of lists and maps around the fields of an object's metadata.
const METADATA_DEPTH: usize = 2;

/// A field's value as Go would write it back, or nothing where `omitempty` or `omitzero` leave it out; it stands inside of
/// `depth` lists and maps.
pub(crate) fn normal_field(tree: &mut Tree, field: &Field, value: Node, depth: usize) -> Option<Node> {
    let shape = tree.schema.ty(field.ty).shape;
    let may_go = field.omitempty || field.omitzero;
    if field.pointer {
        return (!value.is_null() || !may_go).then_some(value);
    }
    let value = if value.is_null() {
        tree.zero(field.ty, depth)
    } else {
        value
    };
    // In the metadata of an object an empty list of these says that the record of owners is to go.
    if shape == Shape::List
        && depth == METADATA_DEPTH
        && value.tag() == Tag::List
        && tree.schema.text(field.name) == "managedFields"
    {
        return Some(value);
    }
    if (field.omitempty && is_empty(shape, value)) || (field.omitzero && is_zero(tree, field.ty, value)) {
        return None;
    }
    // Storage knows no difference between an empty and an absent list or map.
    let nil = matches!(shape, Shape::List | Shape::Map) && value.span().1 == 0;
    Some(if nil { Node::NULL } else { value })
}

/// Go's `omitempty` leaves the value out. A Go struct is never empty.
fn is_empty(shape: Shape, value: Node) -> bool {
    match (shape, value.tag()) {
        (_, Tag::Null) => !shape.is_go_struct(),
        (Shape::Bool, Tag::Bool) => !value.as_bool(),
        (Shape::Int32 | Shape::Int64 | Shape::Uint32 | Shape::Uint64, Tag::Int) => value.as_int() == 0,
        (Shape::Float, Tag::Float) => value.as_float() == 0.0,
        (Shape::Str | Shape::Bytes, Tag::Str) => value.span().1 == 0,
        (Shape::List | Shape::Map, Tag::List | Tag::Map) => value.span().1 == 0,
        _ => false,
    }
}

/// The value is Go's zero value of its type.
pub(crate) fn is_zero(tree: &Tree, id: TypeId, value: Node) -> bool {
    let schema = &tree.schema;
    let id = effective(schema, id, value.tag());
    match schema.ty(id).shape {
        _ if value.is_null() => true,
        Shape::Struct => tree.children(value).iter().all(|child| {
            let field = (!child.is_named())
                .then(|| schema.field_at(id, child.position()))
                .flatten();
            field.is_some_and(|field| child.is_null() || (!field.pointer && is_zero(tree, field.ty, *child)))
        }),
        Shape::Quantity => matches!(tree.text_of(value), "" | "0"),
        Shape::Duration => tree.text_of(value) == "0s",
        Shape::IntOrString => value.tag() == Tag::Int && value.as_int() == 0,
        Shape::List | Shape::Map | Shape::Any => false,
        shape => is_empty(shape, value),
    }
}
