//! Filling in the schema's defaults where a document has no value.

use crate::normal::is_zero;
use crate::table::{Field, Schema, Shape, TypeId};
use crate::tree::{Node, Tag, Tree, child_type, find_field};
use smallvec::SmallVec;
use std::sync::Arc;

/// Reports whether a published default is more than Go's zero value; the others describe and change nothing.
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
        tree.root = apply(&schema, tree, tree.root, tree.ty, 0);
    }
}

/// The value with its defaults, in the same place, inside of `depth` lists and maps.
fn apply(schema: &Schema, tree: &mut Tree, node: Node, id: TypeId, depth: usize) -> Node {
    let node = if node.tag() == Tag::Map && schema.ty(id).shape == Shape::Struct {
        apply_to_struct(schema, tree, node, id, depth)
    } else {
        node
    };
    if !matches!(node.tag(), Tag::Map | Tag::List) {
        return node;
    }
    for at in node.range() {
        let child = tree.nodes[at];
        let ty = child_type(schema, id, child);
        if schema.ty(ty).defaulted {
            tree.nodes[at] = apply(schema, tree, child, ty, depth + 1);
        }
    }
    node
}

fn apply_to_struct(schema: &Schema, tree: &mut Tree, node: Node, id: TypeId, depth: usize) -> Node {
    let ty = schema.ty(id);
    let mut missing: SmallVec<[Node; 4]> = SmallVec::new();
    for position in schema.defaults(ty) {
        let position = usize::from(*position);
        let Some(field) = schema.field_at(id, position) else {
            continue;
        };
        let found = find_field(tree.children(node), position).map(|at| node.range().start + at);
        let own = found.map(|at| tree.nodes[at]);
        if own.is_some_and(|own| !ty.typed || field.pointer || !is_zero(tree, field.ty, own)) {
            continue;
        }
        let value = value_of(schema, tree, field, depth + 1).in_field(position);
        match found {
            Some(at) => tree.nodes[at] = value,
            None => missing.push(value),
        }
    }
    if missing.is_empty() {
        node
    } else {
        tree.with_fields(node, &missing)
    }
}

/// The default of a field, in this tree.
fn value_of(schema: &Schema, tree: &mut Tree, field: &Field, depth: usize) -> Node {
    let default = schema.default_of(field).unwrap_or("null");
    let plain = default.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    if let Some(text) = plain.filter(|text| !text.contains(['"', '\\'])) {
        return Node::str(tree.push_text(text));
    }
    match Tree::from_json(default) {
        Ok(free) => tree.copy(free.root(), field.ty, depth),
        // The compiler of the table and of CRDs refuse a default that is not JSON.
        Err(_) => {
            debug_assert!(false, "a default is not JSON: {default}");
            Node::NULL
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{pod_schema, pod_type};
    use crate::{Strictness, apply_defaults, decode_json};

    #[test]
    fn defaults_keep_given_values() {
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
