//! ConfigMap: a namespaced map of text and bytes; immutable when it says so. Nothing else.

pub mod validation;

use crate::context::RequestContext;
use crate::strategy::{Part, Strategy};
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConfigMapStrategy;

impl Strategy for ConfigMapStrategy {
    fn counts_generation(&self) -> bool {
        false
    }

    fn validate(&self, _ctx: &RequestContext, object: Ref<'_>) -> Vec<FieldError> {
        validation::validate(object)
    }

    fn validate_update(
        &self,
        _ctx: &RequestContext,
        _part: Part,
        object: Ref<'_>,
        old: Ref<'_>,
    ) -> Vec<FieldError> {
        validation::validate_update(object, old)
    }
}
