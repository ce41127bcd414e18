//! Configuration of the agent, read once.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use node_network::host_ports::HostPortsConfig;
use node_sys::cgroup::CgroupDriver;
use node_sys::machine::Machine;

use crate::cdi::CdiSource;
use crate::containers::groups::PodGroups;
use crate::eviction::config::EvictionConfig;
use crate::images::collection::ImageCollectionConfig;
use crate::images::providers::config::CredentialProvidersConfig;
use crate::node::reserve::Reserve;
use crate::node::taints::RegistrationTaint;
use crate::resource_managers::ResourceManagersConfig;
use crate::server::system_logs::config::SystemLogsConfig;
use crate::shutdown::ShutdownConfig;
use crate::static_pods::folder::StaticPodSource;
use crate::static_pods::url::StaticPodUrl;

/// Swap of containers, upstream's `memorySwap.swapBehavior`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SwapBehavior {
    /// None has any.
    #[default]
    NoSwap,
    /// Those of Burstable pods have parts of the machine's by their requests of memory.
    LimitedSwap,
}

impl SwapBehavior {
    /// Upstream's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSwap => "NoSwap",
            Self::LimitedSwap => "LimitedSwap",
        }
    }
}

impl std::str::FromStr for SwapBehavior {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" | "NoSwap" => Ok(Self::NoSwap),
            "LimitedSwap" => Ok(Self::LimitedSwap),
            other => Err(format!(
                "{other:?} must be one of: \"\", \"LimitedSwap\" or \"NoSwap\""
            )),
        }
    }
}

/// The kubelet's configuration; names are upstream's where upstream has the thing.
#[derive(Debug, Clone)]
pub struct KubeletConfig {
    /// The Node object's name.
    pub node_name: String,
    /// The address other nodes and the API server reach this node by.
    pub node_ip: IpAddr,
    /// Everything we write lies below.
    pub data_dir: PathBuf,
    /// Sockets of device plugins, and of clients that read devices of pods, lie in folders below it.
    pub plugins_root: PathBuf,
    /// Folder in which stock programs look for those folders, where it is to show them: in a mount namespace of the agent's own.
    pub plugins_shown_in: Option<PathBuf>,
    /// Folder in which log agents look for logs of pods, where it is to show them: in the same mount namespace.
    pub logs_shown_in: Option<PathBuf>,
    /// Addresses and ports of the node that host ports do not get.
    pub host_ports: HostPortsConfig,
    /// Name servers of the cluster, for pods whose DNS policy requests them.
    pub cluster_dns: Vec<IpAddr>,
    /// The cluster's DNS domain.
    pub cluster_domain: String,
    /// The resolver configuration that pods with `dnsPolicy: Default` get.
    pub resolv_conf: PathBuf,
    /// Labels of the Node object beyond our own.
    pub node_labels: BTreeMap<String, String>,
    /// True if the agent makes the Node object.
    pub register_node: bool,
    /// Taints of a Node object that the agent makes.
    pub register_with_taints: Vec<RegistrationTaint>,
    /// Parent cgroup of pods; `/` unless several nodes share a machine.
    pub cgroup_root: String,
    /// The program that makes cgroups, where the runtime does not say.
    pub cgroup_driver: CgroupDriver,
    /// Resources reserved from pods.
    pub reserve: Reserve,
    /// Processors and memory that containers have for themselves.
    pub resource_managers: ResourceManagersConfig,
    /// Eviction of pods, beside the hard thresholds of the reserve.
    pub eviction: EvictionConfig,
    /// Periods in which pods end when the machine goes down.
    pub shutdown: ShutdownConfig,
    /// Removal of unused images.
    pub image_collection: ImageCollectionConfig,
    /// Source of pods that run without an API server.
    pub static_pods: Option<StaticPodSource>,
    /// URL of more of them.
    pub static_pod_url: Option<StaticPodUrl>,
    /// Source of descriptions of devices, for a runtime that reads none.
    pub cdi: CdiSource,
    /// Swap of containers.
    pub swap_behavior: SwapBehavior,
    /// Maximum number of pods on this node.
    pub max_pods: u32,
    /// Images that are pulled at once, where there is a bound.
    pub image_pulls_max: Option<u32>,
    /// Plugins that have credentials of registries.
    pub credential_providers: Option<CredentialProvidersConfig>,
    /// Fields of `/configz` that no setting here decides.
    pub kept_fields: serde_json::Map<String, serde_json::Value>,
    /// Flags that the agent was started with, for `/flagz`.
    pub flags: Vec<(String, String)>,
    /// Logs of the machine that port 10250 shows.
    pub system_logs: SystemLogsConfig,
    /// Processes of one pod, upstream's `podPidsLimit`: none below 1. Without it [`Reserve::pod_pids`] says.
    pub pod_max_pids: Option<i64>,
    /// The authenticated server's port.
    pub port: u16,
    /// Connections to it that are served at once; more wait in the kernel's queue.
    pub max_connections: usize,
    /// The loopback health port, where there is one; 0 is any that is free.
    pub healthz_port: Option<u16>,
    /// Serving certificate and key in PEM; without it one is made and signed by itself.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The serving certificate may come later: until then the agent serves with one of its own making.
    pub tls_awaited: bool,
    /// File of the authorities of client certificates, in PEM.
    pub client_ca: Option<PathBuf>,
    /// Host and port of the API server, for the figures of requests to it.
    pub api_server: String,
    /// Image of the sandboxes, for their figures; the container runtime has it in its own configuration.
    pub pause_image: String,
    /// The CRI socket.
    pub container_runtime_endpoint: PathBuf,
    /// Version that `kubectl get nodes` shows.
    pub version: String,
    /// A container's log is rotated at this size.
    pub container_log_max_bytes: u64,
    /// Maximum number of log files of a container.
    pub container_log_max_files: usize,
}

