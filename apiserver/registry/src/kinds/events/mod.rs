//! The kind of events.k8s.io, which is stored as the core group has it.

pub mod event;
