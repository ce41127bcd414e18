//! Builds and holds a cluster.

use crate::components::{Components, LeaderElection, Transport, Wanted};
use crate::error::ClusterError;
use crate::faults::{Faults, FaultyService};
use crate::identities;
use apiserver_server::pki::Pki;
use apiserver_server::{Server, ServerConfig};
use apiserver_storage::{LogOptions, LogStorage, Storage};
use controllers_manager::Config;
use controllers_manager::manager::Selection;
use controllers_scheduler::{
    Configuration as SchedulerConfiguration, Metrics as SchedulerMetrics, Settings as SchedulerSettings,
};
use machinery_client::Client;
use machinery_meta::UserInfo;
use machinery_runtime::{Background, Runtime, Scope};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// The definition of the kind by which the scheduler's policy is changed.
const SCHEDULER_POLICIES: &str = include_str!("../../manifests/crds/schedulerpolicies.knarr.dev.yaml");

/// Storage of objects.
enum Store {
    Memory,
    Directory(PathBuf),
    Given(Arc<dyn Storage>),
}

/// Parts of a cluster. Every choice has a default; the plainest cluster is in memory, without an address.
pub struct ClusterBuilder {
    runtime: Option<Runtime>,
    background: Option<Background>,
    store: Store,
    keys: Option<Arc<Pki>>,
    server: ServerConfig,
    controllers: Option<Selection>,
    config: Config,
    scheduler: Option<SchedulerConfiguration>,
    election: Option<LeaderElection>,
    faults: Option<Faults>,
    rival: Option<(LeaderElection, Faults)>,
}

impl fmt::Debug for ClusterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterBuilder")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl ClusterBuilder {
    /// Clock, tasks, randomness, disk; the machine's own by default.
    #[must_use]
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Controllers and scheduler run on these threads, and give way to requests; on those of the server by default.
    #[must_use]
    pub fn components_on(mut self, background: Background) -> Self {
        self.background = Some(background);
        self
    }

    /// Objects live in memory and end with the cluster.
    #[must_use]
    pub fn memory(mut self) -> Self {
        self.store = Store::Memory;
        self
    }

    /// Objects and certificates live in this directory.
    #[must_use]
    pub fn data_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        self.server.cert_dir = Some(directory.join("pki"));
        self.store = Store::Directory(directory.join("storage"));
        self
    }

    /// Objects live in this storage.
    #[must_use]
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Self {
        self.store = Store::Given(storage);
        self
    }

    /// Certificates and keys of an earlier cluster, where they are not in the data directory.
    #[must_use]
    pub fn keys(mut self, keys: Arc<Pki>) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Serves on this address too; port 0 takes any free one.
    #[must_use]
    pub fn bind_address(mut self, address: SocketAddr) -> Self {
        self.server.listen = Some(address);
        self
    }

    /// Changes the server's settings.
    #[must_use]
    pub fn server(mut self, change: impl FnOnce(&mut ServerConfig)) -> Self {
        change(&mut self.server);
        self
    }

    /// Changes the controllers' settings.
    #[must_use]
    pub fn controller_config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Selects the controllers that run; none by default.
    #[must_use]
    pub fn controllers(mut self, selection: Selection) -> Self {
        self.controllers = Some(selection);
        self
    }

    /// Run the scheduler as well.
    #[must_use]
    pub fn scheduler(self) -> Self {
        self.scheduler_with(SchedulerConfiguration::default())
    }

    /// Run the scheduler as well, with this configuration.
    #[must_use]
    pub fn scheduler_with(mut self, configuration: SchedulerConfiguration) -> Self {
        self.scheduler = Some(configuration);
        self
    }

    /// Controllers and scheduler run where they are elected, one of all servers of the storage.
    #[must_use]
    pub fn leader_election(mut self, election: Option<LeaderElection>) -> Self {
        self.election = election;
        self
    }

    /// Controllers and scheduler reach the server through these faults; [`Cluster::client_as`] does not.
    #[must_use]
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = Some(faults);
        self
    }

    /// A second process of controllers and scheduler stands for election beside the first, behind faults of its own.
    #[must_use]
    pub fn rival(mut self, election: LeaderElection, faults: Faults) -> Self {
        self.rival = Some((election, faults));
        self
    }

    /// Starts everything; answers once the server serves.
    pub async fn start(self) -> Result<Cluster, ClusterError> {
        let runtime = self.runtime.unwrap_or_else(Runtime::real);
        let scope = runtime.child_scope();
        let runtime = scope.runtime().clone();
        let storage: Arc<dyn Storage> = match self.store {
            Store::Memory => Arc::new(LogStorage::memory(&runtime).await?),
            Store::Directory(directory) => {
                Arc::new(LogStorage::open(&runtime, LogOptions::new(directory)).await?.0)
            }
            Store::Given(storage) => storage,
        };
        let mut settings = self.server;
        settings.components = running(self.controllers.is_some(), self.scheduler.is_some());
        if self.scheduler.is_some() {
            settings.bundled_definitions.push(SCHEDULER_POLICIES);
        }
        let mut server = Server::builder(storage).config(settings);
        if let Some(keys) = self.keys {
            server = server.pki(keys);
        }
        let server = Arc::new(server.start(&runtime).await?);
        let transport = Transport {
            server: Arc::downgrade(&server),
            runtime: self
                .background
                .as_ref()
                .map_or_else(|| runtime.clone(), |own| runtime.on(own)),
            faults: self.faults,
            fence: None,
        };
        let mut config = self.config;
        // What the owner adds comes behind the cluster's own authority.
        config
            .root_ca
            .insert_str(0, server.pki().cluster.certificate_pem());
        config.api_server_names.clone_from(server.pki().serving.names());
        let scheduler = match self.scheduler {
            Some(configuration) => Some(scheduler_settings(configuration, &server)?),
            None => None,
        };
        let wanted = Wanted {
            controllers: self.controllers,
            config,
            scheduler,
            election: self.election,
        };
        let rival = self.rival.map(|rival| rival_of(&wanted, &transport, rival));
        let mut components = vec![Components::new(wanted, transport)];
        components.extend(rival.transpose()?);
        components.iter_mut().for_each(Components::start);
        Ok(Cluster {
            components,
            server,
            scope,
            _background: self.background,
        })
    }
}

