//! MutatingAdmissionPolicy: changes of requests in CEL, for the bindings that name it.

mod columns;
mod not_enforced;

use crate::engine::kind::Kind;

pub(crate) static KIND: Kind = Kind::of("admissionregistration.k8s.io", "mutatingadmissionpolicies")
    .traits(super::TRAITS)
    .not_enforced("policies are not evaluated")
    .refused(not_enforced::refusal)
    .default_lines(&[super::defaults::POLICY])
    .columns(columns::cells);
