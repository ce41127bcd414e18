//! ConfigMap: a namespaced map of text and bytes; immutable when it says so. Nothing else.

pub mod validation;

use crate::kind::Kind;
use crate::strategy::Strategy;
use crate::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("", "configmaps");

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConfigMapStrategy;

impl Strategy for ConfigMapStrategy {
    fn counts_generation(&self) -> bool {
        false
    }

    fn rules(&self) -> ValidationRules {
        ValidationRules::create(validation::validate).update(validation::validate_update)
    }
}
