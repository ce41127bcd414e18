//! Lease: something that one holder at a time has, and renews.

mod columns;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("coordination.k8s.io", "leases")
    .traits(Traits::PLAIN.any_finalizers().put_creates().revision_wanted())
    .rules(ValidationRules::create(validation::validate))
    .columns(columns::cells);
