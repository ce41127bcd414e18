//! Settings of an operator, with upstream's names and defaults (`kube-controller-manager`'s flags).

use std::collections::BTreeSet;
use std::time::Duration;

/// Settings of all controllers.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `--cluster-cidr`: where nodes' pod ranges are cut from.
    pub cluster_cidr: String,
    /// `--node-cidr-mask-size-ipv4`.
    pub node_cidr_mask_size: u8,
    /// `--node-monitor-grace-period`: a node that is silent longer is unknown.
    pub node_monitor_grace_period: Duration,
    /// `--node-startup-grace-period`: as much for one that never reported anything.
    pub node_startup_grace_period: Duration,
    /// `--node-eviction-rate`: nodes of a zone tainted `NoExecute` per second.
    pub node_eviction_rate: f64,
    /// `--secondary-node-eviction-rate`: as much where many are not ready.
    pub secondary_node_eviction_rate: f64,
    /// `--large-cluster-size-threshold`: in zones up to this size no node is tainted then.
    pub large_cluster_size_threshold: usize,
    /// `--unhealthy-zone-threshold`: the share of unready nodes that are many.
    pub unhealthy_zone_threshold: f64,
    /// `--terminated-pod-gc-threshold`: finished pods beyond this are deleted; zero keeps all.
    pub terminated_pod_gc_threshold: usize,
    /// `--disable-force-detach-on-timeout`: a volume in use stays on a node that is unhealthy for long.
    pub disable_force_detach_on_timeout: bool,
    /// `--legacy-service-account-token-clean-up-period`: unused tokens of Secrets are marked invalid after this time, and
    /// deleted after as much again.
    pub legacy_token_clean_up_period: Duration,
    /// `--horizontal-pod-autoscaler-…`.
    pub horizontal_pod_autoscaler: HorizontalPodAutoscalerConfig,
    /// `--cluster-signing-duration`: the longest life of a certificate that is signed for a request.
    pub cluster_signing_duration: Duration,
    /// Names and addresses of the API server, for which no kubelet may serve.
    pub api_server_names: BTreeSet<String>,
    /// The cluster's authority, and what `--root-ca-file` adds, published to every namespace.
    pub root_ca: String,
}

/// Settings of HorizontalPodAutoscalers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HorizontalPodAutoscalerConfig {
    /// `…-sync-period`: time between two reconciles of an autoscaler.
    pub sync_period: Duration,
    /// `…-downscale-stabilization`: the size is not less than what was recommended within this time.
    pub downscale_stabilization: Duration,
    /// `…-tolerance`: part of a target by which its metric may be off without a change.
    pub tolerance: f64,
    /// `…-cpu-initialization-period`: cpu of pods counts only while they are ready within this time of their start.
    pub cpu_initialization_period: Duration,
    /// `…-initial-readiness-delay`: a pod whose readiness changed within this time of its start was never ready.
    pub initial_readiness_delay: Duration,
}

impl Default for HorizontalPodAutoscalerConfig {
    fn default() -> Self {
        Self {
            sync_period: Duration::from_secs(15),
            downscale_stabilization: Duration::from_secs(300),
            tolerance: 0.1,
            cpu_initialization_period: Duration::from_secs(300),
            initial_readiness_delay: Duration::from_secs(30),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cluster_cidr: "10.244.0.0/16".to_owned(),
            node_cidr_mask_size: 24,
            node_monitor_grace_period: Duration::from_secs(50),
            node_startup_grace_period: Duration::from_secs(60),
            node_eviction_rate: 0.1,
            secondary_node_eviction_rate: 0.01,
            large_cluster_size_threshold: 50,
            unhealthy_zone_threshold: 0.55,
            terminated_pod_gc_threshold: 12_500,
            disable_force_detach_on_timeout: false,
            legacy_token_clean_up_period: Duration::from_secs(365 * 24 * 3_600),
            horizontal_pod_autoscaler: HorizontalPodAutoscalerConfig::default(),
            cluster_signing_duration: Duration::from_secs(365 * 24 * 3_600),
            api_server_names: BTreeSet::new(),
            root_ca: String::new(),
        }
    }
}
