//! `knarr agent`: the node's side, a process of its own. Pod network, service rules, DNS, kubelet, and the
//! containerd they use, in a mount namespace that outlives this process.

use crate::config_file::ConfigArguments;
use crate::join::{self, JoinArguments};
use crate::kubeconfig::KubeconfigFile;
use crate::node_arguments::NodeArguments;
use crate::{
    agent_claim, agent_cni, check, executors, kubelet_configuration, log_rotation, open_files,
    own_certificate,
};
use anyhow::{Context, bail};
use apiserver_server::{FeatureGates, GateComponent};
use clap::Args;
use ipnet::Ipv4Net;
use machinery_client::Client;
use machinery_runtime::Runtime;
use machinery_views::ServiceViews;
use node_cri::CriClient;
use node_dns::DnsConfig;
use node_kubelet::cdi::CdiSource;
use node_kubelet::containerd::config::ContainerdConfig;
use node_kubelet::containerd::{Containerd, instance};
use node_kubelet::images::base;
use node_kubelet::node::reserve::Reserve;
use node_kubelet::resource_managers::ResourceManagersConfig;
use node_kubelet::static_pods::StaticPodSource;
use node_kubelet::{Kubelet, KubeletConfig};
use node_network::NetworkConfig;
use node_network::cni::Plugin;
use node_network::host_ports::HostPortsConfig;
use node_network::third_party::PluginFolders;
use node_proxy::{LinuxKernel, NodePortAddresses, ProxyConfig};
use node_sys::SystemExec;
use node_sys::routes::LinuxRoutes;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// The cluster's DNS server has the tenth address of the services' range, as everywhere.
const DNS_ADDRESS_INDEX: usize = 10;

/// The kubelet's own folder, in which stock device plugins look for its socket.
const UPSTREAM_ROOT: &str = "/var/lib/kubelet";
/// Folder of logs that log agents read.
const UPSTREAM_LOGS: &str = "/var/log";

/// Flags of `knarr agent`; names are the kubelet's where it has them.
#[derive(Args, Debug, Clone)]
pub(crate) struct AgentArguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Data directory of the agent
    #[arg(long, default_value = "/var/lib/knarr/agent")]
    data_dir: PathBuf,
    /// Kubeconfig for the API server, as system:node:NAME [default: kubeconfig in the data directory]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The cluster's DNS domain
    #[arg(long, default_value = "cluster.local")]
    cluster_domain: String,
    /// Addresses of all pods
    #[arg(long, default_value = "10.244.0.0/16")]
    cluster_cidr: Ipv4Net,
    /// Addresses of all services
    #[arg(long, default_value = "10.96.0.0/16")]
    service_cluster_ip_range: Ipv4Net,
    /// The authenticated port
    #[arg(long, default_value_t = 10250)]
    port: u16,
    /// The loopback health port; 0 is none
    #[arg(long, default_value_t = 10248)]
    healthz_port: u16,
    /// Serving certificate [default: kubelet.crt in the data directory, else one of its own making]
    #[arg(long, requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of --tls-cert-file
    #[arg(long)]
    tls_private_key_file: Option<PathBuf>,
    /// Bundle of authorities of client certificates [default: client-ca.crt in the data directory]
    #[arg(long)]
    client_ca_file: Option<PathBuf>,
    /// States of upstream's feature gates, comma separated, repeatable: Name=true or Name=false; a gate is refused in a state that
    /// the agent does not have
    #[arg(long, value_delimiter = ',', value_name = "GATE=BOOL")]
    feature_gates: Vec<String>,
    #[command(flatten, next_help_heading = "Joining a cluster")]
    join: JoinArguments,
    #[command(flatten, next_help_heading = "Node")]
    node: NodeArguments,
}

