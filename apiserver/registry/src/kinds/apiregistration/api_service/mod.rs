//! APIService: a version of a group, and the service that answers for it.

mod columns;
mod defaults;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::{NameRule, Traits};
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("apiregistration.k8s.io", "apiservices")
    .traits(
        Traits::PLAIN
            .named(NameRule::Any)
            .any_finalizers()
            .revision_wanted(),
    )
    .rules(ValidationRules::create(validation::validate))
    .not_enforced("requests are not proxied")
    .prepare_for_update(crate::engine::metadata::keep_in_status)
    .default_lines(&[defaults::LINES])
    .columns(columns::cells);
