//! DaemonSet: a pod on every node that fits.

mod columns;
mod defaults;
pub mod validation;

use crate::engine::context::RequestContext;
use crate::engine::kind::Kind;
use crate::engine::strategy::ObjectPart;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use machinery_schema::Tree;

pub(crate) static KIND: Kind = Kind::of("apps", "daemonsets")
    .traits(Traits::COUNTED)
    .rules(
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status(crate::kinds::apps::status::validate_daemon_set),
    )
    .warnings(crate::kinds::core::pod::workload_warnings::of_template)
    .prepare_for_create(|_, object| object.set_str(&TEMPLATE_GENERATION, "1"))
    .prepare_for_update(prepare_for_update)
    .default_lines(&[defaults::LINES])
    .defaults(defaults::set)
    .pod_template(crate::kinds::core::pod::template::at(&[
        "spec", "template", "spec",
    ]))
    .columns(columns::cells);

/// The annotation in which DaemonSets count changes of the template, older than revisions.
const TEMPLATE_GENERATION: [&str; 3] = [
    "metadata",
    "annotations",
    "deprecated.daemonset.template.generation",
];

fn prepare_for_update(_ctx: &RequestContext, part: ObjectPart, object: &mut Tree, old: &Tree) {
    if part != ObjectPart::Main {
        return;
    }
    let before: i64 = old.str_at(&TEMPLATE_GENERATION).parse().unwrap_or(0);
    let changed = object.at(&["spec", "template"]) != old.at(&["spec", "template"]);
    let generation = (before + i64::from(changed)).to_string();
    object.set_str(&TEMPLATE_GENERATION, &generation);
}
