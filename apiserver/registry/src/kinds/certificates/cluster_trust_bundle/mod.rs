//! ClusterTrustBundle: trust anchors, of a signer or of none.

mod columns;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::selectable::Selectable;
use crate::engine::traits::{NameRule, Traits};
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("certificates.k8s.io", "clustertrustbundles")
    .traits(Traits::PLAIN.named(NameRule::PathSegment).revision_wanted())
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .columns(columns::cells)
    .selectable(|| Selectable::texts(["spec.signerName"]));
