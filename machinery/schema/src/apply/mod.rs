//! Server-side apply: owners of fields, and what a configuration changes.
//!
//! Objects and configurations come as free-form documents; how a value merges (as a whole, member by member, by
//! the keys of its items) is read from the schema ([`rules`]). [`FieldSet`] is a set of paths with upstream's
//! `FieldsV1` as its text. [`Typed`] is a document with its schema and can say which fields it has, how it differs
//! from another one, merge with a configuration, and lose fields.
//!
//! Nothing here knows managers or times: that is `apiserver-registry`'s `managed_fields`.

mod atomics;
mod check;
mod compare;
mod edit;
mod fields_v1;
mod initial_fields;
mod literal;
mod members;
mod merge;
mod remove;
mod rules;
mod set;
mod steps;
#[cfg(test)]
mod tests;

pub use compare::Comparison;
pub use edit::edited;
pub use fields_v1::Unreadable;
pub use initial_fields::UnownedMembers;
pub use literal::Literal;
pub use set::{Element, FieldSet, ShownBytes};
pub use steps::Steps;

use crate::json::{DecodeError, Strictness, decode_json};
use crate::table::{Schema, TypeId};
use crate::tree::{Ref, Tree, untyped_schema};
use rules::{ListForm, SchemaPosition};
use std::collections::BTreeSet;

/// A free-form document and what the schema says of it.
#[derive(Debug, Clone, Copy)]
pub struct Typed<'a> {
    pub schema: &'a Schema,
    pub ty: TypeId,
    pub document: &'a Tree,
}

impl<'a> Typed<'a> {
    /// The same type, another document.
    #[must_use]
    pub fn with<'b>(self, document: &'b Tree) -> Typed<'b>
    where
        'a: 'b,
    {
        Typed {
            schema: self.schema,
            ty: self.ty,
            document,
        }
    }

    /// The fields the document has.
    pub fn fields(self) -> FieldSet {
        fields(self.schema, self.document.root(), SchemaPosition::root(self.ty)).1
    }

    /// The fields that a new object has beyond this document, which says nothing, as `FieldsV1`; `None` where it has none.
    pub fn initial_fields(self, object: &Tree, unowned: UnownedMembers<'_>) -> Option<String> {
        initial_fields::initial_fields(
            self.schema,
            SchemaPosition::root(self.ty),
            self.document,
            object,
            unowned,
        )
    }

    /// Violations of the schema, in upstream's words; empty if the document is valid.
    pub fn problems(self) -> Vec<String> {
        check::problems(self)
    }

    /// Paths of lists, maps and structs of the document that merge as a whole.
    pub fn atomics(self) -> Vec<String> {
        atomics::atomics(self)
    }

    /// Differences of the other document, without the record of owners and these members of the root with all below
    /// them.
    pub fn compare_without(self, other: &Tree, members: &[&str]) -> Comparison {
        compare::compare(self, other, members)
    }

    /// Differences of the other document, without the record of owners.
    pub fn compare(self, other: &Tree) -> Comparison {
        self.compare_without(other, &[])
    }

    /// The document with what a configuration says.
    ///
    /// # Errors
    /// The document would be larger than any may be.
    pub fn merge(self, configuration: &Tree) -> Result<Tree, DecodeError> {
        let json = merge::merge(self, configuration);
        read_back(&json)
    }

    /// The document without these fields.
    ///
    /// # Errors
    /// None that a document can cause that was decoded.
    pub fn remove(self, fields: &FieldSet) -> Result<Tree, DecodeError> {
        let json = remove::remove(self, fields);
        read_back(&json)
    }

    /// The set with the named fields that lead to its fields: a part of an object is there for what it holds.
    pub fn with_named_parents(self, fields: &FieldSet) -> FieldSet {
        rules::with_named_parents(self.schema, SchemaPosition::root(self.ty), fields)
    }
}

/// Reads JSON that this module itself has written.
fn read_back(json: &[u8]) -> Result<Tree, DecodeError> {
    let decoded = decode_json(&untyped_schema(), TypeId::ANY, json, Strictness::Ignore)?;
    Ok(decoded.tree)
}

/// Returns true if the value is a field itself, and the fields below it.
fn fields(schema: &Schema, value: Ref<'_>, place: SchemaPosition<'_>) -> (bool, FieldSet) {
    let mut below = FieldSet::default();
    match place.form(schema, value) {
        ListForm::Leaf => return (true, below),
        ListForm::List => {
            let mut seen = BTreeSet::new();
            for item in value.items() {
                let Ok(element) = place.element(schema, item) else {
                    continue;
                };
                // Of items that cannot be distinguished only the element is a field.
                let inner = if seen.insert(element.clone()) {
                    fields(schema, item, place.item(schema)).1
                } else {
                    FieldSet::default()
                };
                below.put(element, true, inner);
            }
        }
        ListForm::Map => {
            for (name, member) in value.entries() {
                let (child, named) = place.member(schema, name);
                let (leaf, inner) = fields(schema, member, child);
                let empty = member.is_null() || (member.kind() == crate::Kind::Map && member.is_empty());
                below.put(Element::Field(name.to_owned()), leaf || empty || !named, inner);
            }
        }
    }
    (false, below)
}
