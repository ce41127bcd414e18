//! Namespace: lives until its `spec.finalizers` are gone, which the namespace controller sees to.

mod columns;
mod validation;

use crate::engine::context::RequestContext;
use crate::engine::kind::Kind;
use crate::engine::selectable::Selectable;
use crate::engine::strategy::ObjectPart;
use crate::engine::traits::{NameRule, Traits};
use crate::engine::validation_rules::ValidationRules;
use machinery_schema::{Ref, Step, Tree};

pub(crate) static KIND: Kind = Kind::of("", "namespaces")
    .traits(Traits::PLAIN.named(NameRule::Label))
    .rules(
        ValidationRules::create(validation::validate)
            .update(|new, _| validation::validate_update(new))
            .status(|new, _| validation::validate_status(new))
            .parts(&[("finalize", |new, _| validation::validate_finalize(new))]),
    )
    .defaults(defaults)
    .prepare_for_create(prepare_for_create)
    .prepare_for_update(prepare_for_update)
    .keeps_after_finalizers(keeps_after_finalizers)
    .mark_deleting(mark_deleting)
    .columns(columns::cells)
    .selectable(|| Selectable::texts(["status.phase"]));

/// The finalizer every namespace begins with.
const FINALIZER: &str = "kubernetes";
/// The label that selectors know a namespace by.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

fn defaults(object: &mut Tree) {
    if object.str_at(&["status", "phase"]).is_empty() {
        object.set_str(&["status", "phase"], "Active");
    }
    label_with_name(object);
}

fn prepare_for_create(_ctx: &RequestContext, object: &mut Tree) {
    object.set_str(&["status", "phase"], "Active");
    let listed = object
        .get("spec")
        .into_iter()
        .flat_map(|spec| spec.list("finalizers"));
    let has = listed.filter_map(Ref::as_str).any(|own| own == FINALIZER);
    if !has {
        object.push(&["spec", "finalizers"], FINALIZER);
    }
    label_with_name(object);
}

fn prepare_for_update(_ctx: &RequestContext, part: ObjectPart, object: &mut Tree, old: &Tree) {
    match part {
        ObjectPart::Main => restore_finalizers(object, old),
        ObjectPart::Other("finalize") => crate::engine::metadata::restore_member(object, old, "status"),
        _ => {}
    }
    label_with_name(object);
}

fn keeps_after_finalizers(object: Ref<'_>) -> bool {
    object
        .at(&["spec", "finalizers"])
        .is_some_and(|finalizers| !finalizers.is_empty())
}

fn mark_deleting(object: &mut Tree) {
    object.set_str(&["status", "phase"], "Terminating");
    // Its finalizers alone say how long it takes.
    object.remove(&["metadata", "deletionGracePeriodSeconds"]);
}

fn restore_finalizers(object: &mut Tree, old: &Tree) {
    match old.at(&["spec", "finalizers"]) {
        Some(finalizers) => object.set(&[Step::Name("spec"), Step::Name("finalizers")], finalizers),
        None => {
            object.remove(&["spec", "finalizers"]);
        }
    }
}

/// No part of a namespace takes the label of another one, which policies select it by.
fn label_with_name(object: &mut Tree) {
    let name = crate::engine::metadata::name(object).to_owned();
    if !name.is_empty() {
        object.set_str(&["metadata", "labels", NAME_LABEL], &name);
    }
}
