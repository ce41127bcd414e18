//! PersistentVolume: storage that a claim may be bound to.

pub(super) mod columns;
mod defaults;
pub mod validation;

use crate::engine::context::RequestContext;
use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use machinery_schema::Tree;

pub(crate) static KIND: Kind = Kind::of("", "persistentvolumes")
    .traits(Traits::PLAIN.returned())
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .prepare_for_create(begin)
    .default_lines(&[defaults::LINES])
    .columns(columns::cells);

/// A volume begins pending.
fn begin(ctx: &RequestContext, object: &mut Tree) {
    object.set_str(&["status", "phase"], "Pending");
    let now = crate::engine::metadata::format_time(ctx.runtime.now());
    object.set_str(&["status", "lastPhaseTransitionTime"], &now);
}
