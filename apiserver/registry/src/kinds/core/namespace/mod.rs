//! Namespace: lives until its `spec.finalizers` are gone, which the namespace controller sees to.

mod not_enforced;
mod validation;

use crate::context::RequestContext;
use crate::kind::{Kind, NameRule, Traits};
use crate::strategy::{ObjectPart, Strategy, name_rule};
use crate::validation_rules::ValidationRules;
use machinery_meta::syntax;
use machinery_schema::{Ref, Step, Tree};

pub(crate) static KIND: Kind = Kind::of("", "namespaces")
    .traits(Traits::PLAIN.named(NameRule::Label))
    .fields_not_enforced(not_enforced::fields);

/// The finalizer every namespace begins with.
const FINALIZER: &str = "kubernetes";
/// The label that selectors know a namespace by.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamespaceStrategy;

impl Strategy for NamespaceStrategy {
    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        name_rule(syntax::dns1123_label, name, prefix)
    }

    fn defaults(&self, object: &mut Tree) {
        crate::defaults::apply("", "namespaces", object);
        if object.str_at(&["status", "phase"]).is_empty() {
            object.set_str(&["status", "phase"], "Active");
        }
        label_with_name(object);
    }

    fn counts_generation(&self) -> bool {
        false
    }

    fn prepare_for_create(&self, _ctx: &RequestContext, object: &mut Tree) {
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

    fn prepare_for_update(&self, _ctx: &RequestContext, part: ObjectPart, object: &mut Tree, old: &Tree) {
        match part {
            ObjectPart::Main => restore_finalizers(object, old),
            ObjectPart::Other("finalize") => crate::metadata::restore_member(object, old, "status"),
            _ => {}
        }
        label_with_name(object);
    }

    fn rules(&self) -> ValidationRules {
        ValidationRules::create(validation::validate)
            .update(|new, _| validation::validate_update(new))
            .status(|new, _| validation::validate_status(new))
            .parts(&[("finalize", |new, _| validation::validate_finalize(new))])
    }

    fn keeps_after_finalizers(&self, object: Ref<'_>) -> bool {
        object
            .at(&["spec", "finalizers"])
            .is_some_and(|finalizers| !finalizers.is_empty())
    }

    fn mark_deleting(&self, object: &mut Tree) {
        object.set_str(&["status", "phase"], "Terminating");
        // Its finalizers alone say how long it takes.
        object.remove(&["metadata", "deletionGracePeriodSeconds"]);
    }
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
    let name = crate::metadata::name(object).to_owned();
    if !name.is_empty() {
        object.set_str(&["metadata", "labels", NAME_LABEL], &name);
    }
}
