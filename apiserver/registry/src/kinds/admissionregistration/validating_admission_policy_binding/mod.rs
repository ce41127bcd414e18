//! ValidatingAdmissionPolicyBinding: where a policy holds, and what follows when it fails.

mod not_enforced;

use crate::engine::kind::Kind;

pub(crate) static KIND: Kind = Kind::of(
    "admissionregistration.k8s.io",
    "validatingadmissionpolicybindings",
)
.traits(super::TRAITS)
.not_enforced("policies are not evaluated")
.refused(not_enforced::refusal)
.default_lines(&[super::defaults::BINDING])
.columns(super::columns::binding);
