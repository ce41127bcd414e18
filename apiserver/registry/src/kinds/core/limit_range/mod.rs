//! LimitRange: bounds and defaults for what pods of a namespace request.

mod defaults;
pub mod validation;

use crate::engine::context::RequestContext;
use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use machinery_schema::Tree;

pub(crate) static KIND: Kind = Kind::of("", "limitranges")
    .traits(Traits::PLAIN.put_creates())
    .rules(ValidationRules::create(validation::validate))
    .prepare_for_create(name)
    .defaults(defaults::set);

/// A range without a name gets one.
fn name(ctx: &RequestContext, object: &mut Tree) {
    if crate::engine::metadata::name(object).is_empty() {
        let name = ctx.runtime.uuid().to_string();
        object.set_str(&["metadata", "name"], &name);
    }
}
