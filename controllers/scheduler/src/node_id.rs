//! Numbers of nodes.

/// A row of the table of nodes.
pub type NodeId = usize;
