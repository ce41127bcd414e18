//! Service: addresses and ports come from allocators that live in storage.

use crate::strategy::{Strategy, name_rule};
use machinery_meta::syntax;

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
}
