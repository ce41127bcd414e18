//! Usage of nodes and pods as `metrics.k8s.io` shows it.

use jiff::Timestamp;
use machinery_meta::ObjectKey;
use std::collections::HashMap;
use std::time::Duration;

/// Cpu and memory in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Cpu over the window, in billionths of a core.
    pub cpu_nanocores: u64,
    /// The working set at the end of the window.
    pub memory_bytes: u64,
}

/// Usage of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeUsage {
    /// End of the window.
    pub at: Timestamp,
    pub window: Duration,
    pub usage: Usage,
}

/// Usage of a pod's containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodUsage {
    /// End of the window that ended first.
    pub at: Timestamp,
    pub window: Duration,
    /// In order of their names.
    pub containers: Box<[(Box<str>, Usage)]>,
}

/// The last usage that is known of nodes and pods; what was not measured lately is not there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    pub nodes: HashMap<Box<str>, NodeUsage>,
    pub pods: HashMap<ObjectKey, PodUsage>,
}
