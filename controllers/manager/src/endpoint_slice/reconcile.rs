//! Gather, plan, write slices.

use super::ROW;
use super::metrics::SliceMetrics;
use super::plan::{MAX_PORTS, NodeZone, Plan, desired, labels, plan, slice_units};
use super::view::SliceView;
use crate::endpoint_shares::{EndpointShares, PlanCost, Taken, say_short};
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
use machinery_reconcile::{EventRecorder, Outcome, ReconcileError, Reconciler, WorkQueue};
use machinery_runtime::Runtime;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Time after which pods are reconciled again whose nodes were not known.
const LOST_RETRY: Duration = Duration::from_secs(5);

pub(super) struct SliceReconciler {
    pub(super) writer: SliceWriter,
    pub(super) metrics: SliceMetrics,
    pub(super) recorder: EventRecorder,
    pub(super) runtime: Runtime,
    pub(super) queue: WorkQueue<ObjectKey>,
    pub(super) shares: EndpointShares,
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
            if service.selector.is_empty() || service.external_name {
                self.count(key);
                return Ok(Outcome::Done);
            }
            // A plan over slices that miss the own writes would create the same slices again (upstream's
            // endpointslice tracker).
            if !self.writer.is_settled(key, &self.slices) {
                // The slices' own events wake us.
                self.metrics.synced("stale");
                return Ok(Outcome::Done);
            }
            let (plan, taken) = self.plan(&service).await;
            self.metrics.planned(&plan);
            if taken.is_short {
                say_short(&self.recorder, &service, "EndpointSlices");
            }
            self.look_at(taken.due);
            if plan.left_out > 0 {
                self.say_left_out(&service);
            }
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
                // Its nodes come, or the pod goes with the one that has gone.
                Ok(()) if plan.lost > 0 => Ok(Outcome::RequeueAfter(LOST_RETRY)),
                Ok(()) => Ok(Outcome::Rest(self.shares.rest(service.namespace()))),
            }
        })
    }
}

/// A plan, made in the turn of the service's namespace where many pods have many ports.
pub(super) async fn planned(
    runtime: &Runtime,
    service: &Arc<Object<ServiceView>>,
    pods: Vec<Arc<Object<PodView>>>,
    node: impl Fn(&str) -> Option<NodeZone> + Send + 'static,
    existing: Vec<Arc<Object<SliceView>>>,
    room: usize,
) -> Plan {
    let steps = pods.len().saturating_mul(service.steps());
    let flow = || heavy::flow(ROW.name, service.namespace());
    let own = Arc::clone(service);
    let planning = move || plan(desired(&own, &pods, node, room), &own, &existing);
    heavy::step(runtime, flow, steps, planning).await
}

impl SliceReconciler {
    fn existing(&self, key: &ObjectKey) -> Vec<Arc<Object<SliceView>>> {
        self.slices.by_index(SliceView::SERVICE, &key.to_string())
    }

    /// The event says no number: each would be an event of its own.
    fn say_left_out(&self, service: &Object<ServiceView>) {
        let about = reference(&ApiResource::of::<Service>(), &service.header);
        let message = format!(
            "Some pods of Service {} are no endpoints: named target ports have other numbers in each, which makes more than {MAX_PORTS} ports in Endpoint Slices",
            service.key()
        );
        self.recorder.warning(&about, "TooManyEndpointPorts", message);
    }

    /// Plans; for many pods with many ports in the namespace's turn. Takes what it needs of the namespace's share.
    async fn plan(&self, service: &Arc<Object<ServiceView>>) -> (Plan, Taken) {
        self.shares.seed(|add| {
            self.slices.for_each(|slice| {
                if let Some(service) = slice.header.label(super::SERVICE_NAME) {
                    add(ObjectKey::new(slice.namespace(), service), slice_units(slice));
                }
            });
        });
        let key = service.key();
        let mut attempt = 0;
        loop {
            let pods = self.pods.by_index(IndexName::NAMESPACE, service.namespace());
            let nodes = self.nodes.clone();
            let node = move |name: &str| {
                let node = nodes.get(&ObjectKey::cluster(name))?;
                Some(NodeZone(node.zone.clone()))
            };
            let (existing, room) = (self.existing(key), self.shares.room(key));
            let steps = pods.len().saturating_mul(service.steps());
            let plan = planned(&self.runtime, service, pods, node, existing, room).await;
            let cost = PlanCost {
                part: plan.part,
                steps,
            };
            if let Some(taken) = self.shares.take(key, cost, attempt) {
                return (plan, taken);
            }
            attempt += 1;
        }
    }

    /// Counts the slices that are there of a service that has none any more, or whose slices are its user's.
    fn count(&self, key: &ObjectKey) {
        let slices = self.existing(key);
        let units = slices.iter().map(|slice| slice_units(slice)).sum();
        self.look_at(self.shares.note(key, units));
    }

    fn look_at(&self, services: Vec<ObjectKey>) {
        services.into_iter().for_each(|key| self.queue.add(key));
    }

    async fn act(&self, service: &Object<ServiceView>, plan: &Plan) -> Result<(), ClientError> {
        let owner = OwnerReference::controller("v1", "Service", &service.header);
        // Additions before deletions: an endpoint that moves between slices is in both for a moment, and never
        // in none.
        for (family, ports, endpoints) in &plan.create {
            let slice = json!({
                "metadata": {"labels": labels(service), "ownerReferences": [owner]},
                "addressType": family, "ports": ports, "endpoints": endpoints,
            });
            self.writer.create(service.key(), slice).await?;
        }
        for (slice, ports, endpoints) in &plan.update {
            let mut edit = Edit::of(&ApiResource::of::<EndpointSlice>(), &slice.json())?;
            if *ports != slice.ports {
                edit.set("ports", ports)?;
            }
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
        self.look_at(self.shares.note(key, 0));
        Ok(Outcome::Done)
    }
}
