//! Making, starting and stopping: the only place that asks the runtime to change something of a pod.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use machinery_runtime::Runtime;
use node_cri::{CriClient, v1};
use node_network::host_ports::HostPorts;
use node_sys::blocking::BlockingLane;
use node_sys::cgroup::Cgroups;
use node_volume::{NodeResources, ObjectSource, VolumeSet};

use super::env::{EnvSources, environment};
use super::env_files::EnvFiles;
use super::log_links::LogLink;
use super::sandbox_turns::{Rank, SandboxTurns};
use super::stopping::{Killing, grace_period};
use super::{
    StartError, dns, files, hooks, huge_pages, resources, runtime_class, sandbox, spec as container_spec,
    unusable,
};
use crate::api::events::{EventType, NodeEvents};
use crate::api::services::Services;
use crate::cdi;
use crate::config::KubeletConfig;
use crate::devices::manager::DeviceManager;
use crate::dra::Dra;
use crate::images::{ImageManager, PresentImage};
use crate::metrics::calls::sandbox_ran;
use crate::metrics::pods::PodMetrics;
use crate::pods::admission::Abilities;
use crate::pods::container_named::container_named;
use crate::pods::ephemeral::target_of;
use crate::pods::observed::{ObservedPod, ObservedSandbox};
use crate::pods::plan::Start;
use crate::pods::{is_critical, spec, uid};
use crate::resource_managers::manager::ResourceManagers;
use crate::runtime_errors::rpc_text;

/// A postStart hook may run as long as it likes; this only bounds a hook that hangs for ever.
const POST_START_TIMEOUT: Duration = Duration::from_secs(3600);
/// Upstream's words.
const NO_SERVICES: &str = "services have not yet been read at least once, cannot construct envvars";

/// Acts on the runtime for all pods.
pub(crate) struct ContainerControl {
    /// Clock and tasks.
    pub(crate) runtime: Runtime,
    /// The node's configuration.
    pub(crate) config: Arc<KubeletConfig>,
    /// The API.
    pub(crate) client: kube::Client,
    /// The container runtime.
    pub(crate) cri: CriClient,
    /// Name that the runtime reports.
    pub(crate) runtime_name: String,
    /// It gives devices of the Container Device Interface to containers.
    pub(crate) runtime_has_cdi: bool,
    /// Recorder of events.
    pub(crate) events: NodeEvents,
    /// Brings images in.
    pub(crate) images: ImageManager,
    /// The services' variables.
    pub(crate) services: Services,
    /// Ports of the node that lead to pods.
    pub(crate) host_ports: HostPorts,
    /// Devices of plugins.
    pub(crate) devices: Arc<DeviceManager>,
    /// Processors and memory that containers have for themselves.
    pub(crate) resource_managers: Arc<ResourceManagers>,
    /// Devices of claims.
    pub(crate) dra: Dra,
    /// Pod groups.
    pub(crate) cgroups: Arc<dyn Cgroups>,
    /// DNS settings of the node.
    pub(crate) dns: dns::NodeDns,
    /// Security features of this node.
    pub(crate) abilities: Abilities,
    /// Resources that pods may request.
    pub(crate) node: NodeResources,
    /// Memory features of the node.
    pub(crate) memory: resources::MemoryFacts,
    /// Sizes of huge pages that the machine has, in bytes.
    pub(crate) page_sizes: Arc<[u64]>,
    /// Turns of sandboxes that start.
    pub(crate) sandbox_turns: SandboxTurns,
    /// Processes that a pod may have.
    pub(crate) pod_pids: Option<i64>,
}

impl std::fmt::Debug for ContainerControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContainerControl").finish_non_exhaustive()
    }
}

/// State of a pod that starting a container needs besides the specification.
#[derive(Clone, Copy)]
pub(crate) struct PodFacilities<'a> {
    /// Its volumes.
    pub(crate) volumes: &'a VolumeSet,
    /// ConfigMaps, Secrets and tokens on its behalf.
    pub(crate) objects: &'a dyn ObjectSource,
    /// Its work on files.
    pub(crate) lane: &'a BlockingLane,
    /// Sandboxes and containers of the pod.
    pub(crate) observed: &'a ObservedPod,
    /// Its sandbox.
    pub(crate) sandbox: &'a ObservedSandbox,
}

impl std::fmt::Debug for PodFacilities<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodFacilities")
            .field("sandbox", &self.sandbox)
            .finish_non_exhaustive()
    }
}

