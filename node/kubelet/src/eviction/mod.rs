//! Eviction: pods that end so that the node keeps memory, room on its disk and process ids for the others; upstream's
//! `pkg/kubelet/eviction`.
//!
//! Every ten seconds the [`manager`] reads what is left ([`observations`]) and compares it with the [`thresholds`]. What
//! follows is decided in [`state`] (pure): which conditions the node has, and which thresholds have been met for long
//! enough to act. Before a pod ends, the node removes what nobody uses ([`reclaim`]). Then the pods are put in order
//! ([`ranking`], pure), and the first that is not critical is evicted, with a [`message`] in upstream's words; its worker
//! ends it. Pods above their own limits of local storage ([`local_storage`], pure) end before that. What pods use is
//! gathered in [`usage`]; the sizes of their files ([`pod_storage`]) come from [`storage_looks`], which counts beside everything else.
//! New pods are kept away meanwhile ([`admission`]). [`metrics`] counts.
//!
//! Never: a file system walked in the way of a decision on memory, more than one pod evicted for the node at a time, a
//! critical, static or mirror pod.

pub mod admission;
pub mod config;
pub mod local_storage;
pub mod manager;
pub mod message;
pub mod metrics;
pub mod observations;
pub mod pod_storage;
pub mod ranking;
pub mod reclaim;
pub mod signal;
pub mod state;
pub mod storage_looks;
pub mod thresholds;
pub mod usage;

#[cfg(test)]
mod tests;

pub use config::{EvictionConfig, GracePeriods};
pub use thresholds::{Threshold, Thresholds, parse_thresholds};
