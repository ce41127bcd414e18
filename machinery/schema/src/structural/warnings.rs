//! Parts of schemas that are allowed and have no effect, or not all that they seem to have.

use super::{MAX_SCHEMA_DEPTH, format};
use crate::tree::{Kind, Ref};
use std::collections::BTreeSet;

/// Most formats that are named.
const MAX_FORMATS: usize = 64;

/// Warnings of the schemas of a definition's versions, each once: formats that are not known, then sets that are not of scalars.
pub fn schema_warnings(schemas: &[Ref<'_>]) -> Vec<String> {
    let mut found = Found::default();
    for schema in schemas {
        found.look_at(*schema, 0);
    }
    let formats = found
        .formats
        .into_iter()
        .map(|own| format!("unrecognized format {own:?}"));
    let sets = found.sets.into_iter().map(|ty| {
        format!("x-kubernetes-list-type: set for items of type {ty:?} is not supported by server-side apply or CEL validation rules")
    });
    formats.chain(sets).collect()
}

#[derive(Default)]
struct Found<'a> {
    formats: Vec<&'a str>,
    sets: BTreeSet<&'a str>,
}

impl<'a> Found<'a> {
    fn look_at(&mut self, schema: Ref<'a>, depth: usize) {
        if depth > MAX_SCHEMA_DEPTH {
            return;
        }
        let named = schema.str("format");
        let unknown = !named.is_empty() && format::of_type(schema.str("type"), named).is_empty();
        if unknown && self.formats.len() < MAX_FORMATS && !self.formats.contains(&named) {
            self.formats.push(named);
        }
        if let Some(items) = schema.get("items").filter(|own| own.kind() == Kind::Map) {
            let ty = items.str("type");
            if schema.str("x-kubernetes-list-type") == "set" && matches!(ty, "object" | "array") {
                self.sets.insert(ty);
            }
        }
        for name in ["items", "not", "additionalProperties"] {
            if let Some(own) = schema.get(name).filter(|own| own.kind() == Kind::Map) {
                self.look_at(own, depth + 1);
            }
        }
        for name in ["allOf", "anyOf", "oneOf"] {
            schema.list(name).for_each(|own| self.look_at(own, depth + 1));
        }
        for (_, own) in schema.get("properties").into_iter().flat_map(Ref::entries) {
            self.look_at(own, depth + 1);
        }
    }
}