impl ContainerControl {
    /// Makes the pod's group and folders.
    pub(crate) async fn prepare_pod(&self, pod: &Pod, lane: &BlockingLane) -> Result<(), StartError> {
        let group = self.config.groups().of_pod(pod);
        let limits = resources::pod_limits(pod, self.pod_pids);
        let pages = huge_pages::pod_limits(pod);
        let folders = [
            files::log_folder(&self.config, pod),
            files::pod_folder(&self.config, uid(pod)),
        ];
        let cgroups = self.cgroups.clone();
        let group_failed = |error: String| StartError {
            reason: "FailedCreatePodContainer",
            message: format!("unable to ensure pod container exists: {error}"),
        };
        let work = move || {
            cgroups
                .apply(&group, &limits)
                .and_then(|()| cgroups.limit_huge_pages(&group, &pages))
                .map_err(|error| group_failed(format!("{error}: {}", error.source)))?;
            folders
                .iter()
                .try_for_each(std::fs::create_dir_all)
                .map_err(|error| StartError {
                    reason: "Failed",
                    message: format!("error making pod data directories: {error}"),
                })
        };
        // Group before folders, in one piece of work: the sandbox is created in the group, and its logs in the
        // folders.
        let outcome = lane.run("making the pod's group and folders", work).await;
        outcome.unwrap_or_else(|error| Err(group_failed(error.to_string())))
    }

    /// Returns the DNS settings of the node, with `resolv.conf` as it is now.
    async fn dns_now(&self) -> dns::NodeDns {
        let path = self.config.resolv_conf.clone();
        let read = self.runtime.blocking(move || dns::read_resolv_conf(&path)).await;
        dns::NodeDns {
            host: read.unwrap_or_default(),
            ..self.dns.clone()
        }
    }

    /// Makes a sandbox and returns its id.
    pub(crate) async fn create_sandbox(&self, pod: &Pod, attempt: u32) -> Result<String, StartError> {
        let created = self.try_create_sandbox(pod, attempt).await;
        PodMetrics::of(&self.runtime).pod_started(created.is_err());
        created.map_err(|message| {
            let event = format!("Failed to create pod sandbox: {message}");
            self.events
                .pod(pod, EventType::Warning, "FailedCreatePodSandBox", event);
            StartError {
                reason: "CreatePodSandboxError",
                message,
            }
        })
    }

    async fn try_create_sandbox(&self, pod: &Pod, attempt: u32) -> Result<String, String> {
        if spec(pod).host_users == Some(false) {
            // containerd before 2.0 ignores the wish silently; such a pod must not run unmapped.
            return Err("user namespaces are not supported by the container runtime".to_string());
        }
        let in_use = self.host_ports.check(&sandbox::host_ports(pod)).await;
        // Before the sandbox takes an address: a refused pod is retried, and would use one with each attempt.
        in_use.map_err(|error| error.to_string())?;
        let runtime_handler = runtime_class::handler(&self.client, pod).await?;
        let request = v1::RunPodSandboxRequest {
            config: Some(sandbox::config(&self.config, pod, &self.dns_now().await, attempt)),
            runtime_handler: runtime_handler.clone(),
        };
        let rank = match is_critical(pod) {
            true => Rank::Critical,
            false => Rank::Usual,
        };
        // Taken last: reads of the API before it hold no turn, and critical pods pass the others here.
        let _turn = self.sandbox_turns.take(rank).await;
        let began = self.runtime.monotonic();
        let answer = self
            .timed("run pod sandbox", self.cri.run_pod_sandbox(request))
            .await;
        let took = self.runtime.monotonic() - began;
        sandbox_ran(&self.runtime, &runtime_handler, took, answer.is_err());
        answer
            .map(|answer| answer.pod_sandbox_id)
            .map_err(|error| rpc_text(&error))
    }

    /// Logs the duration of a call of the runtime; the rest of a pod's start is spent in the agent.
    async fn timed<T>(&self, step: &'static str, work: impl Future<Output = T>) -> T {
        let began = self.runtime.monotonic();
        let outcome = work.await;
        let milliseconds = (self.runtime.monotonic() - began).as_millis();
        tracing::debug!(step, milliseconds, "the runtime answered");
        outcome
    }

