//! The place that a node runs in ([`host`]), for `up` and `down` and for the tests that start a cluster of their own, and the
//! start of other programs ([`process`]).
//!
//! Nothing here is linked into what users run.

pub mod host;
pub mod process;
