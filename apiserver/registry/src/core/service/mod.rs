//! Service: addresses and ports come from allocators that live in storage.

pub mod validation;

use crate::context::RequestContext;
use crate::strategy::{Part, Strategy, name_rule};
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServiceStrategy;

impl Strategy for ServiceStrategy {
    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        name_rule(syntax::dns1035_label, name, prefix)
    }

    fn counts_generation(&self) -> bool {
        false
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }

    fn validate(&self, _ctx: &RequestContext, object: Ref<'_>) -> Vec<FieldError> {
        validation::validate(object)
    }

    fn validate_update(&self, _ctx: &RequestContext, part: Part, object: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
        if part == Part::Status { Vec::new() } else { validation::validate_update(object, old) }
    }
}
