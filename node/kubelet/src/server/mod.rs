//! Port 10250: logs, exec, attach, port-forward, the node's pods and figures, for authorized clients.
//!
//! A connection is TLS; its user is known by client certificate ([`clients`]) or by a bearer token that the API
//! server reviews ([`auth`], at the rate of [`reviews`]); the API server also authorizes. [`routes`] then answers, and
//! [`streaming`] takes connections over. [`healthz`] is the loopback port without either.

pub(crate) mod attributes;
pub(crate) mod auth;
mod cadvisor;
mod checkpoint;
pub(crate) mod clients;
mod components;
mod configz;
mod connection;
mod connection_places;
mod debug_pages;
pub(crate) mod healthz;
mod known_slots;
mod local_volumes;
mod log_options;
mod log_runs;
mod logs;
mod methods;
#[cfg(test)]
mod metric_families;
mod metrics;
mod node_counts;
pub(crate) mod query;
mod requests;
pub(crate) mod response;
mod reviews;
pub(crate) mod routes;
mod run;
mod running_pods;
mod stats;
pub(crate) mod streaming;
pub(crate) mod system_logs;
mod tls;
pub(crate) mod usage;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use machinery_runtime::{Runtime, Watched, keep_alive};
use machinery_x509::PeerCertificate;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;

use crate::config::KubeletConfig;
use crate::managers::ManagerContext;
use clients::Clients;
use connection_places::ConnectionPlaces;
use requests::OpenRequests;
use routes::Caller;

/// A client must finish its TLS handshake in this time.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The servers cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A port is taken or not ours to take.
    #[error("listening on {address}")]
    Listen {
        /// Address.
        address: SocketAddr,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// Certificate or key cannot be used.
    #[error("setting up TLS: {0}")]
    Tls(String),
}

/// Sockets that listen, and the TLS they speak. Each is taken by the manager that serves it.
#[derive(Debug, Clone)]
pub(crate) struct Listeners {
    main: Arc<TcpListener>,
    health: Option<Arc<TcpListener>>,
    tls: Arc<rustls::ServerConfig>,
    pub(crate) serving: Arc<tls::ServingCertificate>,
    /// `None` where no authority of clients is known.
    pub(crate) clients: Option<Arc<Clients>>,
}

impl Listeners {
    /// Binds both ports.
    pub(crate) async fn bind(config: &KubeletConfig) -> Result<Self, ServerError> {
        let (tls, serving) = tls::server_config(config)?;
        let clients = config.client_ca.clone().map(Clients::open).transpose()?;
        let any = match config.node_ip {
            std::net::IpAddr::V4(_) => SocketAddr::from(([0, 0, 0, 0], config.port)),
            std::net::IpAddr::V6(_) => SocketAddr::from(([0_u16; 8], config.port)),
        };
        let main = listen(any).await?;
        let health = match config.healthz_port {
            None => None,
            Some(port) => Some(Arc::new(listen(SocketAddr::from(([127, 0, 0, 1], port))).await?)),
        };
        Ok(Self {
            main: Arc::new(main),
            health,
            tls: Arc::new(tls),
            serving,
            clients,
        })
    }

    /// The authenticated server's port.
    pub(crate) fn port(&self) -> Option<u16> {
        port_of(&self.main)
    }

    /// The loopback health port.
    pub(crate) fn healthz_port(&self) -> Option<u16> {
        self.health.as_deref().and_then(port_of)
    }
}

fn port_of(listener: &TcpListener) -> Option<u16> {
    listener.local_addr().ok().map(|address| address.port())
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ServerError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| ServerError::Listen { address, source })
}

/// Serves the authenticated port for ever.
pub(crate) async fn serve(context: ManagerContext, listeners: Listeners) {
    let listener = Arc::clone(&listeners.main);
    let acceptor = tokio_rustls::TlsAcceptor::from(listeners.tls.clone());
    let (clients, serving) = (listeners.clients.clone(), listeners.serving.clone());
    let server = Arc::new(routes::Server::new(context.clone(), clients, serving));
    let places = ConnectionPlaces::new(context.config.max_connections);
    loop {
        let Ok((stream, address)) = listener.accept().await else {
            context.runtime.sleep(Duration::from_millis(50)).await;
            continue;
        };
        keep_alive(&stream);
        let place = places.for_anonymous(address.ip());
        let (server, acceptor, runtime) = (server.clone(), acceptor.clone(), context.runtime.clone());
        context.runtime.spawn("kubelet connection", async move {
            let handshake = runtime.timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
            let Some(Ok(Ok(stream))) = place.closing().run_until_cancelled(handshake).await else {
                return;
            };
            let peer = stream
                .get_ref()
                .1
                .peer_certificates()
                .and_then(PeerCertificate::new);
            let user = server.known(peer.as_ref());
            let caller = Arc::new(Caller {
                peer,
                address: address.ip(),
                requests: OpenRequests::default(),
                admitted: Arc::new(Watched::new(None)),
            });
            let serving = serve_connection(server, stream, caller.clone(), runtime);
            match user {
                Some(user) => place.hold_known(&user.name, &caller, serving).await,
                None => place.hold(&caller, serving).await,
            }
        });
    }
}

async fn serve_connection(
    server: Arc<routes::Server>,
    stream: TlsStream<TcpStream>,
    caller: Arc<Caller>,
    runtime: Runtime,
) {
    let handle = move |request| {
        let (server, caller) = (server.clone(), caller.clone());
        async move { server.handle(&caller, request).await }
    };
    connection::serve(stream, runtime, handle).await;
}
