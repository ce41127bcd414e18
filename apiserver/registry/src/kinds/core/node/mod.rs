//! Node: registers with its status; afterwards the status is its agent's.

mod columns;
mod config_source;
mod defaults;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::selectable::Selectable;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use machinery_schema::Ref;

pub(crate) static KIND: Kind = Kind::of("", "nodes")
    .traits(Traits::PLAIN.status_kept())
    .rules(
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status(validation::validate_status),
    )
    .defaults(defaults::set)
    .prepare_for_create(|_, node| config_source::drop(node))
    .prepare_for_update(|_, _, node, old| config_source::drop_new(node, old))
    .warnings(|node, _| warnings(node))
    .columns(columns::cells)
    .selectable(|| vec![Selectable::with_absent("spec.unschedulable", "false")]);

/// Fields that nothing reads any more.
fn warnings(node: Ref<'_>) -> Vec<String> {
    let text = |(name, detail): (&str, &str)| format!("spec.{name}: {detail}");
    let given = |name: &str| node.at(&["spec", name]).filter(|own| !own.is_null());
    let source = given("configSource").map(|_| ("configSource", "the feature is removed"));
    let id = given("externalID").filter(|id| id.as_str() != Some(""));
    let id = id.map(|_| {
        (
            "externalID",
            "this field is deprecated, and is unused by Kubernetes",
        )
    });
    source.into_iter().chain(id).map(text).collect()
}
