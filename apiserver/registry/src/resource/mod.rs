//! The kinds of resource.k8s.io that have rules of their own: what asks for devices, what was given, what taints them.
//!
//! Upstream declares part of the rules beside its types and tells what is declared after what it looks at itself:
//! [`Problems`] keeps the two apart. CEL expressions are not compiled here.

pub(crate) mod admin_access;
pub mod allocation;
pub mod claim;
pub(crate) mod devices;
pub mod taint_rule;

use crate::table_strategy::{Kind, Traits};
use crate::validation::Errors;
use crate::validation_rules::ValidationRules;
use machinery_meta::FieldError;

/// The kinds of this group.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of(
        "devicetaintrules",
        Traits::COUNTED.revision_wanted(),
        ValidationRules::create(taint_rule::validate).status(taint_rule::validate_status),
    ),
    Kind::of("deviceclasses", Traits::COUNTED.returned(), ValidationRules::NONE),
    Kind::of(
        "resourceslices",
        Traits::COUNTED.returned(),
        ValidationRules::NONE,
    ),
    Kind::of(
        "resourceclaims",
        Traits::PLAIN.returned(),
        ValidationRules::create(claim::validate)
            .update(claim::validate_update)
            .status(allocation::validate_status),
    ),
    Kind::of(
        "resourceclaimtemplates",
        Traits::PLAIN.returned(),
        ValidationRules::create(claim::validate_template).update(claim::validate_template_update),
    ),
];

/// Problems in upstream's order: those of code before those that upstream declares.
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
