//! Fields behind feature gates: dropped on write, unless the old object uses the feature already.
//!
//! Which fields are off is found once for a schema; an object is then looked at only where one could be.

use crate::table::{Schema, Shape, TypeId};
use crate::tree::{Mut, Ref, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The fields of a schema whose gates are off.
#[derive(Debug)]
pub struct DisabledFields {
    /// Positions, in order, by the struct they are fields of.
    fields: BTreeMap<TypeId, Box<[usize]>>,
    /// By type: there is such a field in it or below it.
    reaches: Box<[bool]>,
}

impl DisabledFields {
    /// Fields with these gates on. A field may name several gates, all of which must be.
    pub fn of(schema: &Schema, is_enabled: impl Fn(&str) -> bool) -> Self {
        let types = (0u32..).map(TypeId).take(schema.type_count());
        let off = |id: TypeId, position: usize| {
            let gates = schema.gate_at(id, position);
            gates.is_some_and(|gates| !gates.split(',').all(&is_enabled))
        };
        let fields: BTreeMap<TypeId, Box<[usize]>> = types
            .map(|id| {
                (
                    id,
                    (0..schema.fields(id).len()).filter(|at| off(id, *at)).collect(),
                )
            })
            .filter(|(_, positions): &(_, Box<[usize]>)| !positions.is_empty())
            .collect();
        let mut reaches = vec![false; schema.type_count()].into_boxed_slice();
        fields.keys().for_each(|id| reaches[id.index()] = true);
        while spread(schema, &mut reaches) {}
        Self { fields, reaches }
    }

    /// Takes away every such field, but for those that the old object uses anywhere. The trees are of the schema.
    pub fn drop_from(&self, tree: &mut Tree, old: Option<&Tree>) {
        if !self.is_below(tree.root()) {
            return;
        }
        let schema = Arc::clone(tree.schema());
        let mut used = BTreeSet::new();
        if let Some(old) = old {
            self.collect(old.root(), &mut used);
        }
        self.drop_below(&schema, tree.root_mut(), &used);
    }

    fn of_type(&self, id: TypeId) -> &[usize] {
        self.fields.get(&id).map_or(&[], |positions| positions)
    }

    /// The value has one of them.
    fn is_below(&self, value: Ref<'_>) -> bool {
        if !self.reaches[value.ty.index()] {
            return false;
        }
        let own = self.of_type(value.ty);
        value.tree.children(value.node).iter().any(|child| {
            let off = !own.is_empty() && !child.is_named() && own.contains(&child.position());
            off || self.is_below(value.child(*child))
        })
    }

    /// The gates of the fields that an object has.
    fn collect<'a>(&self, value: Ref<'a>, used: &mut BTreeSet<&'a str>) {
        if !self.reaches[value.ty.index()] {
            return;
        }
        for child in value.tree.children(value.node) {
            if value.shape() == Shape::Struct
                && !child.is_named()
                && let Some(gate) = value.schema().gate_at(value.ty, child.position())
            {
                used.insert(gate);
            }
            self.collect(value.child(*child), used);
        }
    }

    fn drop_below(&self, schema: &Schema, mut value: Mut<'_>, used: &BTreeSet<&str>) {
        let id = value.ty();
        if !self.reaches[id.index()] {
            return;
        }
        for position in self.of_type(id) {
            let gates = schema.gate_at(id, *position).unwrap_or_default();
            if !used.contains(gates)
                && let Some(field) = schema.field_at(id, *position)
            {
                value.remove(schema.text(field.name));
            }
        }
        for index in 0..value.as_ref().len() {
            if let Some(child) = value.nth(index) {
                self.drop_below(schema, child, used);
            }
        }
    }
}

/// One step up from what is reached; says whether that was news.
fn spread(schema: &Schema, reaches: &mut [bool]) -> bool {
    let mut changed = false;
    for id in (0u32..).map(TypeId).take(schema.type_count()) {
        let below = schema.fields(id).iter().map(|field| field.ty);
        let reached = below.chain([schema.ty(id).item]).any(|ty| reaches[ty.index()]);
        changed |= reached && !reaches[id.index()];
        reaches[id.index()] |= reached;
    }
    changed
}

#[cfg(test)]
mod tests {
    use crate::testing::{pod_schema, pod_type};
    use crate::{DisabledFields, Strictness, decode_json};

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
        DisabledFields::of(&schema, |gate| gate != "Stdin" || on).drop_from(&mut tree, old.as_ref());
        assert_eq!(tree.at(&["spec", "containers"]).unwrap().to_json(), expected);
    }

    #[test]
    fn feature_gate_drops_unused_field() {
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
