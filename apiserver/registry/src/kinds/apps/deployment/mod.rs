//! Deployment: pods that are replaced by and by when their template changes.

mod columns;
mod defaults;
pub mod validation;

use crate::engine::context::RequestContext;
use crate::engine::kind::Kind;
use crate::engine::metadata;
use crate::engine::strategy::ObjectPart;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use machinery_schema::Tree;

pub(crate) static KIND: Kind = Kind::of("apps", "deployments")
    .traits(Traits::COUNTED)
    .rules(
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status(crate::kinds::apps::status::validate_deployment),
    )
    .warnings(crate::kinds::core::pod::workload_warnings::of_named)
    .prepare_for_update(prepare_for_update)
    .spec_changed(spec_changed)
    .default_lines(&[defaults::LINES])
    .defaults(defaults::set)
    .pod_template(crate::kinds::core::pod::template::at(&[
        "spec", "template", "spec",
    ]))
    .columns(columns::cells);

fn prepare_for_update(_ctx: &RequestContext, part: ObjectPart, object: &mut Tree, old: &Tree) {
    if part == ObjectPart::Status {
        metadata::restore_field(object, old, "labels");
    }
}

/// A rollback once lived in annotations; they have counted since.
fn spec_changed(object: &Tree, old: &Tree) -> bool {
    object.at(&["metadata", "annotations"]) != old.at(&["metadata", "annotations"])
        || metadata::spec_differs(object, old)
}
