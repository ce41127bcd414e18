//! Graceful node shutdown: a lock delays the machine's way down, and pods end by priority meanwhile.
//!
//! [`manager`] holds the lock at logind and follows its news. At a shutdown the node is not ready, admits no pod, and its pods end:
//! [`groups`] says together with which others, [`ending`] carries it out, [`record`] writes down when. Without periods
//! ([`config`]) nothing of this runs.
//!
//! Never: a pod that waits for one of higher priority; a lock that is held longer than the sum of the periods.
//!
//! Upstream: `pkg/kubelet/nodeshutdown` (KEP-2000, KEP-2712).

pub(crate) mod admission;
pub mod config;
mod ending;
mod groups;
pub(crate) mod manager;
pub(crate) mod metrics;
mod record;
#[cfg(test)]
mod tests;

pub use config::{ShutdownConfig, ShutdownPeriod};