    /// Pulls, creates and starts a container. An error is what its status shows.
    pub(crate) async fn start(
        &self,
        pod: &Pod,
        start: &Start,
        with: PodFacilities<'_>,
    ) -> Result<(), StartError> {
        let Some((kind, container)) = container_named(pod, &start.name) else {
            return Err(StartError::config(format!(
                "pod has no container {:?}",
                start.name
            )));
        };
        let outcome = self.try_start(pod, &container, start, with).await;
        let failure = outcome.as_ref().err().map(|error| error.reason);
        PodMetrics::of(&self.runtime).container_started(kind, failure);
        if let Err(error) = &outcome {
            let message = match error.reason {
                "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
                    format!("Error: {}", error.message)
                }
                // It has an event of its own.
                hooks::POST_START_ERROR => return outcome,
                reason => format!("Error: {reason}"),
            };
            self.events
                .container(pod, &container.name, EventType::Warning, "Failed", message);
        }
        outcome
    }

    async fn try_start(
        &self,
        pod: &Pod,
        container: &Container,
        start: &Start,
        with: PodFacilities<'_>,
    ) -> Result<(), StartError> {
        self.show_images(pod, container, with).await?;
        // Pulled before anything is made for the container: a pull may take minutes, and values of its
        // environment would be old.
        let image = self.images.ensure(pod, container, with.objects).await?;
        let id = self.create(pod, container, start, &image, with).await?;
        self.events.container(
            pod,
            &container.name,
            EventType::Normal,
            "Created",
            "Container created",
        );
        let request = v1::StartContainerRequest {
            container_id: id.clone(),
        };
        if let Err(error) = self
            .timed("start container", self.cri.start_container(request))
            .await
        {
            return Err(StartError {
                reason: "RunContainerError",
                message: error.message(),
            });
        }
        self.events.container(
            pod,
            &container.name,
            EventType::Normal,
            "Started",
            "Container started",
        );
        self.link_log(pod, container, (&id, start.restart_count), with.lane)
            .await;
        self.post_start(pod, container, &id, with.sandbox).await
    }

    /// Links to the log where log agents look for it; the container runs without, too.
    async fn link_log(
        &self,
        pod: &Pod,
        container: &Container,
        (id, restarts): (&str, i32),
        lane: &BlockingLane,
    ) {
        let log = files::log_path(&container.name, restarts);
        let link = LogLink::new(&self.config, pod, (&container.name, id), &log);
        match lane.run("linking a log", move || link.make()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "log not linked"),
            Err(error) => tracing::debug!(%error, "log not linked"),
        }
    }

    async fn create(
        &self,
        pod: &Pod,
        container: &Container,
        start: &Start,
        image: &PresentImage,
        with: PodFacilities<'_>,
    ) -> Result<String, StartError> {
        let target = target_id(pod, &container.name, with.observed)?;
        let devices = self.devices.container_options(pod, container).await;
        let devices = devices.map_err(StartError::config)?;
        let of_claims = self.dra.cdi_devices(pod, container);
        let of_claims = of_claims.map_err(StartError::config)?;
        let services = self.services.variables(pod).await;
        // As upstream: a container without the variables of its Services would run with wrong settings until
        // its next restart.
        let services = services.ok_or_else(|| StartError::config(NO_SERVICES))?;
        if let Some(problem) = services.problem() {
            let (reason, kind) = ("ServiceVariablesForming", EventType::Warning);
            self.events.container(pod, &container.name, kind, reason, problem);
        }
        let ips = self.addresses(pod, with.sandbox);
        let files = EnvFiles::read(pod, container, with.volumes, with.lane).await?;
        let sources = EnvSources {
            objects: with.objects,
            files: &files,
            services: &services.values,
            pod_ips: &ips,
            node_ip: self.config.node_ip,
            node: &self.node,
        };
        let described = Described {
            environment: devices.before(environment(pod, container, sources).await?),
            pod: pod.clone(),
            container: container.clone(),
            restart_count: start.restart_count,
            round: start.round,
            image: image.clone(),
            volumes: with.volumes.clone(),
            target: target.map(str::to_owned),
            ips,
            memory: self.memory,
            page_sizes: self.page_sizes.clone(),
            config: self.config.clone(),
        };
        let files_made = with
            .lane
            .run("making a container's files", move || described.make_files())
            .await;
        let mut config = files_made.unwrap_or_else(|error| Err(create_failed(&error)))?;
        devices.apply(&mut config);
        config
            .cdi_devices
            .extend(of_claims.into_iter().map(|name| v1::CdiDevice { name }));
        let mut config = self.inject_devices(config, with.lane).await?;
        // After devices and claims are in it, as their environment and mounts count too.
        unusable::check(&config)?;
        self.resource_managers.recover(pod, container);
        let cpus = self.resource_managers.put_into(pod, container, &mut config);
        let sandbox_config = sandbox::config(&self.config, pod, &self.dns_now().await, with.sandbox.attempt);
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: with.sandbox.id.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let answer = self
            .timed("create container", self.cri.create_container(request))
            .await;
        let id = answer
            .map(|answer| answer.container_id)
            .map_err(|error| create_failed(&error.message()))?;
        self.resource_managers.created(&id, cpus);
        Ok(id)
    }

    /// Gives devices of the Container Device Interface in the place of a runtime that does not.
    async fn inject_devices(
        &self,
        mut config: v1::ContainerConfig,
        lane: &BlockingLane,
    ) -> Result<v1::ContainerConfig, StartError> {
        if self.runtime_has_cdi || config.cdi_devices.is_empty() {
            return Ok(config);
        }
        let own = self.config.clone();
        let inject = move || cdi::inject(&own.cdi, &mut config).map(|()| config);
        let injected = lane.run("looking for descriptions of devices", inject).await;
        let injected = injected.unwrap_or_else(|error| Err(error.to_string()));
        injected.map_err(|error| create_failed(&error))
    }

    fn addresses(&self, pod: &Pod, sandbox: &ObservedSandbox) -> Vec<String> {
        if spec(pod).host_network == Some(true) {
            return vec![self.config.node_ip.to_string()];
        }
        sandbox.ips.clone()
    }

    async fn post_start(
        &self,
        pod: &Pod,
        container: &Container,
        id: &str,
        sandbox: &ObservedSandbox,
    ) -> Result<(), StartError> {
        let Some(hook) = container
            .lifecycle
            .as_ref()
            .and_then(|lifecycle| lifecycle.post_start.as_ref())
        else {
            return Ok(());
        };
        let ips = self.addresses(pod, sandbox);
        let ip = ips.first().map(String::as_str);
        let outcome = hooks::run(
            &self.runtime,
            &self.cri,
            hook,
            (pod, container),
            id,
            ip,
            POST_START_TIMEOUT,
        )
        .await;
        let Err(message) = outcome else { return Ok(()) };
        self.events.container(
            pod,
            &container.name,
            EventType::Warning,
            "FailedPostStartHook",
            // What a hook says may be secret: it is for readers of the pod, not its events.
            "PostStartHook failed",
        );
        let killing = Killing {
            why: "FailedPostStartHook",
            ..Killing::within(grace_period(pod), ip)
        };
        // As upstream: a container whose postStart hook failed is killed, and its restart policy decides.
        self.kill(pod, &container.name, id, killing).await;
        Err(StartError {
            reason: hooks::POST_START_ERROR,
            message,
        })
    }
}

