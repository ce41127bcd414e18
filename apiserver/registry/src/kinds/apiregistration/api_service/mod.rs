//! APIService: a version of a group, and the service that answers for it.

mod columns;
mod defaults;
pub mod validation;

use crate::engine::context::RequestContext;
use crate::engine::kind::Kind;
use crate::engine::metadata::format_time;
use crate::engine::traits::{NameRule, Traits};
use crate::engine::validation_rules::ValidationRules;
use crate::shared::conditions::{Condition, set_condition};
use machinery_schema::{Ref, Tree};

pub(crate) static KIND: Kind = Kind::of("apiregistration.k8s.io", "apiservices")
    .traits(
        Traits::PLAIN
            .named(NameRule::Any)
            .any_finalizers()
            .revision_wanted(),
    )
    .rules(ValidationRules::create(validation::validate).status(validation::validate_status_update))
    .prepare_for_create(available_at_once)
    .prepare_for_update(crate::engine::metadata::keep_in_status)
    .default_lines(&[defaults::LINES])
    .columns(columns::cells);

/// The condition of groups that this server serves itself: always available.
pub const LOCAL: Condition<'static> = Condition {
    kind: "Available",
    status: "True",
    reason: "Local",
    message: "Local APIServices are always available",
};

fn available_at_once(ctx: &RequestContext, service: &mut Tree) {
    let is_local = service.at(&["spec", "service"]).is_none_or(Ref::is_null);
    if is_local {
        set_condition(service, &format_time(ctx.runtime.now()), LOCAL);
    }
}
