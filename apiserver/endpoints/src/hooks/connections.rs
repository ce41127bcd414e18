//! Streams to kubelets, and proxied requests.

use crate::body::Body;
use crate::error::ApiError;
use crate::request_info::RequestInfo;
use apiserver_registry::row::{ResourceRow, Subresource};
use apiserver_registry::{Admitted, RegistryError, RequestContext};
use async_trait::async_trait;
use machinery_schema::Tree;

/// A request to a streaming subresource (`log`, `exec`, `attach`, `portforward`, `proxy`).
#[derive(Debug)]
pub struct ConnectRequest<'a> {
    pub info: &'a RequestInfo,
    pub row: &'a ResourceRow,
    pub subresource: &'a Subresource,
    /// The options of a connection as admission left them; absent for `log`.
    pub options: Option<&'a Tree>,
    /// The path behind a proxy that admission put in the place of the address's.
    pub path: Option<&'a str>,
    /// With its upgrade in the extensions, as the connection left it.
    pub request: http::Request<Body>,
}

/// Connects requests to nodes, pods and services.
#[async_trait]
pub trait Connections: Send + Sync {
    /// Streams to a kubelet, or proxies to a pod, service or node.
    async fn connect(
        &self,
        _: &RequestContext,
        _: &Admitted,
        request: ConnectRequest<'_>,
    ) -> Result<http::Response<Body>, ApiError> {
        let name = &request.subresource.name;
        let why = format!("nothing connects to {name} here");
        Err(RegistryError::Unavailable(why).into())
    }

    /// Streams the log of a container from its kubelet.
    async fn log(&self, _: &RequestContext, _: ConnectRequest<'_>) -> Result<http::Response<Body>, ApiError> {
        Err(RegistryError::Unavailable("no kubelet has logs here".into()).into())
    }
}
