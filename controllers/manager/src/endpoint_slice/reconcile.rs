//! Gather, plan, write slices.

use super::ROW;
use super::plan::{Plan, desired, labels, plan};
use super::view::{Endpoint, Port, SliceView};
use crate::heavy;
use crate::pod_control::reference;
use crate::views::template::OwnerReference;
use crate::views::{NodeView, PodView, ServiceView};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use machinery_client::object::parse_header;
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, Edit, IndexName, Informer, Object};
use machinery_meta::{ObjectKey, Revision};
use machinery_reconcile::{EventRecorder, Expectations, Outcome, ReconcileError, Reconciler, names};
use machinery_runtime::Runtime;
use serde_json::json;
use std::sync::Arc;

pub(super) struct SliceReconciler {
    pub(super) client: Client,
    pub(super) recorder: EventRecorder,
    pub(super) runtime: Runtime,
    pub(super) services: Informer<ServiceView>,
    pub(super) pods: Informer<PodView>,
    pub(super) nodes: Informer<NodeView>,
    pub(super) slices: Informer<SliceView>,
    /// Slices made and changed and not seen yet.
    pub(super) tracker: Expectations<ObjectKey>,
}

impl Reconciler for SliceReconciler {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(service) = self.services.get(key) else {
                self.tracker.forget(key);
                return self.remove_all(key).await;
            };
            let no_endpoints =
                service.selector.is_empty() || service.external_name || service.header.is_deleting();
            if no_endpoints {
                return Ok(Outcome::Done);
            }
            let awaited = self.tracker.settle(key, &self.slices);
            if awaited.events {
                // The slices' own events wake us.
                return Ok(Outcome::Done);
            }
            // A lost answer: whether the slice was made will show; the plan is made anew from what is seen.
            for slice in &awaited.unacknowledged {
                self.tracker.not_created(key, slice);
            }
            let plan = self.plan(&service).await;
            match self.act(&service, &plan).await {
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
        let resource = ApiResource::of::<EndpointSlice>();
        for (family, ports, endpoints) in &plan.create {
            self.create(service, family, ports, endpoints).await?;
        }
        for (slice, endpoints) in &plan.update {
            let mut edit = Edit::of(&resource, &slice.json())?;
            edit.set("endpoints", endpoints)?;
            edit.set_in("metadata", "labels", &labels(service))?;
            self.tracker.changing(service.key(), slice.key().clone());
            match self.client.update(&resource, slice.key(), "", edit.body()).await {
                Ok(body) => {
                    let revision = parse_header(&body).map_or(Revision::ZERO, |(_, revision)| revision);
                    self.tracker.changed(service.key(), slice.key(), revision);
                }
                Err(error) => {
                    self.tracker.not_changed(service.key(), slice.key());
                    return Err(error);
                }
            }
        }
        for slice in &plan.delete {
            match self
                .client
                .delete(&resource, slice.key(), &DeleteOptions::uid(slice.uid()))
                .await
            {
                Err(error) if !error.is_not_found() && !error.is_conflict() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    async fn create(
        &self,
        service: &Object<ServiceView>,
        family: &str,
        ports: &[Port],
        endpoints: &[Endpoint],
    ) -> Result<(), ClientError> {
        let prefix = format!("{}-", service.name());
        let name = ObjectKey::new(service.namespace(), names::generate(&self.runtime, &prefix));
        let body = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": name.name, "generateName": prefix, "namespace": name.namespace, "labels": labels(service),
                "ownerReferences": [OwnerReference::controller("v1", "Service", &service.header)],
            },
            "addressType": family, "ports": ports, "endpoints": endpoints,
        });
        self.tracker.creating(service.key(), name.clone());
        match self
            .client
            .create(&ApiResource::of::<EndpointSlice>(), &name.namespace, &body)
            .await
        {
            Ok(body) => {
                let revision = parse_header(&body).map_or(Revision::ZERO, |(_, revision)| revision);
                self.tracker.created(service.key(), &name, revision);
                Ok(())
            }
            Err(error) => {
                self.tracker.not_created(service.key(), &name);
                Err(error)
            }
        }
    }

    /// The service is gone; its slices go at once, not only when the garbage collector comes by.
    async fn remove_all(&self, key: &ObjectKey) -> Result<Outcome, ReconcileError> {
        for slice in self.existing(key) {
            let options = DeleteOptions::uid(slice.uid());
            match self
                .client
                .delete(&ApiResource::of::<EndpointSlice>(), slice.key(), &options)
                .await
            {
                Err(error) if !error.is_not_found() && !error.is_conflict() => {
                    return Err(ReconcileError::doing("removing endpoint slices")(error));
                }
                _ => {}
            }
        }
        Ok(Outcome::Done)
    }
}
