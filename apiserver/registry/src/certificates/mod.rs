//! The kinds of the certificates group: what is asked for, what is signed, whom to trust.

pub mod cluster_trust_bundle;
pub mod pod_certificate_request;
mod public_key;
pub(crate) mod signing_decision;
pub(crate) mod signing_request;
mod x509;

pub use x509::{common_name, organizations};

use crate::rules::Rules;
use crate::table_strategy::{Kind, NameRule, Traits};

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of(
        "certificatesigningrequests",
        Traits::PLAIN.named(NameRule::PathSegment),
        Rules::on(signing_request::validate)
            .changed(signing_decision::validate_main)
            .status(signing_decision::validate_status)
            .parts(&[("approval", signing_decision::validate_approval)]),
    ),
    // Its name depends on its signer, which only the kind's own rules see.
    Kind::of(
        "clustertrustbundles",
        Traits::PLAIN.named(NameRule::PathSegment).revision_wanted(),
        Rules::on(cluster_trust_bundle::validation::validate)
            .changed(cluster_trust_bundle::validation::validate_update),
    ),
    Kind::of(
        "podcertificaterequests",
        Traits::PLAIN.revision_wanted(),
        Rules::on(pod_certificate_request::validation::validate)
            .changed(pod_certificate_request::validation::validate_update)
            .status_at(pod_certificate_request::outcome::validate_status),
    ),
];
