//! Ingress: routes of HTTP from outside to services.

mod columns;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("networking.k8s.io", "ingresses")
    .traits(Traits::COUNTED)
    .rules(
        ValidationRules::create(validation::validate)
            .update(|new, _| validation::validate_update(new))
            .status(validation::validate_status),
    )
    .not_enforced("no gateway acts on it")
    .columns(columns::cells);
