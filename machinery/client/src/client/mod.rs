//! Requests to the API with one identity, as bytes and headers; typed values are only what callers decode themselves.
//!
//! The transport is a `kube::Client` with TLS from a kubeconfig, or calls of a service in this process. A verb of [`requests`], or of
//! [`writes`] where the answer need not be read, makes a path ([`paths`]) and a body, and [`exchange`] sends them: every request has a time
//! limit of the runtime's clock, every answer a size limit.

mod exchange;
mod options;
mod paths;
mod requests;
mod transport;
mod writes;
mod written;

pub use options::{DeleteOptions, Patch, Precondition, Propagation};
pub(crate) use paths::push_encoded;
pub use paths::with_query;
pub use requests::decode;
pub use writes::Writes;
pub use written::Written;

use crate::answer;
use crate::error::ClientError;
use bytes::Bytes;
use http::{Request, Response};
use kube::client::Body;
use machinery_runtime::Runtime;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use transport::Transport;

/// A client with one identity. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    transport: Transport,
    runtime: Runtime,
    user_agent: Arc<str>,
    /// The largest answer that is collected.
    max_answer_bytes: usize,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("user_agent", &self.user_agent)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client over an existing `kube::Client`.
    pub fn new(kube: kube::Client, runtime: Runtime) -> Self {
        Self::over(Transport::Kube(kube), runtime)
    }

    fn over(transport: Transport, runtime: Runtime) -> Self {
        Self {
            transport,
            runtime,
            user_agent: Arc::from("knarr"),
            max_answer_bytes: answer::MAX_BYTES,
        }
    }

    /// A client over a service in this process; its answers are taken to share the server's memory.
    pub fn in_process<S, B>(service: S, runtime: Runtime) -> Self
    where
        S: tower::Service<Request<Body>, Response = Response<B>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<tower::BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<tower::BoxError>,
    {
        Self::over(Transport::in_process(service), runtime)
    }

    /// A client of a kubeconfig file's current context.
    pub async fn from_kubeconfig(path: &Path, runtime: Runtime) -> Result<Self, ClientError> {
        let file = kube::config::Kubeconfig::read_from(path)
            .map_err(|error| ClientError::Config(format!("{}: {error}", path.display())))?;
        let made = Self::of_kubeconfig(file, runtime).await;
        made.map_err(|error| match error {
            ClientError::Config(why) => ClientError::Config(format!("{}: {why}", path.display())),
            other => other,
        })
    }

    /// A client of the current context of a kubeconfig's text.
    pub async fn from_kubeconfig_text(text: &str, runtime: Runtime) -> Result<Self, ClientError> {
        let file = kube::config::Kubeconfig::from_yaml(text);
        let file = file.map_err(|error| ClientError::Config(error.to_string()))?;
        Self::of_kubeconfig(file, runtime).await
    }

    async fn of_kubeconfig(file: kube::config::Kubeconfig, runtime: Runtime) -> Result<Self, ClientError> {
        let config = |error: &dyn std::fmt::Display| ClientError::Config(error.to_string());
        let options = kube::config::KubeConfigOptions::default();
        let mut loaded = kube::Config::from_custom_kubeconfig(file, &options)
            .await
            .map_err(|error| config(&error))?;
        // Watches are silent for minutes; the limits are ours, per request.
        loaded.read_timeout = None;
        loaded.write_timeout = None;
        let kube = kube::Client::try_from(loaded).map_err(|error| config(&error))?;
        Ok(Self::new(kube, runtime))
    }

    /// The same client under another `User-Agent`; field managers take their name from it.
    #[must_use]
    pub fn with_user_agent(mut self, user_agent: &str) -> Self {
        self.user_agent = Arc::from(user_agent);
        self
    }

    /// A `kube::Client` of the same identity, for `kube::Api` and WebSockets.
    pub fn kube(&self) -> &kube::Client {
        self.transport.kube()
    }

    /// The runtime whose clock bounds the requests.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn shares_memory(&self) -> bool {
        self.transport.shares_memory()
    }
}
