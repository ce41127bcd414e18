//! ServiceCIDR: a range that cluster IPs are taken from.

mod columns;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("networking.k8s.io", "servicecidrs")
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .prepare_for_update(crate::engine::metadata::keep_in_status)
    .columns(columns::cells);
