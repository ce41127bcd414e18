//! Assembly: from a configuration and a client to a running node agent.

use std::sync::{Arc, OnceLock};

use kube::Client;
use machinery_runtime::{Runtime, Watched};
use node_cri::{CriClient, CriError, v1};
use node_network::host_ports::{HostPortKernel, HostPorts, LinuxHostPorts};
use node_sys::SystemExec;
use node_sys::cgroup::Cgroups;
use node_sys::kernel_log::{KernelLog, LinuxKernelLog};
use node_sys::logind::{Logind, SystemLogind};
use node_sys::mount::{LinuxMounter, Mounter};
use node_sys::vitals::{LinuxVitals, Vitals};
use node_volume::NodeResources;

use crate::api;
use crate::api::deadline::bounded;
use crate::api::events::NodeEvents;
use crate::api::objects::{Objects, WakePod};
use crate::api::services::Services;
use crate::cdi;
use crate::cgroup_driver::{self, CgroupDriverError};
use crate::config::KubeletConfig;
use crate::containers::control::ContainerControl;
use crate::containers::dns::NodeDns;
use crate::containers::sandbox_turns::SandboxTurns;
use crate::containers::tiers;
use crate::csi::Csi;
use crate::devices::manager::DeviceManager;
use crate::dra::Dra;
use crate::families;
use crate::images::ImageManager;
use crate::managers::{ManagerContext, rows};
use crate::metrics::calls::CallMetrics;
use crate::metrics::requests::ClientMetrics;
use crate::node::facts::{self, Health, NodeFacts};
use crate::node::registration::Registration;
use crate::plugins::sockets::{PluginSockets, UnixSockets};
use crate::pod_certificates::PodCertificates;
use crate::pods::admission::Abilities;
use crate::pods::disruption::Disruption;
use crate::pods::resize::allocation::NodeAllocations;
use crate::pods::source::Pods;
use crate::pods::worker::WorkerContext;
use crate::resource_managers::manager::ResourceManagers;
use crate::server::{self, Listeners, ServerError};

