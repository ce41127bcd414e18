//! The object tree, the table's form and the engines that run on it.
//!
//! Inside the server an object is one [`Tree`] over a [`Type`] of a [`Schema`]. Built-in kinds take their
//! types from the generated table of `machinery-api`, custom kinds from their CRD's structural schema;
//! nothing below distinguishes the two except where upstream itself does.
//!
//! A request body's way: [`decode_json`] parses, matches fields, reports unknown and duplicate
//! ones by full path and leaves the *normal form* behind: what upstream's typed decoder and encoder would
//! make of the document. `apply_defaults` fills what the table says, patches change the tree, [`encode_json`]
//! or [`encode_split`] writes it. The normal form has one shape per value, so two trees are equal exactly
//! when the objects are.
//!
//! In reading order: [`table`] (types and fields), [`tree`] (reading and writing), [`json`] (text).
//!
//! Nothing here is async, reads a clock or opens a file, and every bound on outside bytes is a named constant.

mod additions;
pub mod apply;
mod defaults;
#[cfg(test)]
mod fuzz;
mod gates;
pub mod json;
pub mod leaf;
mod normal;
pub mod patch;
pub mod protobuf;
pub mod structural;
pub mod table;
#[cfg(test)]
mod testing;
pub mod tree;
pub mod yaml;

pub use additions::{AdditionError, Additions};
pub use defaults::apply_defaults;
pub use gates::DisabledFields;
pub use json::{
    DecodeError, Decoded, SplitObject, Strictness, decode_json, encode_json, encode_node, encode_split,
};
pub use patch::{
    PatchError, PatchType, apply_patch, json_patch, merge_patch, patched_document, strategic_merge_patch,
    to_untyped,
};
pub use protobuf::{decode_protobuf, encode_protobuf};
pub use table::{
    Extra, Field, FieldSpec, Group, ListType, MapType, Schema, SchemaBuilder, SchemaError, Shape, Text, Type,
    TypeId, Wire,
};
pub use tree::{Exceeded, Kind, Mut, Ref, Step, Tree, Value};
pub use yaml::{decode_yaml, without_nulls, yaml_to_json};

/// Deeper nesting than this is refused in every format.
pub const MAX_DEPTH: usize = 256;
