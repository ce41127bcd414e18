//! Structural schemas of custom resources, compiled into the table's form.
//!
//! [`check_structural`] says in upstream's words why a schema is not structural, [`check_openapi`] what else it
//! may not say. [`compile`] makes a [`Schema`]
//! of one that is: its objects, lists and leaves become types the engines run on (decoding prunes and reports
//! unknown fields, `apply_defaults` fills in), and what else it asks of values becomes [`Constraints`] beside
//! the types, which [`validate`] checks. [`check_defaults`] asks the same of the schema's own defaults. Rules in CEL are kept for the evaluator (`machinery-cel`).

mod bounds;
mod check;
mod compile;
mod defaults;
mod embedded;
mod format;
mod lists;
mod openapi;
mod pattern;
mod problems;
#[cfg(test)]
mod tests;
mod validate;
mod warnings;

pub use check::check_structural;
pub use compile::{CompiledSchema, compile};
pub use defaults::check_defaults;
pub use embedded::{MetadataProblems, validate_embedded};
pub use format::is_valid as is_valid_format;
pub use openapi::{check_openapi, names_other_schema};
pub use pattern::{MAX_PATTERN_BYTES, Pattern, Patterns, Search};
pub use validate::validate;
pub use warnings::schema_warnings;

use crate::Tree;
use crate::table::{ListType, MapType, Schema, TypeId};

/// Constraints of a custom kind's schema on a value beyond its shape, also below `allOf`, `anyOf`, `oneOf` and `not`.
#[derive(Debug, Default)]
pub struct Constraints {
    /// Allowed types; none means any. Two for int-or-string.
    pub types: Vec<&'static str>,
    pub nullable: bool,
    pub format: String,
    pub max_length: Option<i64>,
    pub min_length: Option<i64>,
    pub pattern: Option<Pattern>,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub multiple_of: Option<f64>,
    pub max_items: Option<i64>,
    pub min_items: Option<i64>,
    pub max_properties: Option<i64>,
    pub min_properties: Option<i64>,
    pub required: Vec<String>,
    pub enum_values: Vec<Tree>,
    pub list_type: ListType,
    pub list_map_keys: Vec<String>,
    pub map_type: MapType,
    pub all_of: Vec<Self>,
    pub any_of: Vec<Self>,
    pub one_of: Vec<Self>,
    pub not: Option<Box<Self>>,
    /// Constraints of members and items in nested value validations, and in `metadata`.
    pub properties: Vec<(String, Self)>,
    pub items: Option<Box<Self>>,
    /// `x-kubernetes-validations`, for the CEL engine.
    pub validations: Vec<ValidationRule>,
}

/// One of `x-kubernetes-validations`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValidationRule {
    pub rule: String,
    pub message: String,
    pub message_expression: String,
    pub reason: String,
    pub field_path: String,
    pub optional_old_self: bool,
}

impl Schema {
    /// Constraints of a custom kind on values of a type.
    pub fn constraints(&self, id: TypeId) -> Option<&Constraints> {
        self.constraints.get(self.ty(id).constraints? as usize)
    }
}

/// Schemas nest at most this deep.
pub const MAX_SCHEMA_DEPTH: usize = 64;
/// A schema has at most this many types.
pub const MAX_SCHEMA_TYPES: usize = 20_000;
