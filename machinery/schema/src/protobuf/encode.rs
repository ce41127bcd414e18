//! Trees to protobuf: from the last field to the first, see [`ReverseBuffer`].

use super::reverse_buffer::ReverseBuffer;
use crate::leaf;
use crate::table::{Schema, Shape};
use crate::tree::{Kind, Ref, Tag, Tree};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// An object in its envelope; kind and version are the tree's own.
pub fn encode_protobuf(tree: &Tree) -> Vec<u8> {
    let mut message = ReverseBuffer::with_capacity(tree.text.len());
    group(tree.root(), 0, &mut message);
    let root = tree.root();
    super::close_envelope(root.str("apiVersion"), root.str("kind"), message.written())
}

/// Appends the message of one struct value, without envelope.
pub fn encode_message(value: Ref<'_>, out: &mut Vec<u8>) {
    let mut message = ReverseBuffer::with_capacity(1024);
    group(value, 0, &mut message);
    out.extend_from_slice(message.written());
}

/// The fields of one level: those of the struct itself (0), or of an inlined one, which is a message here.
fn group(value: Ref<'_>, level: u8, out: &mut ReverseBuffer) {
    let schema: &Schema = value.schema();
    for (at, inner) in schema.groups(schema.ty(value.ty)).iter().enumerate().rev() {
        if inner.parent == level {
            let own = u8::try_from(at + 1).unwrap_or(u8::MAX);
            out.field_message(inner.number, |out| group(value, own, out));
        }
    }
    for child in value.tree.children(value.node).iter().rev() {
        if child.is_named() {
            continue;
        }
        let Some(field) = schema.field_at(value.ty, child.position()) else {
            continue;
        };
        if field.group == level && field.number != 0 && !child.is_null() {
            write_value(value.child(*child), field.ty, field.number, out);
        }
    }
}

/// One field; `declared` is the field's type, which says which of a `SchemaOr…`'s forms this is.
fn write_value(value: Ref<'_>, declared: crate::TypeId, number: u16, out: &mut ReverseBuffer) {
    let ty = value.schema().ty(declared);
    match ty.shape {
        Shape::List if ty.wrapped => out.field_message(number, |out| write_items(value, 1, out)),
        Shape::List => write_items(value, number, out),
        Shape::Map => {
            for (key, item) in value.entries().rev() {
                out.field_message(number, |out| {
                    write_value(item, ty.item, 2, out);
                    out.field_bytes(1, key.as_bytes());
                });
            }
        }
        Shape::Struct => out.field_message(number, |out| group(value, 0, out)),
        Shape::SchemaOrBool | Shape::SchemaOrArray | Shape::SchemaOrStrings => {
            out.field_message(number, |out| schema_or(value, ty.shape, ty.item, out));
        }
        shape => write_leaf(value, shape, number, out),
    }
}

fn write_items(list: Ref<'_>, number: u16, out: &mut ReverseBuffer) {
    let item_type = list.schema().ty(list.ty).item;
    for item in list.items().rev() {
        write_value(item, item_type, number, out);
    }
}

fn schema_or(value: Ref<'_>, shape: Shape, schema: crate::TypeId, out: &mut ReverseBuffer) {
    match (shape, value.kind()) {
        (Shape::SchemaOrBool, Kind::Bool) => out.field_number(1, i64::from(value.as_bool() == Some(true))),
        (Shape::SchemaOrBool, _) => {
            write_value(value, schema, 2, out);
            out.field_number(1, 1);
        }
        (Shape::SchemaOrArray, Kind::List) => {
            for item in value.items().rev() {
                write_value(item, schema, 2, out);
            }
        }
        (_, Kind::List) => {
            for item in value.items().rev() {
                out.field_bytes(2, item.as_str().unwrap_or_default().as_bytes());
            }
        }
        _ => write_value(value, schema, 1, out),
    }
}

fn write_leaf(value: Ref<'_>, shape: Shape, number: u16, out: &mut ReverseBuffer) {
    let text = value.as_str().unwrap_or_default();
    match (shape, value.node.tag()) {
        (Shape::IntOrString, Tag::Str) => out.field_message(number, |out| {
            out.field_bytes(3, text.as_bytes());
            out.field_number(2, 0);
            out.field_number(1, 1);
        }),
        (Shape::IntOrString, _) => out.field_message(number, |out| {
            out.field_bytes(3, b"");
            out.field_number(2, value.as_i64().unwrap_or(0));
            out.field_number(1, 0);
        }),
        (Shape::Quantity, _) => out.field_message(number, |out| out.field_bytes(1, text.as_bytes())),
        (Shape::Time | Shape::MicroTime, _) => out.field_message(number, |out| {
            let (seconds, nanos) = leaf::parse_rfc3339(text).unwrap_or_default();
            out.field_number(2, i64::from(nanos));
            out.field_number(1, seconds);
        }),
        (Shape::Duration, _) => {
            out.field_message(number, |out| {
                out.field_number(1, leaf::parse_duration(text).unwrap_or(0));
            });
        }
        (Shape::Bytes, _) => out.field_bytes(number, &STANDARD.decode(text).unwrap_or_default()),
        (_, Tag::Raw) => {
            out.field_message(number, |out| {
                out.field_bytes(1, value.as_raw().unwrap_or_default().as_bytes());
            });
        }
        (_, Tag::Str) => out.field_bytes(number, text.as_bytes()),
        (_, Tag::Bool) => out.field_number(number, i64::from(value.node.as_bool())),
        (Shape::Float, _) => out.field_double(number, value.as_f64().unwrap_or(0.0)),
        (_, Tag::Int) => out.field_number(number, value.node.as_int()),
        _ => {}
    }
}
