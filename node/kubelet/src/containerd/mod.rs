//! A containerd of our own: its configuration, its start, and knowing it again.
//!
//! It lives in the agent's mount namespace and in a session of its own; it and its containers outlive
//! the agent, and the next agent joins their namespace ([`instance::join_namespace`]) before anything
//! else. If containerd has died meanwhile, its shims still hold the namespace, and a new containerd
//! finds its containers through them.

pub mod config;
pub mod instance;

pub use instance::{Containerd, ContainerdError};
