//! The kinds of the networking group that have rules of their own.

pub mod ingress;
pub mod ip_address;
pub mod service_cidr;

use crate::rules::Rules;
use crate::table_strategy::{Kind, NameRule, Traits};

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of("ingressclasses", Traits::COUNTED, Rules::NONE),
    Kind::of(
        "ingresses",
        Traits::COUNTED,
        Rules::on(ingress::validation::validate).changed(|new, _| ingress::validation::validate_update(new)),
    ),
    Kind::of(
        "ipaddresses",
        Traits::PLAIN.named(NameRule::IpAddress),
        Rules::on(ip_address::validation::validate).changed(ip_address::validation::validate_update),
    ),
    Kind::of("networkpolicies", Traits::COUNTED, Rules::NONE),
    Kind::of(
        "servicecidrs",
        Traits::PLAIN,
        Rules::on(service_cidr::validation::validate).changed(service_cidr::validation::validate_update),
    ),
];
