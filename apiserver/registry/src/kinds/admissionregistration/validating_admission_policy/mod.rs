//! ValidatingAdmissionPolicy: checks of requests in CEL, for the bindings that name it.

mod columns;

use crate::engine::kind::Kind;

pub(crate) static KIND: Kind = Kind::of("admissionregistration.k8s.io", "validatingadmissionpolicies")
    .traits(super::TRAITS)
    .not_enforced("policies are not evaluated")
    .prepare_for_update(crate::engine::metadata::keep_in_status)
    .default_lines(&[super::defaults::POLICY])
    .columns(columns::cells);
