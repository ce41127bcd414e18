//! ConfigMap: a namespaced map of text and bytes; immutable when it says so. Nothing else.

pub mod validation;

use crate::strategy::Strategy;
use crate::validation_rules::ValidationRules;

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
