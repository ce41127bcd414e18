//! ConfigMap: a namespaced map of text and bytes; immutable when it says so. Nothing else.

pub mod validation;

use crate::rules::Rules;
use crate::strategy::Strategy;

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConfigMapStrategy;

impl Strategy for ConfigMapStrategy {
    fn counts_generation(&self) -> bool {
        false
    }

    fn rules(&self) -> Rules {
        Rules::on(validation::validate).changed(validation::validate_update)
    }
}
