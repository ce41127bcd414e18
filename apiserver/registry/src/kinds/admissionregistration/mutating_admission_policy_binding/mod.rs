//! MutatingAdmissionPolicyBinding: where a policy holds, and with which parameters.

mod validation;

use crate::engine::kind::Kind;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("admissionregistration.k8s.io", "mutatingadmissionpolicybindings")
    .traits(super::TRAITS)
    .rules(ValidationRules::create(validation::create).update(validation::update))
    .warnings(super::static_names::warnings)
    .default_lines(&[super::defaults::BINDING])
    .columns(super::columns::binding);
