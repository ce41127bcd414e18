//! ResourceClaim: devices that are requested, and those that were allocated.

pub mod allocation;
mod columns;
mod defaults;
pub mod validation;

use crate::engine::allocation::{Allocation, AllocationChange};
use crate::engine::context::RequestContext;
use crate::engine::kind::Kind;
use crate::engine::metadata;
use crate::engine::registry::Registry;
use crate::engine::strategy::ObjectPart;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use crate::kinds::resource::admin_access;
use machinery_schema::Tree;

pub(crate) static KIND: Kind = Kind::of("resource.k8s.io", "resourceclaims")
    .traits(Traits::PLAIN.returned())
    .rules(
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status(allocation::validate_status),
    )
    .prepare_for_update(prepare_for_update)
    .default_lines(&[defaults::LINES])
    .defaults(|object| super::defaults::device_counts(object, &["spec", "devices"]))
    .columns(columns::cells);

fn prepare_for_update(_ctx: &RequestContext, part: ObjectPart, object: &mut Tree, old: &Tree) {
    if part == ObjectPart::Status {
        metadata::restore_for_status(object, old);
        allocation::drop_released(object, old);
    }
}

/// Takes nothing, and refuses devices that the namespace may not look at.
pub(crate) fn allocate<'a>(
    _ctx: &'a RequestContext,
    registry: &'a Registry,
    change: AllocationChange<'a>,
    object: &'a mut Tree,
) -> Allocation<'a> {
    Box::pin(async move {
        admin_access::check(registry, KIND.plural, change, object).await?;
        Ok(Vec::new())
    })
}
