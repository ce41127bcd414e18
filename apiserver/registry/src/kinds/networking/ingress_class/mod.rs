//! IngressClass: the controller of ingresses.

mod columns;
mod defaults;
mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("networking.k8s.io", "ingressclasses")
    .traits(Traits::COUNTED)
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .not_enforced("no gateway acts on it")
    .default_lines(&[defaults::LINES])
    .columns(columns::cells);
