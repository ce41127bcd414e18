//! Trees to protobuf.

use super::wire::{write_bytes, write_double, write_message, write_number, write_tag, write_varint};
use crate::leaf;
use crate::table::{Schema, Shape};
use crate::tree::{Kind, Ref, Tag, Tree};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// An object in its envelope; kind and version are the tree's own.
pub fn encode_protobuf(tree: &Tree) -> Vec<u8> {
    let mut raw = Vec::with_capacity(tree.size() / 2);
    encode_message(tree.root(), &mut raw);
    let root = tree.root();
    super::close_envelope(root.str("apiVersion"), root.str("kind"), &raw)
}

/// Appends the message of one struct value, without envelope.
pub fn encode_message(value: Ref<'_>, out: &mut Vec<u8>) {
    group(value, 0, out);
}

/// The fields of one level: those of the struct itself (0), or of an inlined one, which is a message here.
fn group(value: Ref<'_>, level: u8, out: &mut Vec<u8>) {
    let schema: &Schema = value.schema();
    for child in value.tree.children(value.node) {
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
    for (at, inner) in schema.groups(schema.ty(value.ty)).iter().enumerate() {
        if inner.parent == level {
            let own = u8::try_from(at + 1).unwrap_or(u8::MAX);
            write_message(out, inner.number, |out| group(value, own, out));
        }
    }
}

/// One field; `declared` is the field's type, which says which of a `SchemaOr…`'s forms this is.
fn write_value(value: Ref<'_>, declared: crate::TypeId, number: u16, out: &mut Vec<u8>) {
    let ty = value.schema().ty(declared);
    match ty.shape {
        Shape::List if ty.wrapped => write_message(out, number, |out| write_items(value, 1, out)),
        Shape::List => write_items(value, number, out),
        Shape::Map => {
            for (key, item) in value.entries() {
                write_message(out, number, |out| {
                    write_bytes(out, 1, key.as_bytes());
                    write_value(item, ty.item, 2, out);
                });
            }
        }
        Shape::Struct => write_message(out, number, |out| group(value, 0, out)),
        Shape::SchemaOrBool | Shape::SchemaOrArray | Shape::SchemaOrStrings => {
            write_message(out, number, |out| schema_or(value, ty.shape, ty.item, out));
        }
        shape => write_leaf(value, shape, number, out),
    }
}

fn write_items(list: Ref<'_>, number: u16, out: &mut Vec<u8>) {
    let item_type = list.schema().ty(list.ty).item;
    for item in list.items() {
        write_value(item, item_type, number, out);
    }
}

fn schema_or(value: Ref<'_>, shape: Shape, schema: crate::TypeId, out: &mut Vec<u8>) {
    match (shape, value.kind()) {
        (Shape::SchemaOrBool, Kind::Bool) => write_number(out, 1, i64::from(value.as_bool() == Some(true))),
        (Shape::SchemaOrBool, _) => {
            write_number(out, 1, 1);
            write_value(value, schema, 2, out);
        }
        (Shape::SchemaOrArray, Kind::List) => {
            for item in value.items() {
                write_value(item, schema, 2, out);
            }
        }
        (_, Kind::List) => {
            for item in value.items() {
                write_bytes(out, 2, item.as_str().unwrap_or_default().as_bytes());
            }
        }
        _ => write_value(value, schema, 1, out),
    }
}

fn write_leaf(value: Ref<'_>, shape: Shape, number: u16, out: &mut Vec<u8>) {
    let text = value.as_str().unwrap_or_default();
    match (shape, value.node.tag()) {
        (Shape::IntOrString, Tag::Str) => write_message(out, number, |out| {
            write_number(out, 1, 1);
            write_number(out, 2, 0);
            write_bytes(out, 3, text.as_bytes());
        }),
        (Shape::IntOrString, _) => write_message(out, number, |out| {
            write_number(out, 1, 0);
            write_number(out, 2, value.as_i64().unwrap_or(0));
            write_bytes(out, 3, b"");
        }),
        (Shape::Quantity, _) => write_message(out, number, |out| write_bytes(out, 1, text.as_bytes())),
        (Shape::Time | Shape::MicroTime, _) => write_message(out, number, |out| {
            let (seconds, nanos) = leaf::parse_rfc3339(text).unwrap_or_default();
            write_number(out, 1, seconds);
            write_number(out, 2, i64::from(nanos));
        }),
        (Shape::Duration, _) => {
            write_message(out, number, |out| {
                write_number(out, 1, leaf::parse_duration(text).unwrap_or(0))
            });
        }
        (Shape::Bytes, _) => write_bytes(out, number, &STANDARD.decode(text).unwrap_or_default()),
        (_, Tag::Raw) => {
            write_message(out, number, |out| {
                write_bytes(out, 1, value.as_raw().unwrap_or_default().as_bytes())
            });
        }
        (_, Tag::Str) => write_bytes(out, number, text.as_bytes()),
        (_, Tag::Bool) => {
            write_tag(out, number, 0);
            write_varint(out, u64::from(value.node.as_bool()));
        }
        (Shape::Float, _) => {
            write_double(out, number, value.as_f64().unwrap_or(0.0));
        }
        (_, Tag::Int) => write_number(out, number, value.node.as_int()),
        _ => {}
    }
}
