//! ResourceClaimTemplate: the claim that each pod gets for itself.

mod defaults;

use crate::engine::allocation::{Allocation, AllocationChange};
use crate::engine::context::RequestContext;
use crate::engine::kind::Kind;
use crate::engine::registry::Registry;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use crate::kinds::resource::admin_access;
use machinery_schema::Tree;

pub(crate) static KIND: Kind = Kind::of("resource.k8s.io", "resourceclaimtemplates")
    .traits(Traits::PLAIN.returned())
    .rules(
        ValidationRules::create(super::resource_claim::validation::validate_template)
            .update(super::resource_claim::validation::validate_template_update),
    )
    .default_lines(&[defaults::LINES])
    .defaults(|object| super::defaults::device_counts(object, &["spec", "spec", "devices"]))
    .columns(crate::shared::columns::format::name_and_age);

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
