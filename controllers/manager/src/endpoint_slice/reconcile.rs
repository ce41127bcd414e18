//! Gather, plan, write slices.

use super::ROW;
use super::metrics::SliceMetrics;
use super::plan::{Plan, desired, labels, plan};
use super::view::SliceView;
use crate::heavy;
use crate::pod_control::reference;
use crate::slice_writer::SliceWriter;
use crate::views::template::OwnerReference;
use crate::views::{NodeView, PodView, ServiceView};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use machinery_client::{ApiResource, ClientError, Edit, IndexName, Informer, Object};
use machinery_meta::ObjectKey;
use machinery_reconcile::{EventRecorder, Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use serde_json::json;
use std::sync::Arc;

pub(super) struct SliceReconciler {
    pub(super) writer: SliceWriter,
    pub(super) metrics: SliceMetrics,
    pub(super) recorder: EventRecorder,
    pub(super) runtime: Runtime,
    pub(super) services: Informer<ServiceView>,
    pub(super) pods: Informer<PodView>,
    pub(super) nodes: Informer<NodeView>,
    pub(super) slices: Informer<SliceView>,
}

impl Reconciler for SliceReconciler {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(service) = self.services.get(key) else {
                self.writer.forget(key);
                return self.remove_all(key).await;
            };
            let no_endpoints =
                service.selector.is_empty() || service.external_name || service.header.is_deleting();
            if no_endpoints {
                return Ok(Outcome::Done);
            }
            if !self.writer.is_settled(key, &self.slices) {
                // The slices' own events wake us.
                self.metrics.synced("stale");
                return Ok(Outcome::Done);
            }
            let plan = self.plan(&service).await;
            self.metrics.planned(&plan);
            let done = self.act(&service, &plan).await;
            self.metrics
                .synced(if done.is_ok() { "success" } else { "error" });
            match done {
                Err(error) if error.has_cause("NamespaceTerminating") => Ok(Outcome::Done),
                Err(error) => {
                    let about = reference(&ApiResource::of::<Service>(), &service.header);
                    if !error.is_conflict() {
                        let message = format!("Error updating Endpoint Slices for Service {key}: {error}");
                        self.recorder
                            .warning(&about, "FailedToUpdateEndpointSlices", message);
                    }
                    Err(ReconcileError::doing("writing endpoint slices")(error))
                }
                Ok(()) => Ok(Outcome::Done),
            }
        })
    }
}

impl SliceReconciler {
    fn existing(&self, key: &ObjectKey) -> Vec<Arc<Object<SliceView>>> {
        self.slices.by_index(SliceView::SERVICE, &key.to_string())
    }

    /// Plans; for many pods with many ports in the namespace's turn.
    async fn plan(&self, service: &Arc<Object<ServiceView>>) -> Plan {
        let pods = self.pods.by_index(IndexName::NAMESPACE, service.namespace());
        let steps = pods.len().saturating_mul(service.steps());
        let (own, nodes, existing) = (service.clone(), self.nodes.clone(), self.existing(service.key()));
        let planning = move || {
            let zone = |node: &str| {
                let node = nodes.get(&ObjectKey::cluster(node))?;
                node.zone.clone()
            };
            plan(desired(&own, &pods, zone), &labels(&own), &existing)
        };
        if steps <= heavy::LIGHT {
            return planning();
        }
        let flow = heavy::flow(ROW.name, service.namespace());
        self.runtime.heavy(flow, planning).await
    }

    async fn act(&self, service: &Object<ServiceView>, plan: &Plan) -> Result<(), ClientError> {
        let owner = OwnerReference::controller("v1", "Service", &service.header);
        for (family, ports, endpoints) in &plan.create {
            let slice = json!({
                "metadata": {"labels": labels(service), "ownerReferences": [owner]},
                "addressType": family, "ports": ports, "endpoints": endpoints,
            });
            self.writer.create(service.key(), slice).await?;
        }
        for (slice, endpoints) in &plan.update {
            let mut edit = Edit::of(&ApiResource::of::<EndpointSlice>(), &slice.json())?;
            edit.set("endpoints", endpoints)?;
            edit.set_in("metadata", "labels", &labels(service))?;
            self.writer.update(service.key(), slice.key(), edit).await?;
        }
        for slice in &plan.delete {
            self.writer.delete(slice).await?;
        }
        Ok(())
    }

    /// The service is gone; its slices go at once, not only when the garbage collector comes by.
    async fn remove_all(&self, key: &ObjectKey) -> Result<Outcome, ReconcileError> {
        for slice in self.existing(key) {
            let deleted = self.writer.delete(&slice).await;
            deleted.map_err(ReconcileError::doing("removing endpoint slices"))?;
        }
        Ok(Outcome::Done)
    }
}
