//! Kinds of apps.

mod columns;
pub mod controller_revision;
pub mod daemon_set;
mod defaults;
pub mod deployment;
pub mod replica_set;
pub mod stateful_set;
pub(crate) mod status;
mod workload;
