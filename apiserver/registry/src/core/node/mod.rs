//! Node: registers with its status; afterwards the status is its agent's.

pub mod validation;

use crate::context::RequestContext;
use crate::strategy::{Part, Strategy};
use machinery_meta::FieldError;
use machinery_schema::{Ref, Tree};

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeStrategy;

impl Strategy for NodeStrategy {
    fn defaults(&self, object: &mut Tree) {
        crate::defaults::apply("", "nodes", object);
    }

    fn counts_generation(&self) -> bool {
        false
    }

    fn keeps_status_on_create(&self) -> bool {
        true
    }

    fn validate(&self, _ctx: &RequestContext, object: Ref<'_>) -> Vec<FieldError> {
        validation::validate(object)
    }

    fn validate_update(
        &self,
        _ctx: &RequestContext,
        part: Part,
        object: Ref<'_>,
        old: Ref<'_>,
    ) -> Vec<FieldError> {
        let mut all = match part {
            Part::Status => Vec::new(),
            _ => validation::validate(object),
        };
        all.extend(validation::validate_update(object, old));
        all
    }
}