/// Runs until it receives a signal to end. Pods, containerd and the rules in the kernel stay.
pub(crate) fn run(arguments: AgentArguments) -> anyhow::Result<()> {
    arguments.config.log();
    check_gates(&arguments.feature_gates).context("--feature-gates")?;
    // Before anything is left on the machine.
    has_identity(&arguments)?;
    join::check(&arguments.join, &own_node(&arguments))?;
    node_proxy::check_keywords(&arguments.node.nodeport_addresses).context("--nodeport-addresses")?;
    if !node_sys::machine::is_root() {
        bail!("the node agent needs root: it mounts volumes and makes network namespaces");
    }
    node_sys::fs::make_private_folder(&arguments.data_dir).context("making the data directory")?;
    let _claim = agent_claim::claim(&agent_claim::record()?, &arguments.data_dir, arguments.port)?;
    check_machine(&arguments.node)?;
    if let Some(missing) = check::missing_cgroups() {
        tracing::error!("no pod can start: {missing}");
    }
    node_sys::process::spare_from_oom(std::process::id());
    if arguments.node.container_runtime_endpoint.is_none() {
        // First of all: a process with threads cannot change its mount namespace.
        instance::join_namespace(&arguments.data_dir.join("containerd"))
            .context("entering a mount namespace")?;
    }
    let arguments = joined(arguments)?;
    let services = async {
        let runtime = Runtime::real();
        let plugin = serve_network(&arguments, &runtime).await?;
        Ok((runtime, plugin))
    };
    executors::apart(services, |(beside, plugin)| work(&arguments, beside, plugin))
}

/// Refuses feature gates in states that the agent does not have.
fn check_gates(values: &[String]) -> anyhow::Result<()> {
    let gates = FeatureGates::parse(values.iter().map(String::as_str)).map_err(anyhow::Error::msg)?;
    match gates.refusal(GateComponent::Agent) {
        None => Ok(()),
        Some(why) => bail!(why),
    }
}

/// Refuses to start on a machine that the settings exclude, in upstream's words.
fn check_machine(node: &NodeArguments) -> anyhow::Result<()> {
    if node.fail_swap_on && node_sys::machine::Machine::observe().swap_bytes > 0 {
        bail!(
            "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"
        );
    }
    if node.fail_cgroup_v1 && node_sys::cgroup::detect().version() == 1 {
        bail!(
            "kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported and will be removed in \
             a future release"
        );
    }
    if node.serialize_image_pulls && node.max_parallel_image_pulls.is_some_and(|most| most > 1) {
        bail!(
            "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is set to false"
        );
    }
    Ok(())
}

/// Refuses to start without a kubeconfig, and without a server from which the node gets one.
fn has_identity(arguments: &AgentArguments) -> anyhow::Result<()> {
    let path = kubeconfig(arguments);
    let is_there = path.try_exists().unwrap_or(true);
    if arguments.join.server.is_some() || arguments.join.is_given() || is_there {
        return Ok(());
    }
    bail!(
        "{} is not there: join a cluster with the line that `knarr token create --print-join-command` prints on the server's \
         machine, or give --kubeconfig",
        path.display()
    )
}

/// Joins the cluster where one is given; ranges and domain are the cluster's then.
fn joined(arguments: AgentArguments) -> anyhow::Result<AgentArguments> {
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let facts = executor.block_on(async {
        let runtime = Runtime::real();
        join::enter(&arguments.join, &own_node(&arguments), &runtime).await
    });
    match facts.context("joining the cluster")? {
        None => Ok(arguments),
        Some(facts) => Ok(AgentArguments {
            cluster_domain: facts.cluster_domain,
            cluster_cidr: facts.cluster_cidr,
            service_cluster_ip_range: facts.service_cluster_ip_range,
            ..arguments
        }),
    }
}

fn own_node(arguments: &AgentArguments) -> join::Node {
    join::Node {
        name: node_name(arguments),
        folder: arguments.data_dir.clone(),
        kubeconfig: kubeconfig(arguments),
    }
}

/// Starts what pods that run already request, whatever the container runtime does.
async fn serve_network(arguments: &AgentArguments, runtime: &Runtime) -> anyhow::Result<Arc<Plugin>> {
    // Routes and rules follow all nodes, which the node's own identity may not.
    let client = services_client(arguments, runtime).await?;
    let node_name = node_name(arguments);
    let plugin = agent_cni::start(&arguments.data_dir, runtime)?;
    start_network(arguments, runtime, &client, &node_name)?;
    start_services(arguments, runtime, &client, &node_name);
    Ok(plugin)
}

