//! Requests that other parts of the server answer: reviews, tokens and streams.

use crate::body::Body;
use crate::extensions::ExtensionGroups;
use crate::request_info::RequestInfo;
use crate::resource_usage::ResourceUsage;
use apiserver_registry::row::{ResourceRow, Subresource};
use apiserver_registry::{Admitted, RegistryError, RequestContext};
use async_trait::async_trait;
use machinery_schema::Tree;
use std::sync::Arc;

/// A request to a streaming subresource (`log`, `exec`, `attach`, `portforward`, `proxy`).
#[derive(Debug)]
pub struct ConnectRequest<'a> {
    pub info: &'a RequestInfo,
    pub row: &'a ResourceRow,
    pub subresource: &'a Subresource,
    /// With its upgrade in the extensions, as the connection left it.
    pub request: http::Request<Body>,
}

/// A part of the control plane, as `componentstatuses` shows it.
#[derive(Debug, Clone)]
pub struct Component {
    pub name: &'static str,
    /// The problem of an unhealthy component.
    pub health: Result<(), String>,
}

/// Takes the size of each event that is sent to a watcher.
pub trait WatchEvents: Send + Sync {
    fn sent(&self, bytes: usize);
}

/// Filled by the server.
#[async_trait]
pub trait Hooks: Send + Sync {
    /// Answers a review (SubjectAccessReview and its kin, TokenReview, SelfSubjectReview): the object with its status.
    async fn review(
        &self,
        ctx: &RequestContext,
        admitted: &Admitted,
        object: Tree,
    ) -> Result<Tree, RegistryError>;

    /// Makes a token for a service account from a TokenRequest: the object with its status.
    async fn token(
        &self,
        ctx: &RequestContext,
        admitted: &Admitted,
        service_account: &Tree,
        object: Tree,
    ) -> Result<Tree, RegistryError>;

    /// Checks that the user may use another verb than the request's own on its object; an error refuses.
    async fn authorize(
        &self,
        ctx: &RequestContext,
        verb: &str,
        info: &RequestInfo,
    ) -> Result<(), RegistryError>;

    /// The parts of the control plane that this process runs or uses, in order of their names.
    async fn components(&self) -> Vec<Component>;

    /// Group versions that other servers answer.
    fn extensions(&self) -> Arc<ExtensionGroups> {
        Arc::default()
    }

    /// The usage of nodes and pods that was measured last (`metrics.k8s.io`).
    async fn resource_usage(&self) -> Arc<ResourceUsage> {
        Arc::default()
    }

    /// Counts events of a kind; called once for each watch.
    fn watch_events(&self, _: &ResourceRow) -> Option<Arc<dyn WatchEvents>> {
        None
    }

    /// Counts a list that is answered: entries that were read for it, and those that are on it.
    fn listed(&self, _: &ResourceRow, _fetched: usize, _returned: usize) {}

    /// Streams to a kubelet, or proxies to a pod, service or node.
    async fn connect(
        &self,
        ctx: &RequestContext,
        admitted: &Admitted,
        request: ConnectRequest<'_>,
    ) -> Result<http::Response<Body>, RegistryError>;

    /// Streams the log of a container from its kubelet.
    async fn log(
        &self,
        ctx: &RequestContext,
        request: ConnectRequest<'_>,
    ) -> Result<http::Response<Body>, RegistryError>;
}

/// Answers that the part is missing, honestly; nobody is refused anything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

#[async_trait]
impl Hooks for NoHooks {
    async fn review(&self, _: &RequestContext, review: &Admitted, _: Tree) -> Result<Tree, RegistryError> {
        let kind = &review.attributes().kind.kind;
        Err(RegistryError::Unavailable(format!(
            "no authorizer answers {kind} here"
        )))
    }

    async fn token(
        &self,
        _: &RequestContext,
        _: &Admitted,
        _: &Tree,
        _: Tree,
    ) -> Result<Tree, RegistryError> {
        Err(RegistryError::Unavailable("no issuer of tokens here".into()))
    }

    async fn authorize(&self, _: &RequestContext, _: &str, _: &RequestInfo) -> Result<(), RegistryError> {
        Ok(())
    }

    async fn components(&self) -> Vec<Component> {
        Vec::new()
    }

    async fn connect(
        &self,
        _: &RequestContext,
        _: &Admitted,
        request: ConnectRequest<'_>,
    ) -> Result<http::Response<Body>, RegistryError> {
        let name = &request.subresource.name;
        Err(RegistryError::Unavailable(format!(
            "nothing connects to {name} here"
        )))
    }

    async fn log(
        &self,
        _: &RequestContext,
        _: ConnectRequest<'_>,
    ) -> Result<http::Response<Body>, RegistryError> {
        Err(RegistryError::Unavailable("no kubelet has logs here".into()))
    }
}
