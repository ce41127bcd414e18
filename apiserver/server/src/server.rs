//! Putting a server together, starting and stopping it.

use crate::assembly::{Assembly, assemble, feed_failed};
use crate::config::ServerConfig;
use crate::connections::{Connections, Limits, Timeouts};
use crate::entry::RequestEntry;
use crate::error::ServerError;
use crate::file_reload::{FileReload, WatchedFiles};
use crate::listener::Listener;
use crate::renewal::Renewal;
use crate::service::LocalService;
use crate::serving_certificates;
use crate::startup::{self, Startup};
use crate::state::ServerState;
use crate::trust::{self, Trust};
use apiserver_auth::jwt::{self, JwtError, LegacyClaims};
use apiserver_auth::pki::{
    ApprovedRequest, IssueError, Pki, ServingIdentity, client_config, server_config, unverified_client_config,
};
use apiserver_egress::{Dialer, OwnAddresses};
use apiserver_registry::Registry;
use apiserver_storage::Storage;
use arc_swap::ArcSwap;
use machinery_meta::UserInfo;
use machinery_runtime::{Runtime, Scope};
use prometheus::core::Collector;
use rustls::crypto::CryptoProvider;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;

/// Time that a shutdown waits for the audit log and webhook.
const AUDIT_FLUSH: Duration = Duration::from_secs(5);
/// Time in which a stopping server tries to remove its address from the `kubernetes` service.
const WITHDRAWN_WITHIN: Duration = Duration::from_secs(2);

/// A running API server. Dropping it ends everything at once; [`Server::shutdown`] lets requests finish.
pub struct Server {
    facts: Startup,
    front: RequestEntry,
    scope: Scope,
    pki: Arc<Pki>,
    local_address: Option<SocketAddr>,
    advertised: IpAddr,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("local_address", &self.local_address)
            .finish_non_exhaustive()
    }
}

/// A server before its start.
#[derive(Debug, Clone)]
pub struct ServerBuilder {
    config: ServerConfig,
    storage: Arc<dyn Storage>,
    pki: Option<Arc<Pki>>,
}

impl ServerBuilder {
    /// Certificates and keys that are there already; without, they are read from the configured folder or made.
    #[must_use]
    pub fn pki(mut self, pki: Arc<Pki>) -> Self {
        self.pki = Some(pki);
        self
    }

    #[must_use]
    pub fn config(mut self, config: ServerConfig) -> Self {
        self.config = config;
        self
    }

    /// Starts everything and answers once the start-up steps are done.
    pub async fn start(self, runtime: &Runtime) -> Result<Server, ServerError> {
        Server::start(self, runtime).await
    }
}

/// Certificates and keys that a server shows, trusts and dials with, and the files that they are read from again.
struct Identities {
    pki: Arc<Pki>,
    serving: Arc<ServingIdentity>,
    trust: Arc<Trust>,
    dialer: Dialer,
    provider: Arc<CryptoProvider>,
    watched: Vec<WatchedFiles>,
    /// Files of the certificates that the configuration names.
    given: Vec<WatchedFiles>,
}

