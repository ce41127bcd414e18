//! Turns verbs on a kind into reads and writes of storage.

pub mod apps;
pub mod batch;
pub mod coordination;
pub mod core;
pub mod discovery;
pub mod rbac;
pub mod validation;
