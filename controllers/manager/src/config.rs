//! What an operator may set, with upstream's names and defaults (`kube-controller-manager`'s flags).

use std::time::Duration;

/// Settings of all controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `--cluster-cidr`: where nodes' pod ranges are cut from.
    pub cluster_cidr: String,
    /// `--node-cidr-mask-size-ipv4`.
    pub node_cidr_mask_size: u8,
    /// `--node-monitor-grace-period`: a node that is silent longer is unknown.
    pub node_monitor_grace_period: Duration,
    /// `--terminated-pod-gc-threshold`: finished pods beyond this are deleted; zero keeps all.
    pub terminated_pod_gc_threshold: usize,
    /// `--root-ca-file`'s content, published to every namespace.
    pub root_ca: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cluster_cidr: "10.244.0.0/16".to_owned(),
            node_cidr_mask_size: 24,
            node_monitor_grace_period: Duration::from_secs(50),
            terminated_pod_gc_threshold: 12_500,
            root_ca: String::new(),
        }
    }
}
