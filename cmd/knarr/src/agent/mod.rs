//! `knarr agent`: the node's side, a process of its own. Pod network, service rules, DNS, kubelet, and the
//! containerd they use, in a mount namespace that outlives this process.
//!
//! Flags are in [`arguments`]. [`services`] starts what pods that run already need, in an executor of its own; the kubelet
//! follows with the configuration that [`kubelet`] makes.

pub(crate) mod address;
mod arguments;
mod kubelet;
mod services;

pub(crate) use arguments::AgentArguments;

use crate::node_arguments::NodeArguments;
use crate::{agent_claim, agent_cni, check, executors, join, log_rotation};
use anyhow::{Context, bail};
use apiserver_server::{FeatureGates, GateComponent};
use machinery_client::Client;
use machinery_runtime::Runtime;
use node_cri::CriClient;
use node_kubelet::Kubelet;
use node_kubelet::cgroup_driver;
use node_kubelet::containerd::config::ContainerdConfig;
use node_kubelet::containerd::{Containerd, instance};
use node_kubelet::images::base;
use node_network::cni::Plugin;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// Runs until it receives a signal to end. Pods, containerd and the rules in the kernel stay.
pub(crate) fn run(arguments: AgentArguments) -> anyhow::Result<()> {
    arguments.config.log();
    check_gates(&arguments.feature_gates).context("--feature-gates")?;
    // Before anything is left on the machine.
    has_identity(&arguments)?;
    join::check(&arguments.join, &arguments.own_node())?;
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
        let plugin = services::start(&arguments, &runtime).await?;
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
    if let Some(problem) = cgroup_driver::refusal(node.cgroup_driver) {
        bail!(problem);
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
    let path = arguments.kubeconfig();
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
        join::enter(&arguments.join, &arguments.own_node(), &runtime).await
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

/// `beside` is the handle of the other executor, whose components are reported with ours.
async fn work(arguments: &AgentArguments, beside: Runtime, plugin: Arc<Plugin>) -> anyhow::Result<()> {
    let runtime = Runtime::real().with_components_of(&beside);
    log_rotation::keep(arguments.data_dir.join("agent.log"), &runtime);
    let kubeconfig = arguments.kubeconfig();
    let client = Client::following_kubeconfig(&kubeconfig, runtime.clone()).await?;
    // Fields that the node writes have the owner they have upstream.
    let client = client.with_user_agent("kubelet");
    let config = kubelet::config(arguments, &kubeconfig)?;
    let node_name = config.node_name.clone();
    if arguments.join.server.is_some() {
        let (node, address) = (arguments.own_node(), config.node_ip);
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
    let plugins = arguments.plugin_folders();
    runtime
        .blocking(move || plugins.link())
        .await?
        .context("linking the plugins of --cni-bin-dir")?;
    let config = ContainerdConfig {
        directory: arguments.data_dir.join("containerd"),
        sandbox_image: base::PAUSE_IMAGE.to_string(),
        cni_bin_dir: arguments.plugin_folders().links,
        cni_conf_dir: arguments.cni_config_dir(),
        runtime: node_sys::exec::find_program("runc")
            .context("runc is not installed: apt-get install runc")?,
        cgroup_driver: arguments.node.cgroup_driver,
    };
    let containerd = Containerd::ensure(runtime, config).await?;
    runtime
        .keep("containerd", move || containerd.clone().supervise())
        .detach();
    Ok(())
}
