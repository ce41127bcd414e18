//! The kinds of resource.k8s.io that have rules of their own: what asks for devices, what was given, what taints them.
//!
//! Upstream declares part of the rules beside its types and tells what is declared after what it looks at itself:
//! [`Problems`] keeps the two apart. CEL expressions are not compiled here.

pub(crate) mod admin_access;
pub mod allocation;
pub mod claim;
pub(crate) mod devices;
pub mod taint_rule;

use crate::rules::Rules;
use crate::table_strategy::{Kind, Traits};
use crate::validation::Errors;
use machinery_meta::FieldError;

/// The kinds of this group.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of(
        "devicetaintrules",
        Traits::COUNTED.revision_wanted(),
        Rules::on(taint_rule::validate).status(taint_rule::validate_status),
    ),
    Kind::of("deviceclasses", Traits::COUNTED.returned(), Rules::NONE),
    Kind::of("resourceslices", Traits::COUNTED.returned(), Rules::NONE),
    Kind::of(
        "resourceclaims",
        Traits::PLAIN.returned(),
        Rules::on(claim::validate)
            .changed(claim::validate_update)
            .status(allocation::validate_status),
    ),
    Kind::of(
        "resourceclaimtemplates",
        Traits::PLAIN.returned(),
        Rules::on(claim::validate_template).changed(claim::validate_template_update),
    ),
];

/// What was found, told in upstream's order.
#[derive(Debug, Default)]
struct Problems {
    seen: Errors,
    declared: Errors,
}

impl Problems {
    fn into_list(self) -> Vec<FieldError> {
        let mut all = self.seen.into_list();
        all.extend(self.declared.into_list());
        all
    }
}
