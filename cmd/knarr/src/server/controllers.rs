//! The flags of the controllers; names and defaults are `kube-controller-manager`'s.

use crate::near;
use anyhow::bail;
use clap::Args;
use cluster::{ControllerConfig as Config, HorizontalPodAutoscalerConfig, Selection};
use ipnet::IpNet;
use jiff::SignedDuration;
use std::time::Duration;

/// See the module. Absent flags leave [`Config`] as it is.
///
/// There is no `--node-monitor-period`: each node is looked at when its own time comes.
#[derive(Debug, Args)]
pub(crate) struct ControllerArguments {
    /// Controllers to run: 'name' runs it, '-name' does not, '*' stands for those on by default
    #[arg(long, long_help = controllers_help(), value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub(crate) controllers: Vec<String>,
    /// Address range of pods (CIDR)
    #[arg(long, default_value = "10.244.0.0/16")]
    pub(crate) cluster_cidr: IpNet,
    /// Prefix length of the pod range of each node
    #[arg(long, default_value_t = defaults().node_cidr_mask_size)]
    pub(crate) node_cidr_mask_size_ipv4: u8,
    /// Time without a heartbeat after which a node is unhealthy (for example 50s)
    #[arg(long, value_parser = duration, default_value = "50s")]
    pub(crate) node_monitor_grace_period: Duration,
    /// Time without a first heartbeat after which a new node is unhealthy
    #[arg(long, value_parser = duration, default_value = "60s")]
    pub(crate) node_startup_grace_period: Duration,
    /// Nodes per second whose pods are evicted in a healthy zone
    #[arg(long, value_parser = rate, default_value_t = defaults().node_eviction_rate)]
    pub(crate) node_eviction_rate: f64,
    /// Nodes per second whose pods are evicted in a large disrupted zone
    #[arg(long, value_parser = rate, default_value_t = defaults().secondary_node_eviction_rate)]
    pub(crate) secondary_node_eviction_rate: f64,
    /// Maximum number of nodes of a small zone; in a small disrupted zone no pod is evicted
    #[arg(long, default_value_t = defaults().large_cluster_size_threshold)]
    pub(crate) large_cluster_size_threshold: usize,
    /// Share of unhealthy nodes from which on a zone is disrupted
    #[arg(long, value_parser = rate, default_value_t = defaults().unhealthy_zone_threshold)]
    pub(crate) unhealthy_zone_threshold: f64,
    /// Maximum number of terminated pods that are kept; 0 keeps all
    #[arg(long, default_value_t = defaults().terminated_pod_gc_threshold)]
    pub(crate) terminated_pod_gc_threshold: usize,
    /// Leaves a volume that is in use on a node that is unhealthy for six minutes
    #[arg(long)]
    pub(crate) disable_force_detach_on_timeout: bool,
    /// Time without use after which a token of a Secret is marked invalid; it is deleted after the same time again
    #[arg(long, value_parser = duration, default_value = "8760h0m0s")]
    pub(crate) legacy_service_account_token_clean_up_period: Duration,
    /// Interval between reconciles of a HorizontalPodAutoscaler
    #[arg(long, value_parser = duration, default_value = "15s")]
    pub(crate) horizontal_pod_autoscaler_sync_period: Duration,
    /// Time for which autoscalers without a behavior keep the size that was recommended last before they make it less
    #[arg(long, value_parser = duration, default_value = "5m0s")]
    pub(crate) horizontal_pod_autoscaler_downscale_stabilization: Duration,
    /// Part of a target by which its metric may be off without a change of the size
    #[arg(long, value_parser = rate, default_value_t = defaults().horizontal_pod_autoscaler.tolerance)]
    pub(crate) horizontal_pod_autoscaler_tolerance: f64,
    /// Time after the start of a pod within which its cpu counts only while it is ready
    #[arg(long, value_parser = duration, default_value = "5m0s")]
    pub(crate) horizontal_pod_autoscaler_cpu_initialization_period: Duration,
    /// Time after the start of a pod within which a change of its readiness is its first
    #[arg(long, value_parser = duration, default_value = "30s")]
    pub(crate) horizontal_pod_autoscaler_initial_readiness_delay: Duration,
    /// Longest life of a certificate that is signed for a CertificateSigningRequest
    #[arg(long, value_parser = duration, default_value = "8760h0m0s")]
    pub(crate) cluster_signing_duration: Duration,
}

