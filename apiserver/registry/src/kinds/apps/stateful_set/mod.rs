//! StatefulSet: numbered pods with claims of their own.

mod columns;
mod defaults;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::{NameRule, Traits};
use crate::engine::validation_rules::ValidationRules;
use crate::kinds::core::pod::workload_warnings;
use machinery_schema::Ref;

pub(crate) static KIND: Kind = Kind::of("apps", "statefulsets")
    .traits(Traits::COUNTED.named(NameRule::Label))
    .rules(
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status(crate::kinds::apps::status::validate_stateful_set),
    )
    .warnings(warnings)
    .default_lines(&[defaults::LINES])
    .defaults(defaults::set)
    .pod_template(crate::kinds::core::pod::template::at(&[
        "spec", "template", "spec",
    ]))
    .columns(columns::cells);

fn warnings(object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
    let mut all = workload_warnings::of_template(object, old);
    let history = object.at(&["spec", "revisionHistoryLimit"]).and_then(Ref::as_i64);
    if history.is_some_and(|limit| limit < 0) {
        let detail = "a negative value retains all historical revisions; a value >= 0 is recommended";
        all.push(format!("spec.revisionHistoryLimit: {detail}"));
    }
    all
}
