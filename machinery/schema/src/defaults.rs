//! Filling in what the schema says where a document said nothing.

use crate::table::{Schema, Shape, TypeId};
use crate::tree::{Mut, Tree, Value};
use std::sync::Arc;

/// Whether a published default is more than Go's zero value; the others describe and change nothing.
pub(crate) fn is_effective(default: &str, pointer: bool, typed: bool) -> bool {
    match default {
        "" => false,
        "{}" | "\"\"" | "0" | "[]" if typed => false,
        "false" if typed => pointer,
        _ => true,
    }
}

/// Sets each field that has a default and no value, deep down. Lists and maps are entered, not made.
pub fn apply_defaults(tree: &mut Tree) {
    let schema = Arc::clone(tree.schema());
    if schema.ty(tree.ty()).defaulted {
        apply(&schema, tree.root_mut());
    }
}

fn apply(schema: &Schema, mut value: Mut<'_>) {
    let id = value.ty();
    if schema.ty(id).shape == Shape::Struct {
        apply_to_struct(schema, id, &mut value);
    }
    for index in 0..value.as_ref().len() {
        if let Some(child) = value.nth(index)
            && schema.ty(child.ty()).defaulted
        {
            apply(schema, child);
        }
    }
}

fn apply_to_struct(schema: &Schema, id: TypeId, value: &mut Mut<'_>) {
    if value.as_ref().kind() != crate::Kind::Map {
        return;
    }
    let typed = schema.ty(id).typed;
    for field in schema.fields(id) {
        let Some(default) = schema.default_of(field) else {
            continue;
        };
        if !is_effective(default, field.pointer, typed) {
            continue;
        }
        let name = schema.text(field.name);
        let unset = match value.as_ref().get(name) {
            None => true,
            Some(own) => typed && !field.pointer && crate::normal::is_zero(own.tree, field.ty, own.node),
        };
        if unset {
            set_default(value, name, default);
        }
    }
}

fn set_default(value: &mut Mut<'_>, name: &str, default: &str) {
    match Tree::from_json(default) {
        Ok(tree) => value.set(name, Value::Copy(tree.root())),
        // The compiler of the table and of CRDs refuse a default that is not JSON.
        Err(_) => debug_assert!(false, "default of {name} is not JSON: {default}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{pod_schema, pod_type};
    use crate::{Strictness, apply_defaults, decode_json};

    #[test]
    fn what_was_said_stays() {
        let schema = pod_schema();
        let text = r#"{"spec":{"containers":[{"ports":[{"containerPort":1},{"containerPort":2,"protocol":"UDP"}]}]}}"#;
        let mut tree = decode_json(&schema, pod_type(&schema), text.as_bytes(), Strictness::Ignore)
            .unwrap()
            .tree;
        apply_defaults(&mut tree);
        assert_eq!(
            tree.at(&["spec", "containers"])
                .unwrap()
                .item(0)
                .unwrap()
                .get("ports")
                .unwrap()
                .to_json(),
            r#"[{"containerPort":1,"protocol":"TCP"},{"containerPort":2,"protocol":"UDP"}]"#
        );
    }
}
