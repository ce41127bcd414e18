//! A containerd of our own: its configuration, its start, and knowing it again.
//!
//! It lives in the agent's mount namespace and in a session of its own; it and its containers outlive
//! the agent, and the next agent joins their namespace ([`instance::join_namespace`]) before anything
//! else. A file keeps the namespace even if every process in it has died; a new containerd finds its
//! containers through their shims.

pub mod config;
pub mod instance;
mod repair;

pub use instance::{Containerd, ContainerdError};