impl Identities {
    fn open(
        config: &ServerConfig,
        pki: Arc<Pki>,
        local_address: Option<SocketAddr>,
        runtime: &Runtime,
    ) -> Result<Self, ServerError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let offered = Arc::new(config.tls.restricted(&provider));
        let serving = ServingIdentity::new(&pki.serving, pki.cluster.certificate(), &offered)?;
        let given = match local_address {
            Some(_) => serving_certificates::open(config, &serving, runtime)?,
            None => Vec::new(),
        };
        let tls = client_config(pki.cluster.certificate(), &pki.kubelet_client, &provider)?;
        let unverified = unverified_client_config(&provider)?;
        let own = OwnAddresses {
            port: local_address.map(|address| address.port()),
            services: Some(config.service_cluster_ip_range),
        };
        let dialer = Dialer::new(Arc::new(tls), Arc::new(unverified), own, runtime.clone());
        let (trust, watched) = Trust::open(config, &pki)?;
        Ok(Self {
            pki,
            serving,
            trust,
            dialer,
            provider,
            watched,
            given,
        })
    }

    /// Renews the certificates in the configured folder before they end.
    fn keep_renewing(&self, core: &ServerState, advertised: IpAddr) {
        let Some(folder) = core.config.cert_dir.clone() else {
            return;
        };
        let renewal = Arc::new(Renewal {
            folder,
            names: core.config.serving_names(Some(advertised)),
            serving: Arc::clone(&self.serving),
            dialer: self.dialer.clone(),
            front_proxy: Arc::clone(&core.aggregation.identity),
            provider: Arc::clone(&self.provider),
            runtime: core.runtime.clone(),
        });
        let mut due = Some(self.pki.renew_at());
        // Begun again, it looks at the certificates at once.
        let run = move || Arc::clone(&renewal).run(due.take());
        core.runtime.keep("certificate-renewal", run).detach();
    }

    /// Serves on a socket; the files whose changes the listener follows.
    fn listen(
        &mut self,
        socket: TcpListener,
        front: &RequestEntry,
    ) -> Result<Vec<WatchedFiles>, ServerError> {
        let read = std::mem::take(&mut self.watched);
        let given = std::mem::take(&mut self.given);
        let (core, serving, trust) = (&front.core, &self.serving, &self.trust);
        let tls = server_config(Arc::clone(serving), &trust.authorities())?;
        let tls = Arc::new(ArcSwap::from_pointee(tls));
        let mut watched = trust::announced_again(read, &tls, serving, trust);
        watched.extend(trust::serving_files(&core.config, &self.pki, serving));
        watched.extend(given);
        let listener = Arc::new(Listener {
            socket,
            tls,
            serving: Arc::clone(serving),
            front: front.clone(),
            runtime: core.runtime.clone(),
            connections: Connections::new(Limits {
                all: core.config.max_connections,
                of_address: core.config.max_connections_per_address,
            }),
            keep_alive: core.config.tcp_keep_alive,
            timeouts: Timeouts {
                header: core.config.header_timeout,
                idle: core.config.idle_timeout,
            },
            stopping: core.stopping.clone(),
        });
        let run = move || Arc::clone(&listener).run();
        core.runtime.keep("listener", run).detach();
        Ok(watched)
    }
}

fn keep_counting_objects(core: &ServerState) {
    let (objects, registry) = (core.metrics.objects.clone(), core.registry.clone());
    let counting = core.runtime.clone();
    let run = move || objects.clone().keep_counting(registry.clone(), counting.clone());
    core.runtime.keep("stored object counts", run).detach();
}

fn keep_reloading(watched: Vec<WatchedFiles>, core: &ServerState) {
    if watched.is_empty() {
        return;
    }
    let interval = core.config.file_reload_interval;
    let reload = FileReload::new(watched, interval, core.runtime.clone());
    let run = move || Arc::clone(&reload).run();
    core.runtime.keep("file-reload", run).detach();
}

impl Server {
    pub fn builder(storage: Arc<dyn Storage>) -> ServerBuilder {
        ServerBuilder {
            config: ServerConfig::default(),
            storage,
            pki: None,
        }
    }

    /// See [`ServerBuilder::start`].
    async fn start(builder: ServerBuilder, runtime: &Runtime) -> Result<Self, ServerError> {
        let ServerBuilder { config, storage, pki } = builder;
        config.check()?;
        let scope = runtime.child_scope();
        let runtime = scope.runtime().clone();
        let socket = bind(config.listen).await?;
        let local_address = socket.as_ref().and_then(|socket| socket.local_addr().ok());
        let advertised = advertised_address(&config);
        let pki = match pki {
            Some(pki) => pki,
            None => Arc::new(open_pki(&config, advertised, &runtime).await?),
        };
        let mut identities = Identities::open(&config, pki, local_address, &runtime)?;
        let port = local_address.map_or(0, |address| address.port());
        let advertised_at = SocketAddr::new(advertised, port);
        let parts = Assembly {
            config,
            storage,
            pki: &identities.pki,
            trust: Arc::clone(&identities.trust),
            dialer: identities.dialer.clone(),
            advertised: advertised_at,
        };
        let core = assemble(parts, &runtime).await?;
        identities.keep_renewing(&core, advertised);
        let front = RequestEntry::new(Arc::clone(&core));
        let watched = match socket {
            Some(socket) => {
                keep_counting_objects(&core);
                identities.listen(socket, &front)?
            }
            None => std::mem::take(&mut identities.watched),
        };
        keep_reloading(watched, &core);
        let facts = Startup {
            core: Arc::clone(&core),
            advertised: advertised_at,
        };
        startup::run(&facts).await?;
        core.feed.catch_up().await.map_err(feed_failed)?;
        core.started.store(true, Ordering::Release);
        Ok(Self {
            facts,
            front,
            scope,
            pki: identities.pki,
            local_address,
            advertised,
        })
    }

