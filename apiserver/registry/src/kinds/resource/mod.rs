//! Kinds of resource.k8s.io: what requests devices, what was given, what taints them.
//!
//! Upstream declares part of the rules beside its types and reports what is declared after what it checks itself:
//! [`Problems`] keeps the two apart.

pub(crate) mod admin_access;
mod defaults;
pub mod device_class;
pub mod device_taint_rule;
pub(crate) mod devices;
mod qualified_names;
pub mod resource_claim;
pub mod resource_claim_template;
pub mod resource_slice;

use crate::shared::validation::Errors;
use machinery_meta::FieldError;

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
