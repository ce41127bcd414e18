//! NetworkPolicy: traffic that pods may receive and send.

mod columns;
mod defaults;
mod not_enforced;
mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("networking.k8s.io", "networkpolicies")
    .traits(Traits::COUNTED)
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .not_enforced("traffic is not filtered")
    .refused(not_enforced::refusal)
    .default_lines(&[defaults::LINES])
    .defaults(defaults::set)
    .columns(columns::cells);
