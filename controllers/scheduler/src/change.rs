//! Objects before and after an event, for the plugins that a waiting pod was rejected by (upstream's queueing hints).
//!
//! A plugin registers for classes of events ([`requeue_on`](crate::framework::Plugin::requeue_on)) and judges the single event by
//! what changed ([`may_help`](crate::framework::Plugin::may_help)). A list that a tenant makes as long as it likes is not compared
//! here but in an attempt, whose steps are charged: a plugin takes an event as one that may help where the pod has such a list.

pub use crate::node_state::NodeState;
use crate::nodes::NodeTable;
use crate::pod::PodInfo;

/// An object that changed. It has no state before it came, and none after it went.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    Node {
        before: Option<&'a NodeState>,
        after: Option<&'a NodeState>,
        nodes: &'a NodeTable,
    },
    /// A pod on a node, or nominated to one.
    Placed {
        before: Option<&'a PodInfo>,
        after: Option<&'a PodInfo>,
        nodes: &'a NodeTable,
    },
    /// The waiting pod itself, as it was.
    Own(&'a PodInfo),
}