    /// The address on which the server listens; `None` if it serves in process only.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.local_address
    }

    /// The address for clients outside of this machine.
    pub fn advertised_address(&self) -> IpAddr {
        self.advertised
    }

    /// A service that acts as this user, through every filter.
    pub fn service_as(&self, user: UserInfo) -> LocalService {
        LocalService::new(self.front.clone(), user)
    }

    /// A token to be kept in a Secret, which is good as long as the Secret has it.
    ///
    /// # Errors
    /// Where the signing fails.
    pub fn secret_token(&self, claims: &LegacyClaims) -> Result<String, JwtError> {
        jwt::sign(&self.front.core.signing_key, claims)
    }

    /// A certificate in PEM for an approved request, by the cluster's authority.
    ///
    /// # Errors
    /// No certificate can be made for the request.
    pub fn certificate(&self, approved: &ApprovedRequest<'_>) -> Result<String, IssueError> {
        let runtime = &self.front.core.runtime;
        let mut serial = [0; 16];
        runtime.fill(&mut serial);
        self.pki.cluster.issue(approved, serial, runtime.now())
    }

    pub fn pki(&self) -> &Arc<Pki> {
        &self.pki
    }

    /// Serves the metrics of another component of this process with those of the server.
    ///
    /// # Errors
    /// A family of this name is there already.
    pub fn add_metrics(&self, component: Box<dyn Collector>) -> Result<(), prometheus::Error> {
        self.front.core.metrics.registry().register(component)
    }

    pub fn registry(&self) -> &Registry {
        &self.front.core.registry
    }

    /// Fails the check of readiness from now on, while everything else goes on.
    pub fn announce_shutdown(&self) {
        let core = &self.front.core;
        core.shutdown_announced.store(true, Ordering::Release);
    }

    /// Takes no new requests, waits for those under way and for every mutation, then ends the rest.
    pub async fn shutdown(self) {
        let core = &self.front.core;
        core.stopping.cancel();
        let runtime = core.runtime.clone();
        let withdrawn = startup::kubernetes_service::withdraw(&self.facts);
        match runtime.timeout(WITHDRAWN_WITHIN, withdrawn).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "removing this server's endpoint failed; it expires with its lease")
            }
            Err(_) => tracing::warn!("removing this server's endpoint failed; it expires with its lease"),
        }
        if runtime
            .timeout(core.config.shutdown_grace, core.mutations.drained())
            .await
            .is_err()
        {
            tracing::warn!("mutations were still under way when the time for shutting down was over");
        }
        if let Some(audit) = &core.audit {
            // What is still under way is not waited for.
            let flushed = runtime.timeout(AUDIT_FLUSH, audit.flush()).await;
            let unsent = audit.unsent();
            if flushed.is_err() && unsent > 0 {
                tracing::error!(
                    unsent,
                    "audit events are not sent to the webhook: the server ends"
                );
            }
        }
        core.registry.close().await;
        self.scope.stopped().await;
    }
}

async fn bind(listen: Option<SocketAddr>) -> Result<Option<TcpListener>, ServerError> {
    let Some(address) = listen else { return Ok(None) };
    let bound = TcpListener::bind(address).await;
    bound
        .map(Some)
        .map_err(|source| ServerError::Listen { address, source })
}

/// The configured address, the bound one, or that of the interface with the default route. A bound loopback address is not
/// advertised: it would lead every pod to itself.
fn advertised_address(config: &ServerConfig) -> IpAddr {
    let bound = config.listen.map(|address| address.ip());
    let bound = bound.filter(|address| !address.is_unspecified() && !address.is_loopback());
    config
        .advertise_address
        .or(bound)
        .or_else(own_address)
        .unwrap_or(IpAddr::from([127, 0, 0, 1]))
}

/// The address that this machine uses towards others; connecting a datagram socket sends nothing.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket
        .local_addr()
        .ok()
        .map(|address| address.ip())
        .filter(|address| !address.is_unspecified())
}

async fn open_pki(config: &ServerConfig, advertised: IpAddr, runtime: &Runtime) -> Result<Pki, ServerError> {
    let (folder, names, now) = (
        config.cert_dir.clone(),
        config.serving_names(Some(advertised)),
        runtime.now(),
    );
    let opened = runtime.blocking(move || match folder {
        Some(folder) => Pki::open(&folder, &names, now),
        None => Pki::generate(&names, now),
    });
    Ok(opened.await.map_err(|_| ServerError::Stopping)??)
}