fn defaults() -> Config {
    Config::default()
}

/// A duration as Go writes it: `50s`, `1m30s`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<SignedDuration>().ok();
    let positive = parsed.and_then(|own| Duration::try_from(own).ok());
    positive.ok_or_else(|| "give a duration, as in 50s or 1m30s".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let parsed = text.parse::<f64>().ok();
    let usable = parsed.filter(|own| own.is_finite() && *own >= 0.0);
    usable.ok_or_else(|| "give a number that is not below 0".to_owned())
}

/// The refusal of a word, with the name that it resembles, or all that there are.
fn unknown(word: &str) -> String {
    let shown = near::shown(word);
    match near::nearest(word.trim_start_matches('-'), Selection::known()) {
        Some(name) => format!("{shown:?} is not in the list of known controllers; did you mean {name:?}?"),
        None => {
            let all: Vec<&str> = Selection::known().collect();
            format!(
                "{shown:?} is not in the list of known controllers, which are {}",
                all.join(", ")
            )
        }
    }
}

fn controllers_help() -> String {
    let all: Vec<&str> = Selection::known().collect();
    format!(
        "Controllers to run: 'name' runs it, '-name' does not, '*' stands for those on by default. All controllers: {}",
        all.join(", ")
    )
}

impl ControllerArguments {
    /// Checks combinations of flags.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if let Some(word) = self.selection().unknown() {
            bail!("--controllers: {}", unknown(word));
        }
        if self.cluster_cidr.addr().is_ipv6() {
            bail!(
                "--cluster-cidr {}: nodes give their pods IPv4 addresses only",
                self.cluster_cidr
            );
        }
        if self.unhealthy_zone_threshold > 1.0 {
            bail!(
                "--unhealthy-zone-threshold {} is a share: give at most 1",
                self.unhealthy_zone_threshold
            );
        }
        let (whole, part) = (self.cluster_cidr.prefix_len(), self.node_cidr_mask_size_ipv4);
        if !(whole..=32).contains(&part) {
            bail!(
                "--node-cidr-mask-size-ipv4 {part}: no part of --cluster-cidr {}",
                self.cluster_cidr
            );
        }
        Ok(())
    }

    /// The controllers to run.
    pub(crate) fn selection(&self) -> Selection {
        Selection::Listed(self.controllers.clone())
    }

    /// Puts the flags into the controllers' settings.
    pub(crate) fn apply(&self, config: &mut Config) {
        config.cluster_cidr = self.cluster_cidr.to_string();
        config.node_cidr_mask_size = self.node_cidr_mask_size_ipv4;
        config.node_monitor_grace_period = self.node_monitor_grace_period;
        config.node_startup_grace_period = self.node_startup_grace_period;
        config.node_eviction_rate = self.node_eviction_rate;
        config.secondary_node_eviction_rate = self.secondary_node_eviction_rate;
        config.large_cluster_size_threshold = self.large_cluster_size_threshold;
        config.unhealthy_zone_threshold = self.unhealthy_zone_threshold;
        config.terminated_pod_gc_threshold = self.terminated_pod_gc_threshold;
        config.disable_force_detach_on_timeout = self.disable_force_detach_on_timeout;
        config.legacy_token_clean_up_period = self.legacy_service_account_token_clean_up_period;
        config.horizontal_pod_autoscaler = HorizontalPodAutoscalerConfig {
            sync_period: self.horizontal_pod_autoscaler_sync_period,
            downscale_stabilization: self.horizontal_pod_autoscaler_downscale_stabilization,
            tolerance: self.horizontal_pod_autoscaler_tolerance,
            cpu_initialization_period: self.horizontal_pod_autoscaler_cpu_initialization_period,
            initial_readiness_delay: self.horizontal_pod_autoscaler_initial_readiness_delay,
        };
        config.cluster_signing_duration = self.cluster_signing_duration;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        controllers: ControllerArguments,
    }

    fn parse(flags: &[&str]) -> Result<ControllerArguments, clap::Error> {
        let line = Line::try_parse_from([&["knarr"], flags].concat());
        line.map(|line| line.controllers)
    }

    #[test]
    fn controller_settings_keep_defaults_without_flags() {
        let mut config = Config::default();
        parse(&[]).unwrap().apply(&mut config);
        assert_eq!(config, Config::default());
    }

    #[test]
    fn flags_reach_the_settings() {
        let flags = [
            "--node-monitor-grace-period=1m30s",
            "--node-startup-grace-period=90s",
            "--node-eviction-rate=2",
            "--secondary-node-eviction-rate=0.5",
            "--large-cluster-size-threshold=7",
            "--unhealthy-zone-threshold=0.75",
            "--terminated-pod-gc-threshold=3",
            "--legacy-service-account-token-clean-up-period=48h",
            "--cluster-signing-duration=24h",
            "--node-cidr-mask-size-ipv4=26",
            "--cluster-cidr=10.1.0.0/20",
            "--horizontal-pod-autoscaler-sync-period=5s",
            "--horizontal-pod-autoscaler-downscale-stabilization=1m",
            "--horizontal-pod-autoscaler-tolerance=0.2",
            "--horizontal-pod-autoscaler-cpu-initialization-period=3m",
            "--horizontal-pod-autoscaler-initial-readiness-delay=10s",
        ];
        let mut config = Config::default();
        let parsed = parse(&flags).unwrap();
        parsed.check().unwrap();
        parsed.apply(&mut config);
        let expected = Config {
            cluster_cidr: "10.1.0.0/20".to_owned(),
            node_cidr_mask_size: 26,
            node_monitor_grace_period: Duration::from_secs(90),
            node_startup_grace_period: Duration::from_secs(90),
            node_eviction_rate: 2.0,
            secondary_node_eviction_rate: 0.5,
            large_cluster_size_threshold: 7,
            unhealthy_zone_threshold: 0.75,
            terminated_pod_gc_threshold: 3,
            legacy_token_clean_up_period: Duration::from_secs(48 * 3_600),
            horizontal_pod_autoscaler: HorizontalPodAutoscalerConfig {
                sync_period: Duration::from_secs(5),
                downscale_stabilization: Duration::from_secs(60),
                tolerance: 0.2,
                cpu_initialization_period: Duration::from_secs(180),
                initial_readiness_delay: Duration::from_secs(10),
            },
            root_ca: String::new(),
            cluster_signing_duration: Duration::from_secs(24 * 3_600),
            ..Config::default()
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn controllers_that_are_unknown_are_refused_with_a_near_name_or_all() {
        let refused = |flag: &str| parse(&[flag]).unwrap().check().unwrap_err().to_string();
        assert_eq!(
            refused("--controllers=*,-deploymnet-controller"),
            r#"--controllers: "-deploymnet-controller" is not in the list of known controllers; did you mean "deployment-controller"?"#
        );
        let all = refused("--controllers=bananas");
        assert!(
            all.contains("which are ") && all.contains(", job-controller, "),
            "{all}"
        );
        let help = Line::command().render_long_help().to_string();
        assert!(help.contains(", job-controller, "), "{help}");
    }

    #[test]
    fn senseless_flags_are_refused() {
        for flag in ["--node-monitor-grace-period=soon", "--node-eviction-rate=-1"] {
            assert!(parse(&[flag]).is_err(), "{flag}");
        }
        for flag in [
            "--unhealthy-zone-threshold=55",
            "--node-cidr-mask-size-ipv4=8",
            "--cluster-cidr=fd00::/64",
            "--controllers=deploymnet-controller",
            "--controllers=*,-nosuch",
        ] {
            assert!(parse(&[flag]).unwrap().check().is_err(), "{flag}");
        }
    }
}
