//! CustomResourceDefinition: names follow from each other, the status remembers stored versions, and its objects
//! hold it when it is deleted.

pub(crate) mod approval;
mod columns;
mod defaults;
pub(crate) mod v1beta1;
mod validation;

use crate::custom::FINALIZER;
use crate::engine::context::RequestContext;
use crate::engine::kind::{Kind, OldForm};
use crate::engine::strategy::ObjectPart;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use machinery_schema::{Ref, Tree, Value};
use std::collections::HashSet;

pub(crate) static KIND: Kind = Kind::of("apiextensions.k8s.io", "customresourcedefinitions")
    .traits(Traits::COUNTED.any_finalizers().revision_wanted())
    .rules(
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status(|new, _| validation::validate_status(new))
            // The cleanup of a deleted definition changes its conditions and finalizers alone, as upstream's by way of the
            // status: what was stored before a rule was can be deleted.
            .parts(&[("finalize", |new, _| validation::validate_status(new))]),
    )
    .defaults(defaults)
    .prepare_for_create(|_, object| remember_stored(object))
    .prepare_for_update(prepare_for_update)
    .keeps_after_finalizers(keeps_after_finalizers)
    .mark_deleting(mark_deleting)
    .default_lines(&[defaults::LINES])
    .warnings(warnings)
    .columns(columns::cells)
    .old_form(OldForm {
        version: "v1beta1",
        read: v1beta1::to_v1,
    });

fn defaults(object: &mut Tree) {
    let kind = object.str_at(&["spec", "names", "kind"]).to_owned();
    object.with(&["spec", "names"], |mut names| {
        if !kind.is_empty() {
            names.default("singular", kind.to_lowercase().as_str());
            names.default("listKind", format!("{kind}List").as_str());
        }
    });
    let converts = object
        .at(&["spec", "conversion"])
        .is_some_and(|own| !own.is_null());
    if !converts {
        object.with(&["spec"], |mut spec| {
            spec.entry("conversion").set("strategy", "None")
        });
    }
    let stored = object.at(&["status", "storedVersions"]);
    if stored.is_none_or(|own| own.is_empty()) {
        remember_stored(object);
    }
}

/// Formats that no value is checked for, and sets of values that are not scalars, which the old definition had not.
fn warnings(object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
    let known: HashSet<String> = old.into_iter().flat_map(schema_warnings).collect();
    let own = schema_warnings(object).into_iter();
    own.filter(|own| !known.contains(own)).collect()
}

fn schema_warnings(definition: Ref<'_>) -> Vec<String> {
    let versions = definition
        .get("spec")
        .into_iter()
        .flat_map(|spec| spec.list("versions"));
    let schemas: Vec<Ref<'_>> = versions
        .filter_map(|own| own.at(&["schema", "openAPIV3Schema"]))
        .collect();
    machinery_schema::structural::schema_warnings(&schemas)
}

fn prepare_for_update(_ctx: &RequestContext, part: ObjectPart, object: &mut Tree, _old: &Tree) {
    if part == ObjectPart::Main {
        remember_stored(object);
    }
}

fn keeps_after_finalizers(object: Ref<'_>) -> bool {
    object.str_at(&["metadata", "deletionTimestamp"]).is_empty()
}

fn mark_deleting(object: &mut Tree) {
    let has = crate::engine::metadata::finalizers(object)
        .iter()
        .any(|own| own == FINALIZER);
    if !has {
        object.push(&["metadata", "finalizers"], FINALIZER);
    }
    let now = object.str_at(&["metadata", "deletionTimestamp"]).to_owned();
    object.with(&["status"], |mut status| {
        let mut conditions = status.entry("conditions");
        let known = conditions
            .as_ref()
            .items()
            .any(|condition| condition.str("type") == "Terminating");
        if known {
            return;
        }
        let mut condition = conditions.push(Value::EmptyMap);
        condition.set("type", "Terminating");
        condition.set("status", "True");
        condition.set("lastTransitionTime", now.as_str());
        condition.set("reason", "InstanceDeletionPending");
        let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        condition.set("message", message);
    });
}

/// Every version that was ever the storage version stays listed until a client takes it out.
fn remember_stored(object: &mut Tree) {
    let listed = object
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("storedVersions"));
    let known: HashSet<String> = listed.filter_map(Ref::as_str).map(str::to_owned).collect();
    let versions = object
        .get("spec")
        .into_iter()
        .flat_map(|spec| spec.list("versions"));
    // Of several, which are refused, the first counts.
    let stored = versions
        .into_iter()
        .find(|own| own.get("storage").and_then(Ref::as_bool) == Some(true));
    let stored = stored.map(|own| own.str("name").to_owned());
    if let Some(version) = stored.filter(|own| !known.contains(own)) {
        object.push(&["status", "storedVersions"], version.as_str());
    }
}
