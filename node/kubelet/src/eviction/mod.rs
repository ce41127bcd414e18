//! Eviction: pods that end so that the node keeps memory, room on its disk and process ids for the others; upstream's
//! `pkg/kubelet/eviction`.
//!
//! Every ten seconds the [`manager`] reads what is left ([`observations`]) and compares it with the [`thresholds`].
//! [`state`] decides (pure): which conditions the node has, and which thresholds have been met for long
//! enough to act. Before a pod ends, the node removes what is not used ([`reclaim`]). Then the pods are put in order
//! ([`ranking`], pure), and the first that is not critical is evicted, with a [`message`] in upstream's words; its worker
//! ends it. Pods above their own limits of local storage ([`local_storage`], pure) end before that. Usage of pods is
//! gathered in [`usage`]; the sizes of their files ([`pod_storage`]) come from [`storage_looks`], which counts beside everything else.
//! New pods are kept away meanwhile ([`admission`]). [`metrics`] counts.
//!
//! Never: a file system walked in the way of a decision on memory, more than one pod evicted for the node at a time, a
//! critical, static or mirror pod.

pub(crate) mod admission;
pub(crate) mod config;
pub(crate) mod local_storage;
pub(crate) mod manager;
pub(crate) mod message;
pub(crate) mod metrics;
pub(crate) mod observations;
pub(crate) mod pod_storage;
pub(crate) mod ranking;
pub(crate) mod reclaim;
pub(crate) mod signal;
pub(crate) mod state;
pub(crate) mod storage_looks;
pub mod thresholds;
pub(crate) mod usage;

#[cfg(test)]
mod tests;

pub use config::{EvictionConfig, GracePeriods};
pub use thresholds::{Threshold, Thresholds, parse_thresholds};