/// The same components once more, elected with them, behind other faults. Their metrics are not served.
fn rival_of(
    wanted: &Wanted,
    transport: &Transport,
    (election, faults): (LeaderElection, Faults),
) -> Result<Components, ClusterError> {
    let mut wanted = wanted.clone();
    wanted.election = Some(election);
    if let Some(scheduler) = &mut wanted.scheduler {
        scheduler.metrics =
            SchedulerMetrics::new().map_err(|error| ClusterError::Metrics(error.to_string()))?;
    }
    let transport = Transport {
        faults: Some(faults),
        ..transport.clone()
    };
    Ok(Components::new(wanted, transport))
}

/// The scheduler's settings; its metrics are served with those of the server.
fn scheduler_settings(
    configuration: SchedulerConfiguration,
    server: &Server,
) -> Result<SchedulerSettings, ClusterError> {
    let metrics = SchedulerMetrics::new().map_err(|error| ClusterError::Metrics(error.to_string()))?;
    let served = server.add_metrics(Box::new(metrics.clone()));
    served.map_err(|error| ClusterError::Metrics(error.to_string()))?;
    Ok(SchedulerSettings {
        configuration,
        metrics,
    })
}

/// Components beside the server, by upstream's names.
fn running(controllers: bool, scheduler: bool) -> Vec<&'static str> {
    let all = [("controller-manager", controllers), ("scheduler", scheduler)];
    all.into_iter()
        .filter_map(|(name, runs)| runs.then_some(name))
        .collect()
}

/// A running cluster. Dropping it ends everything at once; [`Cluster::shutdown`] lets requests finish.
pub struct Cluster {
    /// The first, and its rival if there is one.
    components: Vec<Components>,
    server: Arc<Server>,
    scope: Scope,
    /// Threads of the components, which end with the cluster.
    _background: Option<Background>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Begins with the plainest cluster.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder {
            runtime: None,
            background: None,
            store: Store::Memory,
            keys: None,
            server: ServerConfig::default(),
            controllers: None,
            config: Config::default(),
            scheduler: None,
            election: None,
            faults: None,
            rival: None,
        }
    }

    /// A client with this identity, in process, through every filter.
    pub fn client_as(&self, user: UserInfo) -> Client {
        Client::in_process(self.server.service_as(user), self.scope.runtime().clone())
    }

    /// A client with this identity, through faults.
    pub fn client_through(&self, user: UserInfo, faults: &Faults) -> Client {
        let runtime = self.scope.runtime().clone();
        let service = FaultyService::new(self.server.service_as(user), faults.clone(), runtime.clone());
        Client::in_process(service, runtime)
    }

    /// A client with this identity that reaches the server as components do: through the faults, where there are some.
    pub fn component_as(&self, user: UserInfo) -> Client {
        let client = self.components.first().and_then(|own| own.client_as(user));
        client.expect("the server lives as long as this does")
    }

    /// A client that may do everything.
    pub fn admin(&self) -> Client {
        self.client_as(identities::admin())
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The runtime everything of this cluster runs in.
    pub fn runtime(&self) -> &Runtime {
        self.scope.runtime()
    }

    /// Number of its tasks.
    pub fn task_count(&self) -> usize {
        self.scope.task_count()
    }

    /// Ends controllers and scheduler and starts them anew after a while, with empty caches, as if their process had
    /// died. Mutations they had sent end on the server meanwhile.
    pub async fn restart_components(&mut self, pause: std::time::Duration) {
        self.stop_components().await;
        self.runtime().sleep(pause).await;
        self.components.iter_mut().for_each(Components::start);
    }

    /// Ends controllers and scheduler in good order; the server goes on.
    pub async fn stop_components(&mut self) {
        for components in &mut self.components {
            components.stop().await;
        }
    }

    /// Stops controllers, then the server: requests under way finish, acknowledged writes are on disk.
    pub async fn shutdown(mut self) {
        self.stop_components().await;
        match Arc::try_unwrap(self.server) {
            Ok(server) => server.shutdown().await,
            // A caller still starts a client; it ends with the scope.
            Err(server) => drop(server),
        }
        self.scope.stopped().await;
    }
}
