//! MutatingAdmissionPolicy: changes of requests in CEL, for the bindings that name it.

mod columns;
mod validation;

use crate::engine::kind::Kind;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("admissionregistration.k8s.io", "mutatingadmissionpolicies")
    .traits(super::TRAITS)
    .rules(ValidationRules::create(validation::create).update(validation::update))
    .warnings(super::static_names::warnings)
    .default_lines(&[super::defaults::POLICY])
    .columns(columns::cells);
