//! Pod: defaults that look at other fields, status that begins Pending, deletion with grace.

mod app_armor;
mod columns;
pub(crate) mod defaults;
pub(crate) mod level;
mod not_enforced;
mod path_warnings;
mod port_warnings;
pub(crate) mod qos;
pub(crate) mod resize;
pub(crate) mod template;
pub mod validation;
pub(crate) mod warnings;
pub(crate) mod workload_warnings;

use crate::engine::context::RequestContext;
use crate::engine::kind::Kind;
use crate::engine::metadata;
use crate::engine::selectable::Selectable;
use crate::engine::strategy::ObjectPart;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use crate::shared::validation::Path;
use machinery_schema::{Ref, Step, Tree};

pub(crate) static KIND: Kind = Kind::of("", "pods")
    .traits(Traits::COUNTED.returned())
    .rules(
        ValidationRules::create(validation::validate)
            .update(validation::update::validate)
            .status(validation::status::validate)
            .parts(&[
                ("ephemeralcontainers", validation::update::validate_ephemeral),
                ("resize", validation::resize::validate),
                ("binding", |_, _| Vec::new()),
            ]),
    )
    .first_defaults(defaults::pod)
    .prepare_for_create(prepare_for_create)
    .prepare_for_update(prepare_for_update)
    .warnings(own_warnings)
    .graceful(grace_period)
    .default_lines(&[defaults::LINES])
    .pod_template(template::at(&["spec"]))
    .columns(columns::cells)
    .completed(columns::course_of)
    .selectable(selectable);

fn selectable() -> Vec<Selectable> {
    let mut all = Selectable::texts([
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ]);
    all.push(Selectable::with_absent("spec.hostNetwork", "false"));
    all
}

fn prepare_for_create(ctx: &RequestContext, object: &mut Tree) {
    level::set_defaults(object);
    object.set_str(&["status", "phase"], "Pending");
    object.set_str(&["status", "qosClass"], qos::class(object.root()));
    gate_condition(object, &metadata::format_time(ctx.runtime.now()));
    app_armor::set_fields(ctx, object);
}

fn prepare_for_update(_ctx: &RequestContext, part: ObjectPart, object: &mut Tree, old: &Tree) {
    // Those of a Binding go to its pod.
    object.with(&["metadata"], |mut own| defaults::metadata(&mut own));
    if part == ObjectPart::Other("ephemeralcontainers") {
        keep_only_ephemeral(object, old);
    }
    if part == ObjectPart::Other("resize") {
        resize::keep_only_resources(object, old);
        level::set_defaults(object);
    }
    if part == ObjectPart::Main {
        level::keep(object, old);
    }
    if part == ObjectPart::Status {
        // Old agents sent stale owner references with their status.
        metadata::restore_field(object, old, "ownerReferences");
        metadata::restore_field(object, old, "deletionTimestamp");
        if object.str_at(&["status", "qosClass"]).is_empty() {
            object.set_str(&["status", "qosClass"], qos::class(old.root()));
        }
    }
}

fn own_warnings(object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
    // As upstream: pods are changed by schedulers and agents, mostly, and all the time.
    if old.is_some() {
        return Vec::new();
    }
    let name = warnings::of_name(object, "the Pod's hostname");
    name.into_iter()
        .chain(warnings::of(&Path::ROOT, object))
        .collect()
}

/// The grace period of a delete: none before a pod is on a node, and after it has ended.
fn grace_period(object: Ref<'_>, requested: Option<i64>) -> Option<i64> {
    let own = object
        .at(&["spec", "terminationGracePeriodSeconds"])
        .and_then(Ref::as_i64);
    let ended = matches!(object.str_at(&["status", "phase"]), "Succeeded" | "Failed");
    if ended || object.str_at(&["spec", "nodeName"]).is_empty() {
        return Some(0);
    }
    Some(requested.or(own).unwrap_or(0))
}

/// Restores everything but ephemeral containers, the only part that this subresource changes.
fn keep_only_ephemeral(object: &mut Tree, old: &Tree) {
    let place = [Step::Name("spec"), Step::Name("ephemeralContainers")];
    let wanted = object.at(&["spec", "ephemeralContainers"]).map(Ref::to_tree);
    metadata::restore_member(object, old, "spec");
    metadata::restore_member(object, old, "status");
    metadata::restore_for_status(object, old);
    match wanted {
        Some(list) => object.set(&place, list.root()),
        None => {
            object.remove(&["spec", "ephemeralContainers"]);
        }
    }
}

/// A pod with scheduling gates says from the start that it is not scheduled.
fn gate_condition(object: &mut Tree, now: &str) {
    let gated = object
        .at(&["spec", "schedulingGates"])
        .is_some_and(|gates| !gates.is_empty());
    if !gated {
        return;
    }
    let known = object.get("status").is_some_and(|status| {
        status
            .list("conditions")
            .any(|condition| condition.str("type") == "PodScheduled")
    });
    if known {
        return;
    }
    object.with(&["status"], |mut status| {
        let mut conditions = status.entry("conditions");
        let mut condition = conditions.push(machinery_schema::Value::EmptyMap);
        condition.set("type", "PodScheduled");
        condition.set("status", "False");
        condition.set("lastProbeTime", machinery_schema::Value::Null);
        condition.set("lastTransitionTime", now);
        condition.set("reason", "SchedulingGated");
        condition.set(
            "message",
            "Scheduling is blocked due to non-empty scheduling gates",
        );
    });
}
