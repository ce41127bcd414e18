//! Pod network of one node.
//!
//! Nodes come from an informer ([`model`]); from them follows what this node needs ([`mod@plan`]): a CNI
//! configuration for its own pod range (bridge, host-local addresses, host ports), a rule that gives pods' packets
//! to the world the node's address, and a plain route to the pods of every other node. It is written when it
//! changes, the configuration last, as pods start when it appears.
//!
//! Everything written stays when the agent ends. A third-party CNI takes over by a configuration whose name sorts
//! before ours. Not here yet: an overlay for nodes that do not share a link, IPv6, NetworkPolicy.

pub mod config;
mod driver;
mod host;
pub mod model;
pub mod plan;

pub use config::{BRIDGE, NetworkConfig};
pub use driver::{NetworkError, start};
