//! PodCertificateRequest: a node asks a signer for the certificate of one of its pods.
//!
//! [`validation`] is what may be requested, [`proof`] that the requester has the key, [`outcome`] what a signer may answer.

mod columns;
mod defaults;
pub mod outcome;
mod proof;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::selectable::Selectable;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("certificates.k8s.io", "podcertificaterequests")
    .traits(Traits::PLAIN.revision_wanted())
    .rules(
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status_at(outcome::validate_status),
    )
    .prepare_for_update(crate::engine::metadata::keep_in_status)
    .default_lines(&[defaults::LINES])
    .columns(columns::cells)
    .selectable(|| Selectable::texts(["spec.signerName", "spec.podName", "spec.nodeName"]));
