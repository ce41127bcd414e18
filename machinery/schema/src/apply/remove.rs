//! A document without some of its fields.

use super::Typed;
use super::rules::{ListForm, SchemaPosition};
use super::set::{Element, FieldSet};
use crate::json::{encode_node, write_string};
use crate::table::Schema;
use crate::tree::Ref;

/// The rest of the document, as JSON.
pub(super) fn remove(typed: Typed<'_>, fields: &FieldSet) -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    value(
        typed.schema,
        &mut out,
        typed.document.root(),
        fields,
        SchemaPosition::root(typed.ty),
    );
    out
}

fn value(schema: &Schema, out: &mut Vec<u8>, own: Ref<'_>, fields: &FieldSet, place: SchemaPosition<'_>) {
    match place.form(schema, own) {
        ListForm::Leaf => encode_node(own, out),
        ListForm::List => {
            out.push(b'[');
            for item in own.items() {
                let element = place.element(schema, item).ok();
                if element.as_ref().is_some_and(|element| fields.has(element)) {
                    continue;
                }
                let below = element.as_ref().and_then(|element| fields.below(element));
                inner(schema, out, item, below, place.item(schema));
                out.push(b',');
            }
            close(out, b']');
        }
        ListForm::Map => {
            out.push(b'{');
            for (name, member) in own.entries() {
                let element = Element::Field(name.to_owned());
                if fields.has(&element) {
                    continue;
                }
                write_string(out, name);
                out.push(b':');
                inner(
                    schema,
                    out,
                    member,
                    fields.below(&element),
                    place.member(schema, name).0,
                );
                out.push(b',');
            }
            close(out, b'}');
        }
    }
}

fn inner(
    schema: &Schema,
    out: &mut Vec<u8>,
    own: Ref<'_>,
    below: Option<&FieldSet>,
    place: SchemaPosition<'_>,
) {
    match below {
        Some(fields) => value(schema, out, own, fields, place),
        None => encode_node(own, out),
    }
}

/// The comma after the last part becomes the closing bracket.
fn close(out: &mut Vec<u8>, bracket: u8) {
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(bracket);
}
