//! Changes of `up` and `down` to a machine, for themselves and for the tests that start a cluster of their own: the place
//! a node runs in ([`host`]), and leaving nothing of it behind ([`removal`]).
//!
//! Nothing here is linked into what users run.

pub mod host;
pub mod process;
pub mod removal;
