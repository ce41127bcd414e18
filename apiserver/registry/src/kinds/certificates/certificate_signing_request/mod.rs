//! CertificateSigningRequest: a request for a certificate, the decision on it, and the certificate.

pub(crate) mod decision;
pub(crate) mod validation;

use crate::kind::{Kind, NameRule, Traits};
use crate::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("certificates.k8s.io", "certificatesigningrequests")
    .traits(Traits::PLAIN.named(NameRule::PathSegment))
    .rules(
        ValidationRules::create(validation::validate)
            .update(decision::validate_main)
            .status(decision::validate_status)
            .parts(&[("approval", decision::validate_approval)]),
    )
    .not_enforced("no signer acts on it");
