//! ValidatingAdmissionPolicy: checks of requests in CEL, for the bindings that name it.

use crate::kind::Kind;

pub(crate) static KIND: Kind = Kind::of("admissionregistration.k8s.io", "validatingadmissionpolicies")
    .traits(super::TRAITS)
    .not_enforced("policies are not evaluated");
