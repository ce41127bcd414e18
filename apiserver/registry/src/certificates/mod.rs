//! The kinds of the certificates group: what is asked for, what is signed, whom to trust.

pub mod cluster_trust_bundle;
pub mod pod_certificate_request;
mod public_key;
pub(crate) mod signing_decision;
pub(crate) mod signing_request;
mod x509;

pub use x509::{common_name, organizations};

use crate::table_strategy::{Kind, NameRule, Traits};
use crate::validation_rules::ValidationRules;

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of(
        "certificatesigningrequests",
        Traits::PLAIN.named(NameRule::PathSegment),
        ValidationRules::create(signing_request::validate)
            .update(signing_decision::validate_main)
            .status(signing_decision::validate_status)
            .parts(&[("approval", signing_decision::validate_approval)]),
    ),
    // Its name depends on its signer, which only the kind's own rules see.
    Kind::of(
        "clustertrustbundles",
        Traits::PLAIN.named(NameRule::PathSegment).revision_wanted(),
        ValidationRules::create(cluster_trust_bundle::validation::validate)
            .update(cluster_trust_bundle::validation::validate_update),
    ),
    Kind::of(
        "podcertificaterequests",
        Traits::PLAIN.revision_wanted(),
        ValidationRules::create(pod_certificate_request::validation::validate)
            .update(pod_certificate_request::validation::validate_update)
            .status_at(pod_certificate_request::outcome::validate_status),
    ),
];
