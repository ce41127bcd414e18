//! ValidatingAdmissionPolicy: checks of requests in CEL, for the bindings that name it.

mod columns;
mod validation;

use crate::engine::kind::Kind;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("admissionregistration.k8s.io", "validatingadmissionpolicies")
    .traits(super::TRAITS)
    .rules(
        ValidationRules::create(validation::create)
            .update(validation::update)
            .status(validation::status),
    )
    .warnings(super::static_names::warnings)
    .prepare_for_update(crate::engine::metadata::keep_in_status)
    .default_lines(&[super::defaults::POLICY])
    .columns(columns::cells);
