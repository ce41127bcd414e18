//! State that the filters and handlers of a server share.

use crate::aggregation::Aggregation;
use crate::config::ServerConfig;
use crate::feed::AuthorizationFeed;
use crate::filters::audit::auditor::Auditor;
use crate::flow_control::FlowControl;
use crate::metrics::Metrics;
use crate::openid::OpenId;
use crate::trust::Trust;
use apiserver_auth::authn::AuthenticatorChain;
use apiserver_auth::authz::AuthorizerChain;
use apiserver_auth::jwt::SigningKey;
use apiserver_endpoints::Endpoints;
use apiserver_registry::{Registry, SystemDoors};
use jiff::Timestamp;
use machinery_meta::reader::ObjectReader;
use machinery_runtime::{CancellationToken, Runtime, Scope};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// State that filters and handlers share.
pub(crate) struct ServerState {
    pub(crate) config: ServerConfig,
    pub(crate) runtime: Runtime,
    pub(crate) registry: Registry,
    /// Doors of the server's own writes.
    pub(crate) doors: SystemDoors,
    pub(crate) feed: Arc<AuthorizationFeed>,
    pub(crate) endpoints: Endpoints,
    pub(crate) aggregation: Arc<Aggregation>,
    pub(crate) reader: Arc<dyn ObjectReader>,
    pub(crate) authenticators: AuthenticatorChain,
    pub(crate) authorizers: AuthorizerChain,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) openid: OpenId,
    pub(crate) trust: Arc<Trust>,
    pub(crate) signing_key: SigningKey,
    pub(crate) audit: Option<Arc<Auditor>>,
    /// `None` where nothing is limited.
    pub(crate) flow_control: Option<Arc<FlowControl>>,
    /// Mutations live here, so that shutdown can wait for them.
    pub(crate) mutations: Scope,
    pub(crate) started: AtomicBool,
    /// Start-up steps that are done.
    pub(crate) finished_steps: AtomicUsize,
    pub(crate) stopping: CancellationToken,
    /// The server is to stop soon, and is not ready any more.
    pub(crate) shutdown_announced: AtomicBool,
    /// Time at which the server began.
    pub(crate) began: Timestamp,
}

impl ServerState {
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }
}
