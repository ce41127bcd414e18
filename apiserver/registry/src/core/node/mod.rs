//! Node: registers with its status; afterwards the status is its agent's.

use crate::strategy::Strategy;

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeStrategy;

impl Strategy for NodeStrategy {
    fn counts_generation(&self) -> bool {
        false
    }

    fn keeps_status_on_create(&self) -> bool {
        true
    }
}