fn node_name(arguments: &AgentArguments) -> String {
    let host = || node_sys::machine::Machine::observe().hostname.to_lowercase();
    arguments.node.hostname_override.clone().unwrap_or_else(host)
}

/// `beside` is the handle of the other executor, whose components are reported with ours.
async fn work(arguments: &AgentArguments, beside: Runtime, plugin: Arc<Plugin>) -> anyhow::Result<()> {
    let runtime = Runtime::real().with_components_of(&beside);
    log_rotation::keep(arguments.data_dir.join("agent.log"), &runtime);
    let kubeconfig = kubeconfig(arguments);
    let client = Client::following_kubeconfig(&kubeconfig, runtime.clone()).await?;
    // Fields that the node writes have the owner they have upstream.
    let client = client.with_user_agent("kubelet");
    let config = kubelet_config(arguments, &kubeconfig)?;
    let node_name = config.node_name.clone();
    if arguments.join.server.is_some() {
        let (node, address) = (own_node(arguments), config.node_ip);
        join::keep_certificates(&arguments.join, &node, address, &client, &runtime);
    }
    let cri = CriClient::new(&config.container_runtime_endpoint);
    let (own, listing) = (runtime.clone(), cri.clone());
    let collecting = move || agent_cni::collect(Arc::clone(&plugin), listing.clone(), own.clone());
    runtime.keep("leases of pods' addresses", collecting).detach();
    let container_runtime = container_runtime(arguments, &runtime, &cri);
    let kubelet = Kubelet::start(runtime.clone(), config, client.kube().clone(), container_runtime).await?;
    tracing::info!(
        node = node_name,
        port = kubelet.port().unwrap_or_default(),
        "the node agent runs"
    );
    let mut term = signal(SignalKind::terminate()).context("listening for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for signals")?;
    tokio::select! {
        biased;
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

fn start_network(
    arguments: &AgentArguments,
    runtime: &Runtime,
    client: &Client,
    node_name: &str,
) -> anyhow::Result<()> {
    let routes = LinuxRoutes::open().context("opening the kernel's routes")?;
    let config = NetworkConfig {
        node_name: node_name.to_string(),
        cluster_cidr: arguments.cluster_cidr,
        cni_config_dir: cni_config_dir(arguments),
        third_party_config_dir: arguments.node.cni_conf_dir.clone(),
        plugins: plugin_folders(arguments),
        is_enabled: !arguments.node.disable_network,
        host_settings: arguments.data_dir.join("host-settings"),
        mtu: None,
    };
    // The task belongs to the runtime; its handle is not needed.
    drop(node_network::start(
        config,
        client.clone(),
        Arc::new(SystemExec),
        Arc::new(routes),
        runtime.clone(),
    ));
    Ok(())
}

/// The runtime knows one folder of plugins; ours are in one that the agent writes, and other programs install theirs beside the machine's.
fn plugin_folders(arguments: &AgentArguments) -> PluginFolders {
    PluginFolders {
        // Ours first: the loopback link, too, is made without another program's start.
        from: std::iter::once(agent_cni::folder(&arguments.data_dir))
            .chain(arguments.node.cni_bin_dir.iter().cloned())
            .collect(),
        links: arguments.data_dir.join("cni-plugins"),
    }
}

fn cni_config_dir(arguments: &AgentArguments) -> PathBuf {
    arguments.data_dir.join("cni")
}

/// Ends when the container runtime answers and has our own images.
async fn container_runtime(
    arguments: &AgentArguments,
    runtime: &Runtime,
    cri: &CriClient,
) -> anyhow::Result<()> {
    if arguments.node.container_runtime_endpoint.is_none() {
        start_containerd(arguments, runtime).await?;
    }
    let program = crate::image::BASE_PROGRAM;
    let architecture = node_sys::machine::Machine::observe().architecture;
    let folder = arguments.data_dir.join("images");
    Ok(base::ensure(runtime, cri, &folder, program, architecture).await?)
}

async fn start_containerd(arguments: &AgentArguments, runtime: &Runtime) -> anyhow::Result<()> {
    let plugins = plugin_folders(arguments);
    runtime
        .blocking(move || plugins.link())
        .await?
        .context("linking the plugins of --cni-bin-dir")?;
    let config = ContainerdConfig {
        directory: arguments.data_dir.join("containerd"),
        sandbox_image: base::PAUSE_IMAGE.to_string(),
        cni_bin_dir: plugin_folders(arguments).links,
        cni_conf_dir: cni_config_dir(arguments),
        runtime: node_sys::exec::find_program("runc")
            .context("runc is not installed: apt-get install runc")?,
    };
    let containerd = Containerd::ensure(runtime, config).await?;
    runtime
        .keep("containerd", move || containerd.clone().supervise())
        .detach();
    Ok(())
}

/// A client as `system:kube-proxy` where the server gave us that identity, else as the node.
async fn services_client(arguments: &AgentArguments, runtime: &Runtime) -> anyhow::Result<Client> {
    let own = arguments.data_dir.join("kube-proxy.kubeconfig");
    let node = || kubeconfig(arguments);
    let path = if own.try_exists().unwrap_or(false) {
        own
    } else {
        node()
    };
    Ok(Client::following_kubeconfig(&path, runtime.clone()).await?)
}

fn start_services(arguments: &AgentArguments, runtime: &Runtime, client: &Client, node_name: &str) {
    let dns = cluster_dns(arguments);
    if arguments.node.disable_proxy && arguments.node.disable_dns {
        return;
    }
    // The name that upstream's server sees for these watches.
    let client = client.clone().with_user_agent("kube-proxy");
    let views = ServiceViews::start(&client, runtime);
    if !arguments.node.disable_proxy {
        let node_ip = match node_ip(arguments, &kubeconfig(arguments)) {
            Ok(IpAddr::V4(address)) => Some(address),
            _ => None,
        };
        let config = ProxyConfig {
            node_name: node_name.to_string(),
            node_ip,
            node_port_addresses: NodePortAddresses::new(&arguments.node.nodeport_addresses, node_ip),
            cluster_cidr: Some(arguments.cluster_cidr),
            service_cidr: Some(arguments.service_cluster_ip_range),
            local_addresses: if arguments.node.disable_dns {
                Vec::new()
            } else {
                dns.clone()
            },
        };
        let kernel = Arc::new(LinuxKernel::new(Arc::new(SystemExec), runtime.clone()));
        drop(node_proxy::start(
            config,
            client,
            views.clone(),
            kernel,
            runtime.clone(),
        ));
    }
    if let (false, Some(address)) = (arguments.node.disable_dns, dns.first()) {
        let path = resolv_conf(arguments);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let config = DnsConfig {
            cluster_domain: arguments.cluster_domain.clone(),
            cluster_dns: *address,
            port: 53,
            upstream: node_dns::name_servers(&text, *address),
            resolv_conf: Some(path),
            saved_zone: Some(arguments.data_dir.join("dns-zone")),
        };
        drop(node_dns::start(
            config,
            views,
            Arc::new(SystemExec),
            runtime.clone(),
        ));
    }
}

fn cluster_dns(arguments: &AgentArguments) -> Vec<Ipv4Addr> {
    if arguments.node.cluster_dns.is_empty() {
        return arguments
            .service_cluster_ip_range
            .hosts()
            .nth(DNS_ADDRESS_INDEX - 1)
            .into_iter()
            .collect();
    }
    arguments.node.cluster_dns.clone()
}

fn kubelet_config(arguments: &AgentArguments, kubeconfig: &std::path::Path) -> anyhow::Result<KubeletConfig> {
    let in_folder =
        |name: &str| Some(arguments.data_dir.join(name)).filter(|path| path.try_exists().unwrap_or(false));
    let given = arguments
        .tls_cert_file
        .clone()
        .zip(arguments.tls_private_key_file.clone());
    let defaults = KubeletConfig::for_data_dir(arguments.data_dir.clone());
    let node_ip = node_ip(arguments, kubeconfig)?;
    let is_joined = arguments.join.server.is_some();
    Ok(KubeletConfig {
        host_ports: host_ports(arguments, kubeconfig),
        node_name: node_name(arguments),
        node_ip,
        cluster_dns: cluster_dns(arguments).into_iter().map(IpAddr::V4).collect(),
        cluster_domain: arguments.cluster_domain.clone(),
        resolv_conf: resolv_conf(arguments),
        node_labels: arguments
            .node
            .node_labels
            .iter()
            .cloned()
            .collect::<BTreeMap<_, _>>(),
        register_node: arguments.node.register_node,
        register_with_taints: arguments.node.register_with_taints.clone(),
        cgroup_root: arguments.node.cgroup_root.clone(),
        static_pods: static_pods(arguments)?,
        cdi: CdiSource {
            decode: decode_manifest,
            ..CdiSource::default()
        },
        max_pods: max_pods(&arguments.node),
        image_pulls_max: image_pulls_max(&arguments.node),
        kept_fields: shown_fields(&arguments.node),
        pod_max_pids: arguments.node.pod_max_pids,
        reserve: reserve(&arguments.node),
        resource_managers: arguments.node.resources.clone().into(),
        eviction: arguments.node.eviction.clone().into(),
        image_collection: arguments.node.eviction.image_collection(),
        shutdown: arguments.node.shutdown.clone().into(),
        container_log_max_bytes: arguments.node.container_log_max_size,
        container_log_max_files: arguments.node.container_log_max_files,
        port: arguments.port,
        healthz_port: Some(arguments.healthz_port).filter(|port| *port != 0),
        tls_awaited: given.is_none() && is_joined,
        tls: given
            .or_else(|| in_folder(own_certificate::CERTIFICATE).zip(in_folder(own_certificate::KEY)))
            .or_else(|| is_joined.then(|| join::serving_files(&arguments.data_dir))),
        client_ca: arguments
            .client_ca_file
            .clone()
            .or_else(|| in_folder(join::AUTHORITY)),
        max_connections: open_files::connections(defaults.max_connections),
        container_runtime_endpoint: match &arguments.node.container_runtime_endpoint {
            Some(endpoint) => endpoint.trim_start_matches("unix://").into(),
            None => defaults.container_runtime_endpoint.clone(),
        },
        api_server: server_address(kubeconfig)
            .ok()
            .flatten()
            .map(|server| server.to_string())
            .unwrap_or_default(),
        pause_image: match &arguments.node.container_runtime_endpoint {
            Some(_) => defaults.pause_image.clone(),
            None => base::PAUSE_IMAGE.to_owned(),
        },
        // Pods start in a mount namespace of the agent's own, or wherever another runtime starts them.
        plugins_shown_in: arguments
            .node
            .container_runtime_endpoint
            .is_none()
            .then(|| UPSTREAM_ROOT.into()),
        logs_shown_in: arguments
            .node
            .container_runtime_endpoint
            .is_none()
            .then(|| UPSTREAM_LOGS.into()),
        plugins_root: match arguments.node.container_runtime_endpoint {
            Some(_) => UPSTREAM_ROOT.into(),
            None => defaults.plugins_root.clone(),
        },
        ..defaults
    })
}

fn reserve(node: &NodeArguments) -> Reserve {
    let mut reserve = node.reserve.clone().into();
    ResourceManagersConfig::from(node.resources.clone()).override_reserve(&mut reserve);
    reserve
}

fn max_pods(node: &NodeArguments) -> u32 {
    let cores = u32::try_from(node_sys::machine::Machine::observe().cpus).unwrap_or(u32::MAX);
    match node.pods_per_core {
        0 => node.max_pods,
        by_core => node.max_pods.min(by_core.saturating_mul(cores)),
    }
}

fn image_pulls_max(node: &NodeArguments) -> Option<u32> {
    match node.serialize_image_pulls {
        true => Some(1),
        false => node.max_parallel_image_pulls,
    }
}

/// Fields of `/configz` that the kubelet itself has no use for.
fn shown_fields(node: &NodeArguments) -> serde_json::Map<String, serde_json::Value> {
    let mut fields = kubelet_configuration::kept_values();
    let own = [
        ("failSwapOn", node.fail_swap_on.into()),
        ("failCgroupV1", node.fail_cgroup_v1.into()),
        ("serializeImagePulls", node.serialize_image_pulls.into()),
        ("maxParallelImagePulls", node.max_parallel_image_pulls.into()),
        ("podsPerCore", node.pods_per_core.into()),
        ("mergeDefaultEvictionSettings", false.into()),
    ];
    fields.extend(own.map(|(name, value): (&str, serde_json::Value)| (name.to_owned(), value)));
    fields
}

fn static_pods(arguments: &AgentArguments) -> anyhow::Result<Option<StaticPodSource>> {
    let Some(path) = &arguments.node.pod_manifest_path else {
        return Ok(None);
    };
    let path = std::path::absolute(path).context("--pod-manifest-path")?;
    Ok(Some(StaticPodSource {
        path,
        decode: decode_manifest,
    }))
}

/// Reads YAML or JSON.
fn decode_manifest(content: &[u8]) -> Result<serde_json::Value, String> {
    if let Some((line, key)) = machinery_schema::yaml::duplicate_key(content) {
        return Err(format!("line {line}: the key {key} is there already"));
    }
    let json = machinery_schema::yaml::yaml_to_json(content).map_err(|error| error.to_string())?;
    serde_json::from_str(&json).map_err(|error| error.to_string())
}

/// Names are the cluster's on every address of the node; its own servers are the agent's, and the API server where that is
/// on this machine.
fn host_ports(arguments: &AgentArguments, kubeconfig: &std::path::Path) -> HostPortsConfig {
    let names = cluster_dns(arguments).into_iter().map(Ipv4Net::from);
    let mut here = node_sys::machine::addresses().into_iter();
    let server = server_address(kubeconfig)
        .ok()
        .flatten()
        .filter(|server| server.ip().is_loopback() || here.any(|address| address == server.ip()));
    let ports = [arguments.port, arguments.healthz_port].into_iter();
    HostPortsConfig {
        reserved_addresses: names.chain([arguments.service_cluster_ip_range]).collect(),
        node_ports: ports.chain(server.map(|server| server.port())).collect(),
    }
}

fn resolv_conf(arguments: &AgentArguments) -> PathBuf {
    let usual = || node_kubelet::containers::dns::host_resolv_conf(std::path::Path::new("/"));
    arguments.node.resolv_conf.clone().unwrap_or_else(usual)
}

fn kubeconfig(arguments: &AgentArguments) -> PathBuf {
    let own = || arguments.data_dir.join("kubeconfig");
    arguments.kubeconfig.clone().unwrap_or_else(own)
}

fn node_ip(arguments: &AgentArguments, kubeconfig: &std::path::Path) -> anyhow::Result<IpAddr> {
    match arguments.node.node_ip {
        Some(ip) => Ok(ip),
        None => address_towards(kubeconfig).context("finding this node's address; give --node-ip"),
    }
}

/// An address that no machine has (RFC 5737), to which only a default route leads.
const BEYOND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);

/// Reports whether this machine has a route to addresses beyond its own networks.
pub(crate) fn has_default_route() -> bool {
    source_address(BEYOND).is_some()
}

/// The address from which this machine reaches the API server; if that is here, the one that reaches others.
fn address_towards(kubeconfig: &std::path::Path) -> anyhow::Result<IpAddr> {
    let server = server_address(kubeconfig)?;
    for target in server.into_iter().chain([BEYOND]) {
        if let Some(ip) = source_address(target).filter(|ip| !ip.is_loopback()) {
            return Ok(ip);
        }
    }
    // No route anywhere: any address.
    node_sys::machine::outer_addresses()
        .into_iter()
        .next()
        .context("this machine has no address but the loopback link's: give a link one, and a default route")
}

/// Address of the API server in a kubeconfig; `None` if the file has a name in its place.
fn server_address(kubeconfig: &std::path::Path) -> anyhow::Result<Option<SocketAddr>> {
    let file = KubeconfigFile::read(kubeconfig)?;
    let host = file
        .current_server()
        .unwrap_or_default()
        .trim_start_matches("https://")
        .split('/')
        .next()
        .unwrap_or_default();
    Ok(host.parse().ok())
}

/// A datagram socket learns its own address when it is connected; nothing is sent.
fn source_address(target: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = if target.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        ([0_u16; 8], 0).into()
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip())
}
