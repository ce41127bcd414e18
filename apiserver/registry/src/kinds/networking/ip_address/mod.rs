//! IPAddress: an address that something holds, named by itself.

mod columns;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::{NameRule, Traits};
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("networking.k8s.io", "ipaddresses")
    .traits(Traits::PLAIN.named(NameRule::IpAddress))
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .columns(columns::cells);
