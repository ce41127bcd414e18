//! The defaults of a schema against the schema itself: each must be what an object may hold there.
//!
//! Upstream: `apiextensions-apiserver/pkg/apiserver/schema/defaulting/validation.go`.

use super::compile::compile_value;
use super::problems::{Problems, start};
use super::validate::validate_default;
use crate::tree::{Kind, Ref};
use crate::{Strictness, Tree, decode_json};
use machinery_meta::field::Shown;
use machinery_meta::walked_path::WalkedPath;
use machinery_meta::{FieldError, FieldPath};

/// Errors in the defaults of a schema that is structural.
pub fn check_defaults(schema: Ref<'_>, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Problems::default();
    walk(schema, &start(path), &mut errors);
    errors.finish(|_| {})
}

/// Defaults may not stand below `additionalProperties`, so there is nothing to see there.
fn walk(schema: Ref<'_>, path: &WalkedPath<'_>, errors: &mut Problems) {
    if errors.is_full() {
        return;
    }
    if let Some(default) = schema.get("default").filter(|own| !own.is_null()) {
        let text = super::compile::text_of_json(default);
        check(schema, &text, &path.child("default"), errors);
    }
    if let Some(items) = schema.get("items").filter(|items| items.kind() == Kind::Map) {
        walk(items, &path.child("items"), errors);
    }
    for (name, property) in schema.get("properties").into_iter().flat_map(Ref::entries) {
        walk(property, &path.child("properties").key(name), errors);
    }
}

fn check(schema: Ref<'_>, default: &str, path: &WalkedPath<'_>, errors: &mut Problems) {
    let compiled = match compile_value(schema) {
        Ok(compiled) => compiled,
        Err(problem) => return errors.forbidden(path, problem),
    };
    let decoded = decode_json(
        &compiled.schema,
        compiled.ty,
        default.as_bytes(),
        Strictness::Report,
    );
    let decoded = match decoded {
        Ok(decoded) => decoded,
        Err(error) => {
            return errors.invalid(path, Shown(shown(default)), error.to_string());
        }
    };
    if !decoded.strict_errors.is_empty() {
        let detail = "must not have unknown fields";
        errors.invalid(path, Shown(shown(default)), detail);
    }
    for error in validate_default(decoded.tree.root()) {
        let path = match error.path.is_root() {
            true => path.to_path(),
            false => path.child(error.path.as_str()).to_path(),
        };
        errors.push(FieldError { path, ..error });
    }
}

/// JSON as the tree writes it.
fn shown(text: &str) -> String {
    Tree::from_json(text).map_or_else(|_| text.to_owned(), |tree| tree.root().to_json())
}
