//! Answers of this server to the questions of its endpoints: [`reviews`], [`tokens`], [`rights`] beyond the request's own; and,
//! here, where another part of the server answers by itself.

mod objects;
mod reviews;
mod rights;
mod tokens;

use crate::aggregation::Aggregation;
use crate::kubelet::Kubelets;
use crate::metrics::{ListMetrics, WatchMetrics};
use crate::resource_metrics::ResourceMetrics;
use apiserver_auth::reviews::Reviewer;
use apiserver_auth::token_request::TokenIssuer;
use apiserver_endpoints::{
    ApiError, Body, Component, ConnectRequest, Connections, ExtensionGroups, Observers, Parts, ResourceUsage,
    WatchEvents,
};
use apiserver_registry::{Admitted, Registry, RequestContext, ResourceRow};
use async_trait::async_trait;
use machinery_meta::reader::ObjectReader;
use std::sync::Arc;

/// Parts of the server that answer.
pub(crate) struct ServerHooks {
    pub(crate) aggregation: Arc<Aggregation>,
    pub(crate) reviewer: Reviewer,
    pub(crate) issuer: TokenIssuer,
    pub(crate) reader: Arc<dyn ObjectReader>,
    pub(crate) kubelets: Kubelets,
    pub(crate) registry: Registry,
    pub(crate) watches: Arc<WatchMetrics>,
    pub(crate) lists: Arc<ListMetrics>,
    pub(crate) resource_metrics: Arc<ResourceMetrics>,
    /// Other parts of the control plane in this process.
    pub(crate) components: Vec<&'static str>,
}

impl Observers for ServerHooks {
    fn watch_events(&self, row: &ResourceRow) -> Option<Arc<dyn WatchEvents>> {
        self.watches.of(row)
    }

    fn listed(&self, row: &ResourceRow, fetched: usize, returned: usize) {
        self.lists.listed(row, fetched, returned);
    }
}

#[async_trait]
impl Parts for ServerHooks {
    fn extensions(&self) -> Arc<ExtensionGroups> {
        self.aggregation.shown()
    }

    async fn resource_usage(&self) -> Arc<ResourceUsage> {
        self.resource_metrics.usage().await
    }

    async fn components(&self) -> Vec<Component> {
        let storage = self.registry.stored().current_revision().await;
        let mut all = vec![Component {
            // Whatever it is, it stands where upstream has etcd.
            name: "etcd-0",
            health: storage.map(drop).map_err(|error| error.to_string()),
        }];
        // They have no life of their own: they run as long as this server.
        all.extend(
            self.components
                .iter()
                .map(|name| Component { name, health: Ok(()) }),
        );
        all.sort_by_key(|component| component.name);
        all
    }
}

#[async_trait]
impl Connections for ServerHooks {
    async fn connect(
        &self,
        ctx: &RequestContext,
        _admitted: &Admitted,
        request: ConnectRequest<'_>,
    ) -> Result<http::Response<Body>, ApiError> {
        self.kubelets.connect(&*self.reader, ctx, request).await
    }

    async fn log(
        &self,
        ctx: &RequestContext,
        request: ConnectRequest<'_>,
    ) -> Result<http::Response<Body>, ApiError> {
        self.kubelets.connect(&*self.reader, ctx, request).await
    }
}
