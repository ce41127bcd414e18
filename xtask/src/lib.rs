//! The place that a node runs in ([`host`]) and further nodes beside it ([`nodes`]), for `up` and `down`, the conformance suite
//! and the tests that start a cluster of their own, and the start of other programs ([`process`]).
//!
//! Nothing here is linked into what users run.

pub mod host;
pub mod nodes;
pub mod process;