impl KubeletConfig {
    /// Upstream's defaults, for a node without a name or an address yet.
    pub fn for_data_dir(data_dir: PathBuf) -> Self {
        Self {
            host_ports: HostPortsConfig::default(),
            node_name: String::new(),
            node_ip: IpAddr::from([127, 0, 0, 1]),
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".into(),
            resolv_conf: "/etc/resolv.conf".into(),
            node_labels: BTreeMap::new(),
            register_node: true,
            register_with_taints: Vec::new(),
            cgroup_root: "/".into(),
            cgroup_driver: CgroupDriver::default(),
            reserve: Reserve::default(),
            resource_managers: ResourceManagersConfig::default(),
            eviction: EvictionConfig::default(),
            shutdown: ShutdownConfig::default(),
            image_collection: ImageCollectionConfig::default(),
            static_pods: None,
            static_pod_url: None,
            cdi: CdiSource::default(),
            swap_behavior: SwapBehavior::default(),
            max_pods: 110,
            image_pulls_max: None,
            credential_providers: None,
            kept_fields: serde_json::Map::new(),
            flags: Vec::new(),
            system_logs: SystemLogsConfig::default(),
            pod_max_pids: None,
            port: 10250,
            max_connections: 1_024,
            api_server: String::new(),
            pause_image: String::new(),
            healthz_port: Some(10248),
            tls: None,
            tls_awaited: false,
            client_ca: None,
            container_runtime_endpoint: data_dir.join("containerd/containerd.sock"),
            version: machinery_meta::version::GIT_VERSION.to_owned(),
            container_log_max_bytes: 10 << 20,
            container_log_max_files: 5,
            plugins_root: data_dir.clone(),
            plugins_shown_in: None,
            logs_shown_in: None,
            data_dir,
        }
    }

    /// Paths of the groups of pods.
    pub(crate) fn groups(&self) -> PodGroups<'_> {
        PodGroups {
            root: &self.cgroup_root,
            driver: self.cgroup_driver,
        }
    }

    /// Processes of one pod, where they are bounded.
    pub fn pod_pids(&self, machine: &Machine) -> Option<i64> {
        let limit = self
            .pod_max_pids
            .unwrap_or_else(|| self.reserve.pod_pids(machine));
        Some(limit).filter(|limit| *limit > 0)
    }

    /// The folder of pods: one below it for each, by uid.
    pub fn pods_folder(&self) -> PathBuf {
        self.data_dir.join("pods")
    }

    /// The folder of logs: one below it for each pod.
    pub fn logs_folder(&self) -> PathBuf {
        self.data_dir.join("logs").join("pods")
    }

    /// The folder of logs as pods see it.
    pub fn seen_logs_folder(&self) -> PathBuf {
        match &self.logs_shown_in {
            Some(root) => root.join("pods"),
            None => self.logs_folder(),
        }
    }

    /// Links to the logs of containers.
    pub fn log_links_folder(&self) -> PathBuf {
        self.data_dir.join("logs").join("containers")
    }

    /// The folder of volumes made on this node: one below it for each.
    pub fn local_volumes_folder(&self) -> PathBuf {
        self.data_dir.join("local-volumes")
    }

    /// Sockets of device plugins, and the checkpoint of their devices.
    pub fn device_plugins_folder(&self) -> PathBuf {
        self.plugins_root.join("device-plugins")
    }

    /// The socket at which others read which pod has which devices.
    pub fn pod_resources_folder(&self) -> PathBuf {
        self.plugins_root.join("pod-resources")
    }

    /// Sockets at which plugins of all types register.
    pub fn plugins_registry_folder(&self) -> PathBuf {
        self.plugins_root.join("plugins_registry")
    }

    /// Sockets and files of plugins, and volumes that drivers show once for all pods.
    pub fn plugins_folder(&self) -> PathBuf {
        self.data_dir.join("plugins")
    }

    /// Archives of checkpointed containers.
    pub fn checkpoints_folder(&self) -> PathBuf {
        self.data_dir.join("checkpoints")
    }

    /// Pipes of running exec sessions.
    pub fn run_folder(&self) -> PathBuf {
        self.data_dir.join("run")
    }

    /// Everything wrong with it, each with the flag it came from.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !machinery_meta::syntax::dns1123_subdomain(&self.node_name).is_empty() {
            problems.push(format!(
                "--node-name: {:?} is not a valid node name",
                self.node_name
            ));
        }
        if !self.data_dir.is_absolute() {
            problems.push("--data-dir: must be an absolute path".to_string());
        }
        if !self.cgroup_root.starts_with('/') {
            problems.push("--cgroup-root: must be an absolute path".to_string());
        }
        if self.container_log_max_files <= 1 {
            problems.push(format!(
                "--container-log-max-files: invalid MaxFiles {}, must be > 1",
                self.container_log_max_files
            ));
        }
        problems.extend(self.reserve.problems());
        problems.extend(self.resource_managers.problems(&self.reserve));
        problems.extend(self.eviction.problems());
        problems.extend(self.image_collection.problems());
        problems.extend(self.shutdown.problems());
        let static_pods = self.static_pods.as_ref();
        if static_pods.is_some_and(|source| !source.path.is_absolute()) {
            problems.push("--pod-manifest-path: must be an absolute path".to_string());
        }
        problems.extend(self.static_pod_url.iter().flat_map(StaticPodUrl::problems));
        if self.max_pods == 0 {
            problems.push("--max-pods: must be at least 1".to_string());
        }
        problems
    }
}
