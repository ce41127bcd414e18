//! Settings of a node: flags of `knarr agent`, and of `knarr server`, which hands them on to the agent that it starts. Names
//! are the kubelet's where it has them.

use crate::agent_eviction::EvictionArguments;
use crate::agent_manifest_url::ManifestUrlArguments;
use crate::agent_reserve::ReserveArguments;
use crate::agent_resources::ResourceArguments;
use crate::agent_shutdown::ShutdownArguments;
use clap::{ArgAction, Args};
use node_kubelet::{RegistrationTaint, SwapBehavior};
use node_proxy::NodePortAddress;
use node_sys::cgroup::CgroupDriver;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

/// Folders in which networks of other programs install their plugins, and that of Debian's packages.
const DEFAULT_CNI_BIN_DIRS: &str = "/opt/cni/bin,/usr/lib/cni";

/// See the module.
#[derive(Args, Debug, Clone)]
pub(crate) struct NodeArguments {
    /// File of upstream's KubeletConfiguration (kubelet.config.k8s.io/v1beta1) for the node; flags win over it
    #[arg(long, value_name = "FILE")]
    pub(crate) kubelet_config: Option<PathBuf>,
    /// Folder of drop-ins (*.conf) of the KubeletConfiguration, joined to it in the order of their names
    #[arg(long, alias = "config-dir", value_name = "FOLDER")]
    pub(crate) kubelet_config_dir: Option<PathBuf>,
    /// Revision of those files' content, for an agent that a server starts
    #[arg(long, hide = true)]
    pub(crate) kubelet_config_revision: Option<String>,
    /// The Node object's name [default: the host's name]
    #[arg(long, alias = "node-name")]
    pub(crate) hostname_override: Option<String>,
    /// This node's address [default: the one that reaches the API server]
    #[arg(long)]
    pub(crate) node_ip: Option<IpAddr>,
    /// The cluster's name servers [default: the tenth address of the services' range]
    #[arg(long, value_delimiter = ',')]
    pub(crate) cluster_dns: Vec<Ipv4Addr>,
    /// Addresses of this node that serve node ports: CIDRs, "primary" (--node-ip), "localhost" (health check ports alone)
    /// or "all"
    #[arg(long, value_delimiter = ',', default_value = "primary")]
    pub(crate) nodeport_addresses: Vec<NodePortAddress>,
    /// Resolver configuration of pods that do not use the DNS of the cluster [default: /etc/resolv.conf, or that of
    /// systemd-resolved where it only names that]
    #[arg(long)]
    pub(crate) resolv_conf: Option<PathBuf>,
    /// Labels added to the node at its registration: name=value,…
    #[arg(long, value_delimiter = ',', value_parser = label)]
    pub(crate) node_labels: Vec<(String, String)>,
    /// Register this node; otherwise another program creates the Node object
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) register_node: bool,
    /// Taints of the node at its registration: key=value:effect,…
    #[arg(long, value_delimiter = ',', value_parser = taint)]
    pub(crate) register_with_taints: Vec<RegistrationTaint>,
    /// Parent cgroup of pods
    #[arg(long, default_value = "/")]
    pub(crate) cgroup_root: String,
    /// Program that makes cgroups: cgroupfs or systemd; that of a container runtime with RuntimeConfig has precedence
    #[arg(long, default_value = "cgroupfs")]
    pub(crate) cgroup_driver: CgroupDriver,
    /// Folder with files of pods that run without an API server, upstream's staticPodPath
    #[arg(long)]
    pub(crate) pod_manifest_path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) manifest_url: ManifestUrlArguments,
    /// Maximum number of pods on this node
    #[arg(long, default_value_t = 110)]
    pub(crate) max_pods: u32,
    /// Maximum number of pods by core of the machine, up to --max-pods; 0 is no such bound
    #[arg(long, default_value_t = 0)]
    pub(crate) pods_per_core: u32,
    /// Pull one image at a time
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) serialize_image_pulls: bool,
    /// Images that are pulled at once, upstream's maxParallelImagePulls [default: no bound]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_parallel_image_pulls: Option<u32>,
    /// File of upstream's CredentialProviderConfig (kubelet.config.k8s.io/v1), or a folder of such files: plugins that have
    /// credentials of registries
    #[arg(long, requires = "image_credential_provider_bin_dir")]
    pub(crate) image_credential_provider_config: Option<PathBuf>,
    /// Folder of the programs of these plugins
    #[arg(long, requires = "image_credential_provider_config")]
    pub(crate) image_credential_provider_bin_dir: Option<PathBuf>,
    /// Refuse to start while the machine has swap
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) fail_swap_on: bool,
    /// Swap of containers, upstream's memorySwap.swapBehavior: NoSwap, or LimitedSwap, a part of the machine's for those of
    /// Burstable pods (cgroup v2)
    #[arg(long, default_value = "NoSwap")]
    pub(crate) memory_swap_behavior: SwapBehavior,
    /// Refuse to start on a machine with cgroup v1
    #[arg(long = "fail-cgroupv1", default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) fail_cgroup_v1: bool,
    /// Show files of /var/log on port 10250 below /logs/, to clients with access to nodes/log
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) enable_system_log_handler: bool,
    /// Answer queries of /logs/ from the machine's journal; needs --enable-system-log-handler
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) enable_system_log_query: bool,
    /// Processes that a pod may have; -1 bounds all pods together only [default: 4096, and on a small machine a
    /// quarter of what all pods together may have]
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) pod_max_pids: Option<i64>,
    /// Maximum size of a container log file before it is rotated (for example 10Mi)
    #[arg(long, default_value = "10Mi", value_parser = log_size)]
    pub(crate) container_log_max_size: u64,
    /// Maximum number of log files of a container
    #[arg(long, default_value_t = 5)]
    pub(crate) container_log_max_files: usize,
    #[command(flatten)]
    pub(crate) reserve: ReserveArguments,
    #[command(flatten)]
    pub(crate) resources: ResourceArguments,
    #[command(flatten)]
    pub(crate) eviction: EvictionArguments,
    #[command(flatten)]
    pub(crate) shutdown: ShutdownArguments,
    /// Socket of an external container runtime [default: the agent's own containerd]
    #[arg(long)]
    pub(crate) container_runtime_endpoint: Option<String>,
    /// Folders of CNI plugins; of two of one name the first counts
    #[arg(long, value_delimiter = ',', default_value = DEFAULT_CNI_BIN_DIRS)]
    pub(crate) cni_bin_dir: Vec<PathBuf>,
    /// Folder in which networks of other programs, such as Cilium and flannel, install their configuration
    #[arg(long, default_value = "/etc/cni/net.d")]
    pub(crate) cni_conf_dir: PathBuf,
    /// Disable the pod network: another program brings it
    #[arg(long)]
    pub(crate) disable_network: bool,
    /// Disable the service proxy
    #[arg(long)]
    pub(crate) disable_proxy: bool,
    /// Disable the DNS server
    #[arg(long)]
    pub(crate) disable_dns: bool,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("{text}: not name=value"))?;
    Ok((name.to_string(), value.to_string()))
}

fn taint(text: &str) -> Result<RegistrationTaint, String> {
    text.parse()
        .map_err(|error: node_kubelet::TaintError| error.to_string())
}

/// In upstream's words where it is none.
fn log_size(text: &str) -> Result<u64, String> {
    let failed = || format!("failed to parse container log max size {text:?}");
    let size: machinery_meta::Quantity = text.parse().map_err(|_| failed())?;
    u64::try_from(size.units()).map_err(|_| failed())
}
