//! MutatingAdmissionPolicyBinding: where a policy holds, and with which parameters.

use crate::engine::kind::Kind;

pub(crate) static KIND: Kind = Kind::of("admissionregistration.k8s.io", "mutatingadmissionpolicybindings")
    .traits(super::TRAITS)
    .not_enforced("policies are not evaluated")
    .default_lines(&[super::defaults::BINDING])
    .columns(super::columns::binding);
