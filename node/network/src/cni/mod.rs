//! Pods' links and addresses, made inside the agent.
//!
//! A container runtime starts the CNI plugin that the configuration of the plan names ([`PLUGIN`]): a small static program
//! (`plugin/main.rs`, written to the node by [`install()`]) that sends its environment and input over a socket beside it
//! ([`server`], frames in [`frame`]) and prints the answer. The agent reads the call ([`call`]), takes an address ([`leases`],
//! files as CNI's `host-local` has them, so that a node changes from one to the other while its pods run), makes the link ([`links`])
//! and answers ([`answers`]); [`plugin`] puts these together. Remains of a killed agent or runtime are found by comparing
//! leases with the sandboxes that exist ([`collector`]).
//!
//! Invariant: a lease is there before its link and as long as it, so that whatever is killed leaves a name to clean up by.
//! The range of addresses is a part of the configuration, so that pods start while the API server is away.

mod answers;
mod call;
mod collector;
#[cfg_attr(not(test), expect(dead_code, reason = "the program's side of the frames"))]
mod frame;
mod install;
mod leases;
pub mod links;
mod plugin;
mod server;

#[cfg(test)]
mod tests;

pub use call::NETWORK;
pub use install::{LOOPBACK, PLUGIN, install};
pub use plugin::Plugin;
pub use server::serve;
