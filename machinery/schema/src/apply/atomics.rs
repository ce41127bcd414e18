//! Values that merge as a whole, in a configuration of an admission policy: what it does not say of them would go.

use super::Typed;
use super::rules::SchemaPosition;
use crate::table::Schema;
use crate::tree::{Kind, Ref};
use std::fmt::Write as _;

/// Paths of atomic lists, maps and structs that the document sets.
pub(super) fn atomics(own: Typed<'_>) -> Vec<String> {
    let mut found = Vec::new();
    visit(
        own.schema,
        own.document.root(),
        SchemaPosition::root(own.ty),
        &mut String::new(),
        &mut found,
    );
    found
}

fn visit(
    schema: &Schema,
    value: Ref<'_>,
    place: SchemaPosition<'_>,
    path: &mut String,
    found: &mut Vec<String>,
) {
    if place.is_atomic(schema, value) {
        found.push(path.clone());
    }
    let length = path.len();
    match value.kind() {
        Kind::Map => {
            for (name, member) in value.entries() {
                let (below, is_named) = place.member(schema, name);
                if is_named {
                    let _ = write!(path, ".{name}");
                    visit(schema, member, below, path, found);
                    path.truncate(length);
                }
            }
        }
        Kind::List => {
            for (index, item) in value.items().enumerate() {
                let _ = write!(path, "[{index}]");
                visit(schema, item, place.item(schema), path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}