pub(super) fn create_failed(error: &dyn std::fmt::Display) -> StartError {
    StartError {
        reason: "CreateContainerError",
        message: error.to_string(),
    }
}

/// A container before its files are made.
struct Described {
    pod: Pod,
    container: Container,
    restart_count: i32,
    round: u32,
    image: PresentImage,
    environment: Vec<(String, String)>,
    volumes: VolumeSet,
    target: Option<String>,
    ips: Vec<String>,
    memory: resources::MemoryFacts,
    page_sizes: Arc<[u64]>,
    config: Arc<KubeletConfig>,
}

impl Described {
    /// Makes what is mounted into it beside its volumes, and says how it is to be created. Blocks.
    fn make_files(&self) -> Result<v1::ContainerConfig, StartError> {
        let (config, pod, container) = (&self.config, &self.pod, &self.container);
        let made = |error: std::io::Error| create_failed(&error);
        files::prepare(config, pod, container).map_err(made)?;
        let hosts = files::write_hosts(config, pod, container, &self.ips).map_err(made)?;
        let message = files::make_message_file(config, pod, container, self.restart_count).map_err(made)?;
        container_spec::config(&container_spec::ContainerInput {
            pod,
            container,
            restart_count: self.restart_count,
            round: self.round,
            image: &self.image.id,
            image_user: &self.image.user,
            environment: &self.environment,
            volumes: &self.volumes,
            hosts: hosts.as_deref(),
            message: &message,
            log_path: &files::log_path(&container.name, self.restart_count),
            target: self.target.as_deref(),
            memory: self.memory,
            page_sizes: &self.page_sizes,
            seccomp_root: &config.data_dir.join("seccomp").display().to_string(),
        })
    }
}

/// The runtime's id of the container whose processes an ephemeral container is to see.
fn target_id<'a>(pod: &Pod, name: &str, observed: &'a ObservedPod) -> Result<Option<&'a str>, StartError> {
    let Some(target) = target_of(pod, name) else {
        return Ok(None);
    };
    match observed.latest(target) {
        Some(found) => Ok(Some(&found.id)),
        None => Err(StartError::config(format!(
            "unable to find target container {target}"
        ))),
    }
}
