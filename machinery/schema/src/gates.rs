//! Fields behind feature gates: dropped on write, unless the old object uses the feature already.

use crate::table::{Schema, Shape};
use crate::tree::{Mut, Ref, Tree};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Takes away every field whose gate is off and that the old object does not use anywhere.
///
/// A field may name several gates, all of which must be on.
pub fn drop_disabled_fields(tree: &mut Tree, old: Option<&Tree>, is_enabled: &dyn Fn(&str) -> bool) {
    let schema = Arc::clone(tree.schema());
    if !schema.ty(tree.ty()).gated {
        return;
    }
    let mut used = BTreeSet::new();
    if let Some(old) = old {
        collect(old.root(), &mut used);
    }
    let keeps = |gates: &str| used.contains(gates) || gates.split(',').all(is_enabled);
    drop_below(&schema, tree.root_mut(), &keeps);
}

/// The gates of the fields an object has.
fn collect<'a>(value: Ref<'a>, used: &mut BTreeSet<&'a str>) {
    let schema = value.schema();
    if !schema.ty(value.ty()).gated {
        return;
    }
    for child in value.tree.children(value.node) {
        if schema.ty(value.ty()).shape == Shape::Struct
            && !child.is_named()
            && let Some(gate) = schema.gate_at(value.ty(), child.position())
        {
            used.insert(gate);
        }
        collect(value.child(*child), used);
    }
}

fn drop_below(schema: &Schema, mut value: Mut<'_>, keeps: &dyn Fn(&str) -> bool) {
    let id = value.ty();
    if !schema.ty(id).gated {
        return;
    }
    if schema.ty(id).shape == Shape::Struct {
        for (position, field) in schema.fields(id).iter().enumerate() {
            if schema.gate_at(id, position).is_some_and(|gate| !keeps(gate)) {
                value.remove(schema.text(field.name));
            }
        }
    }
    for index in 0..value.as_ref().len() {
        if let Some(child) = value.nth(index) {
            drop_below(schema, child, keeps);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{pod_schema, pod_type};
    use crate::{Strictness, decode_json, drop_disabled_fields};

    #[track_caller]
    fn check(old: Option<&str>, on: bool, expected: &str) {
        let schema = pod_schema();
        let read = |text: &str| {
            decode_json(&schema, pod_type(&schema), text.as_bytes(), Strictness::Ignore)
                .unwrap()
                .tree
        };
        let mut tree = read(r#"{"spec":{"containers":[{"name":"a","stdin":true}]}}"#);
        let old = old.map(read);
        drop_disabled_fields(&mut tree, old.as_ref(), &|gate| gate != "Stdin" || on);
        assert_eq!(tree.at(&["spec", "containers"]).unwrap().to_json(), expected);
    }

    #[test]
    fn a_gated_field_goes_unless_it_is_in_use() {
        let (with, without) = (
            r#"[{"name":"a","resources":{},"stdin":true}]"#,
            r#"[{"name":"a","resources":{}}]"#,
        );
        check(None, true, with);
        check(None, false, without);
        check(
            Some(r#"{"spec":{"containers":[{"name":"z","stdin":true}]}}"#),
            false,
            with,
        );
        check(Some("{}"), false, without);
    }
}
