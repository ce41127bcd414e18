//! Pod network of one node.
//!
//! Nodes come from an informer ([`model`]); from them follows what this node needs ([`mod@plan`]): a CNI
//! configuration for its own pod range (a routed link per pod, an address of the range), rules that give
//! pods' packets to the world the node's address and drop those with a source that is not the pod's, and a plain
//! route to the pods of every other node. Rules come before the configuration, as pods start when that appears;
//! what cannot be written for one node stops no other. Ports of the node that lead to pods are a table of their own
//! ([`host_ports`]), which the kubelet's pods hold.
//!
//! Container runtimes start the plugin of that configuration, which asks the agent for link and address ([`cni`]).
//!
//! Everything written stays when the agent ends. A network of another program takes over by a configuration whose name sorts
//! before ours ([`third_party`]): rules, routes and configuration of ours go while it is there. Not here yet: an overlay for nodes that do not share a link, IPv6, NetworkPolicy.

pub mod cni;
pub mod config;
mod driver;
mod host;
pub mod host_ports;
pub mod model;
pub mod plan;
pub mod third_party;
#[cfg(test)]
mod view_memory;

pub use config::{NetworkConfig, POD_LINKS};
pub use driver::{NetworkError, start};