/// The agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// The configuration is wrong.
    #[error("{}", .0.join("; "))]
    Config(Vec<String>),
    /// A folder of ours cannot be made.
    #[error("making the data directory")]
    DataDirectory(#[source] std::io::Error),
    /// The container runtime does not answer.
    #[error("the container runtime does not answer")]
    Runtime(#[source] CriError),
    /// The cgroup driver cannot be had.
    #[error(transparent)]
    Driver(#[from] CgroupDriverError),
    /// The groups that all pods lie in cannot be made.
    #[error("making the pods' cgroups")]
    Cgroups(#[source] node_sys::cgroup::CgroupError),
    /// A port cannot be served.
    #[error("serving")]
    Server(#[source] ServerError),
}

/// A running node agent. Its tasks belong to the runtime it was given.
#[derive(Debug)]
pub struct Kubelet {
    port: Option<u16>,
    healthz_port: Option<u16>,
}

/// A machine as the agent works with it: its own, or a model of one.
#[derive(Debug, Clone)]
pub struct Host {
    /// The container runtime.
    pub cri: CriClient,
    /// Control groups.
    pub cgroups: Arc<dyn Cgroups>,
    /// Mounts of volumes.
    pub mounter: Arc<dyn Mounter>,
    /// Ports of the node that lead to pods.
    pub host_ports: Arc<dyn HostPortKernel>,
    /// Resources that the machine has left.
    pub vitals: Arc<dyn Vitals>,
    /// News of the machine's way down.
    pub logind: Arc<dyn Logind>,
    /// Records of the kernel.
    pub kernel_log: Arc<dyn KernelLog>,
    /// Sockets of device plugins.
    pub sockets: Arc<dyn PluginSockets>,
    /// Facts of the machine.
    pub facts: NodeFacts,
}

impl Kubelet {
    /// Starts everything; returns once the managers run. `container_runtime` ends when the runtime answers. The node
    /// is registered meanwhile, so that its pods' network is there when the runtime is, or later, when the API server is.
    pub async fn start<E: From<KubeletError>>(
        runtime: Runtime,
        config: KubeletConfig,
        client: Client,
        container_runtime: impl Future<Output = Result<(), E>>,
    ) -> Result<Self, E> {
        let config = Arc::new(prepare(config)?);
        let client = bounded(
            client,
            runtime.clone(),
            ClientMetrics::new(&runtime, &config.api_server),
        );
        let facts = NodeFacts::observe(&config);
        let registration = Registration::begin(&runtime, &client, &config, &facts);
        container_runtime.await?;
        let host = Host {
            cri: CriClient::new(&config.container_runtime_endpoint),
            cgroups: node_sys::cgroup::detect(),
            mounter: Arc::new(LinuxMounter),
            host_ports: Arc::new(LinuxHostPorts::new(
                &config.host_ports.reserved_addresses,
                Arc::new(SystemExec),
                runtime.clone(),
            )),
            vitals: Arc::new(LinuxVitals),
            logind: Arc::new(SystemLogind::new(
                runtime.clone(),
                config.shutdown.bus_address.clone(),
            )),
            kernel_log: Arc::new(LinuxKernelLog),
            sockets: Arc::new(UnixSockets::new(runtime.clone())),
            facts,
        };
        Ok(Self::with_servers(runtime, config, client, host, registration).await?)
    }

    /// Starts everything on a given machine.
    pub async fn start_serving_on(
        runtime: Runtime,
        config: KubeletConfig,
        client: Client,
        host: Host,
    ) -> Result<Self, KubeletError> {
        let config = Arc::new(prepare(config)?);
        let client = bounded(
            client,
            runtime.clone(),
            ClientMetrics::new(&runtime, &config.api_server),
        );
        let registration = Registration::begin(&runtime, &client, &config, &host.facts);
        Self::with_servers(runtime, config, client, host, registration).await
    }

    async fn with_servers(
        runtime: Runtime,
        config: Arc<KubeletConfig>,
        client: Client,
        host: Host,
        registration: Registration,
    ) -> Result<Self, KubeletError> {
        let listeners = Listeners::bind(&config).await.map_err(KubeletError::Server)?;
        let context = assemble(runtime, config, client, host, registration).await?;
        let (port, healthz_port) = (listeners.port(), listeners.healthz_port());
        serve(&context, listeners);
        Ok(Self { port, healthz_port })
    }

    /// Starts everything but the servers, on a given machine.
    pub async fn start_on(
        runtime: Runtime,
        config: KubeletConfig,
        client: Client,
        host: Host,
    ) -> Result<Self, KubeletError> {
        let config = Arc::new(prepare(config)?);
        let client = bounded(
            client,
            runtime.clone(),
            ClientMetrics::new(&runtime, &config.api_server),
        );
        let registration = Registration::begin(&runtime, &client, &config, &host.facts);
        assemble(runtime, config, client, host, registration).await?;
        Ok(Self {
            port: None,
            healthz_port: None,
        })
    }

    /// The port of the authenticated server, where it has one.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// The loopback health port, where it has one.
    pub fn healthz_port(&self) -> Option<u16> {
        self.healthz_port
    }
}

/// Reads the runtime's version, and starts all managers.
async fn assemble(
    runtime: Runtime,
    config: Arc<KubeletConfig>,
    client: Client,
    mut host: Host,
    registration: Registration,
) -> Result<ManagerContext, KubeletError> {
    families::begin(&runtime);
    host.cri = host.cri.observed_by(Arc::new(CallMetrics::new(&runtime)));
    query_runtime(&host.cri, &mut host.facts)
        .await
        .map_err(KubeletError::Runtime)?;
    let config = cgroup_driver::of_runtime(&runtime, &host.cri, config).await?;
    host.cgroups = cgroup_driver::groups(&runtime, &config, host.cgroups)?;
    let reserve = &config.reserve;
    let refused = |problem: String| KubeletError::Config(vec![problem]);
    reserve.check(&host.facts.capacity()).map_err(refused)?;
    make_groups(&runtime, &config, &host).await?;
    crate::shown::show(&config, host.mounter.as_ref());
    let (facts, vitals, sockets) = (host.facts.clone(), host.vitals.clone(), host.sockets.clone());
    let (logind, kernel_log) = (host.logind.clone(), host.kernel_log.clone());
    let managers = ResourceManagers::new(&runtime, &config).map_err(refused)?;
    managers.load(&config.data_dir).await.map_err(refused)?;
    let workers = worker_context(&runtime, &config, &client, host, Arc::new(managers));
    workers.devices.load().await;
    workers.csi.load().await;
    workers.dra.load().await;
    let pods = Pods::new(workers.clone());
    wake_on_change(&workers, &pods);
    let context = ManagerContext {
        runtime,
        client,
        config,
        facts,
        registration,
        pods,
        workers,
        vitals,
        logind,
        kernel_log,
        sockets,
    };
    for row in rows() {
        let own = context.clone();
        let begin = move || (row.run)(own.clone());
        context.runtime.keep(row.name, begin).detach();
    }
    Ok(context)
}

/// Makes the groups that all pods lie in. systemd may take its time.
async fn make_groups(
    runtime: &Runtime,
    config: &Arc<KubeletConfig>,
    host: &Host,
) -> Result<(), KubeletError> {
    let (config, cgroups) = (Arc::clone(config), Arc::clone(&host.cgroups));
    let machine = host.facts.machine.clone();
    let making = runtime.blocking(move || {
        let (cgroups, reserve) = (cgroups.as_ref(), &config.reserve);
        tiers::make(cgroups, config.groups(), reserve, &machine).map_err(KubeletError::Cgroups)?;
        let limited = tiers::limit_others(cgroups, config.cgroup_driver, reserve);
        limited.map_err(|problem| KubeletError::Config(vec![problem]))
    });
    let ended = |_| KubeletError::Config(vec!["the pods' cgroups were not made".to_owned()]);
    making.await.map_err(ended)?
}

/// Starts the servers.
fn serve(context: &ManagerContext, listeners: Listeners) {
    let (own, main) = (context.clone(), listeners.clone());
    let begin = move || server::serve(own.clone(), main.clone());
    context.runtime.keep("kubelet server", begin).detach();
    let (serving, runtime) = (listeners.serving.clone(), context.runtime.clone());
    let begin = move || Arc::clone(&serving).follow(runtime.clone());
    context.runtime.keep("serving certificate file", begin).detach();
    if let Some(clients) = listeners.clients.clone() {
        let runtime = context.runtime.clone();
        let begin = move || Arc::clone(&clients).follow(runtime.clone());
        context.runtime.keep("client authorities", begin).detach();
    }
    let own = context.clone();
    let begin = move || server::healthz::serve(own.clone(), listeners.clone());
    context.runtime.keep("healthz server", begin).detach();
    let own = context.clone();
    let begin = move || {
        let own = own.clone();
        async move { own.workers.followed.run(&own.runtime).await }
    };
    context.runtime.keep("folders of logs", begin).detach();
}

/// Checks the configuration and makes our folders.
fn prepare(config: KubeletConfig) -> Result<KubeletConfig, KubeletError> {
    let problems = config.problems();
    if !problems.is_empty() {
        return Err(KubeletError::Config(problems));
    }
    let folders = [
        config.pods_folder(),
        config.logs_folder(),
        config.run_folder(),
        config.device_plugins_folder(),
        config.pod_resources_folder(),
        config.plugins_registry_folder(),
        config.plugins_folder(),
    ];
    for folder in folders {
        node_sys::fs::make_own_folder(&folder).map_err(KubeletError::DataDirectory)?;
    }
    Ok(config)
}

/// Pods whose objects change are looked at again, and those end that critical ones need to, as long as there are pods.
fn wake_on_change(workers: &WorkerContext, pods: &Arc<Pods>) {
    let pods = Arc::downgrade(pods);
    let ending = pods.clone();
    // Set here alone, before any worker runs.
    let _ = workers.preempt.set(Arc::new(move |uid| {
        if let Some(pods) = ending.upgrade() {
            pods.disrupt(uid, Disruption::preempted());
        }
    }));
    let wake: WakePod = Arc::new(move |uid| {
        if let Some(pods) = pods.upgrade() {
            pods.wake(uid);
        }
    });
    workers.objects.on_change(wake.clone());
    workers.csi.on_change(wake.clone());
    workers.dra.on_change(wake);
}

/// Reads name, version and features of the container runtime.
async fn query_runtime(cri: &CriClient, facts: &mut NodeFacts) -> Result<(), CriError> {
    let found = cri.version(v1::VersionRequest { version: "v1".into() }).await?;
    let version = found.runtime_version.trim_start_matches('v');
    facts.runtime_version = format!("{}://{version}", found.runtime_name);
    let status = cri.status(v1::StatusRequest { verbose: false }).await?;
    facts.supplemental_groups_policy = status
        .features
        .is_some_and(|features| features.supplemental_groups_policy);
    Ok(())
}

/// Parts that the workers of a node's pods share.
pub(crate) fn worker_context(
    runtime: &Runtime,
    config: &Arc<KubeletConfig>,
    client: &Client,
    host: Host,
    resource_managers: Arc<ResourceManagers>,
) -> Arc<WorkerContext> {
    let events = NodeEvents::new(api::client(client, runtime), &config.node_name);
    let own = facts::node(config, &host.facts, &Health::unknown(), runtime.now());
    let node = Arc::new(parking_lot::Mutex::new(Arc::new(own)));
    let certificates = PodCertificates::new(
        runtime.clone(),
        client.clone(),
        events.clone(),
        &config.node_name,
        Arc::clone(&node),
    );
    let mounter = host.mounter.clone();
    let sockets = host.sockets.clone();
    let objects = Arc::new(Objects::new(runtime.clone(), client.clone(), certificates));
    let csi = Csi::new(runtime, client, config, &objects, &sockets);
    let dra = Dra::new(runtime, client, config, &sockets);
    let devices = DeviceManager::new(runtime.clone(), sockets, config.device_plugins_folder());
    let devices = Arc::new(devices);
    Arc::new(WorkerContext {
        runtime: runtime.clone(),
        client: client.clone(),
        control: container_control(
            runtime,
            config,
            client,
            &events,
            (&devices, &dra, &resource_managers),
            host,
        ),
        objects,
        mounter,
        events,
        allocations: NodeAllocations::default(),
        devices,
        resource_managers,
        csi,
        dra,
        preempt: OnceLock::new(),
        node,
        node_known: Watched::new(false),
        owners: parking_lot::Mutex::default(),
        exited: parking_lot::Mutex::default(),
        followed: Arc::default(),
        pressure: Arc::default(),
        storage: Arc::default(),
        evictions: parking_lot::Mutex::default(),
        mirrors: Arc::default(),
        probe_metrics: Arc::default(),
        shutting_down: Arc::default(),
    })
}

fn container_control(
    runtime: &Runtime,
    config: &Arc<KubeletConfig>,
    client: &Client,
    events: &NodeEvents,
    (devices, dra, resource_managers): (&Arc<DeviceManager>, &Dra, &Arc<ResourceManagers>),
    host: Host,
) -> ContainerControl {
    let Host {
        cri,
        cgroups,
        host_ports,
        facts,
        ..
    } = host;
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    ContainerControl {
        runtime: runtime.clone(),
        config: config.clone(),
        client: client.clone(),
        abilities: Abilities {
            kernel_version: facts.machine.kernel_version.clone(),
            app_armor: facts.machine.app_armor,
            supplemental_groups_policy: facts.supplemental_groups_policy,
        },
        images: ImageManager::new(runtime.clone(), client, cri.clone(), events.clone(), config),
        cri,
        runtime_name: facts.runtime_name().to_owned(),
        runtime_has_cdi: cdi::is_known_to(&facts.runtime_version),
        events: events.clone(),
        services: Services::start(runtime, client.clone()),
        devices: devices.clone(),
        resource_managers: resource_managers.clone(),
        dra: dra.clone(),
        host_ports: HostPorts::new(config.host_ports.clone(), host_ports, runtime.clone()),
        sandbox_turns: SandboxTurns::of_cores(facts.machine.cpus),
        page_sizes: facts.machine.huge_pages.keys().copied().collect(),
        memory: tiers::memory_facts(
            cgroups.as_ref(),
            config.groups(),
            &facts.machine,
            config.swap_behavior,
        ),
        pod_pids: config.pod_pids(&facts.machine),
        cgroups,
        dns: NodeDns {
            cluster_dns: config.cluster_dns.clone(),
            cluster_domain: config.cluster_domain.clone(),
            // Read again for each pod: the machine may have other name servers by then.
            host: v1::DnsConfig::default(),
        },
        node: NodeResources {
            cpu_millis: signed(facts.machine.cpus * 1000),
            memory_bytes: signed(facts.machine.memory_bytes),
            ephemeral_storage_bytes: signed(facts.storage_bytes),
        },
    }
}
