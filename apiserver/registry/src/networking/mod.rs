//! The kinds of the networking group that have rules of their own.

pub mod ingress;
pub mod ip_address;
pub mod service_cidr;

use crate::table_strategy::{Kind, NameRule, Traits};
use crate::validation_rules::ValidationRules;

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of("ingressclasses", Traits::COUNTED, ValidationRules::NONE),
    Kind::of(
        "ingresses",
        Traits::COUNTED,
        ValidationRules::create(ingress::validation::validate)
            .update(|new, _| ingress::validation::validate_update(new)),
    ),
    Kind::of(
        "ipaddresses",
        Traits::PLAIN.named(NameRule::IpAddress),
        ValidationRules::create(ip_address::validation::validate)
            .update(ip_address::validation::validate_update),
    ),
    Kind::of("networkpolicies", Traits::COUNTED, ValidationRules::NONE),
    Kind::of(
        "servicecidrs",
        Traits::PLAIN,
        ValidationRules::create(service_cidr::validation::validate)
            .update(service_cidr::validation::validate_update),
    ),
];
