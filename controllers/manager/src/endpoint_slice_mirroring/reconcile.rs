//! Gather, plan, write slices.

use super::metrics::MirroringMetrics;
use super::plan::{Content, Plan, annotations, labels, plan};
use super::{MAX_ENDPOINTS, MirroredView};
use crate::endpoints::{ELECTION, EndpointsView};
use crate::metrics::since;
use crate::pod_control::reference;
use crate::slice_writer::SliceWriter;
use crate::views::ServiceView;
use crate::views::template::OwnerReference;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Endpoints;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use machinery_client::{ApiResource, ClientError, Edit, Informer, Object};
use machinery_meta::ObjectKey;
use machinery_reconcile::{EventRecorder, Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use serde_json::json;
use std::sync::Arc;

/// Endpoints that say so are not mirrored.
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";

type SliceRef = Arc<Object<MirroredView>>;

pub(super) struct MirroringReconciler {
    pub(super) writer: SliceWriter,
    pub(super) metrics: MirroringMetrics,
    pub(super) recorder: EventRecorder,
    pub(super) runtime: Runtime,
    pub(super) services: Informer<ServiceView>,
    pub(super) endpoints: Informer<EndpointsView>,
    pub(super) slices: Informer<MirroredView>,
}

impl Reconciler for MirroringReconciler {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let begun = self.runtime.monotonic();
            let outcome = self.look(key).await;
            self.metrics.took(since(&self.runtime, begun));
            outcome
        })
    }
}

impl MirroringReconciler {
    async fn look(&self, key: &ObjectKey) -> Result<Outcome, ReconcileError> {
        let existing = self.slices.by_index(MirroredView::SERVICE, &key.to_string());
        let Some(endpoints) = self.endpoints.get(key).filter(|_| self.is_mirrored(key)) else {
            self.writer.forget(key);
            self.metrics.desires(key, None);
            let all = (0..existing.len()).collect::<Vec<_>>();
            let done = self.delete(&existing, &all).await;
            done.map_err(ReconcileError::doing("removing mirrored slices"))?;
            return Ok(Outcome::Done);
        };
        if !self.writer.is_settled(key, &self.slices) {
            // The slices' own events wake us.
            return Ok(Outcome::Done);
        }
        match self.mirror(&endpoints, &existing).await {
            // Nothing can be made in a namespace that is going.
            Err(error) if error.has_cause("NamespaceTerminating") => Ok(Outcome::Done),
            Err(error) => Err(ReconcileError::doing("mirroring endpoints")(error)),
            Ok(()) => Ok(Outcome::Done),
        }
    }

    /// Reports whether the Service has no selector and the Endpoints do not ask to be skipped.
    fn is_mirrored(&self, key: &ObjectKey) -> bool {
        let by_user = |service: &Object<ServiceView>| service.selector.is_empty();
        let skips = |endpoints: &Object<EndpointsView>| {
            endpoints.header.label(SKIP_MIRROR) == Some("true") || endpoints.has_annotation(ELECTION)
        };
        self.services.get(key).is_some_and(|service| by_user(&service))
            && self.endpoints.get(key).is_some_and(|own| !skips(&own))
    }

    async fn mirror(
        &self,
        endpoints: &Object<EndpointsView>,
        existing: &[SliceRef],
    ) -> Result<(), ClientError> {
        let written: Endpoints = endpoints.decode()?;
        let slices = existing.iter().map(|slice| slice.decode::<EndpointSlice>());
        let slices = slices.collect::<Result<Vec<_>, _>>()?;
        let plan = plan(&written, &slices, MAX_ENDPOINTS);
        self.metrics.planned(endpoints.key(), &plan, &slices);
        self.record_events(endpoints, &plan);
        for content in &plan.create {
            self.create(endpoints, &written, content).await?;
        }
        for (at, content) in &plan.update {
            self.update(endpoints, &written, &existing[*at], content).await?;
        }
        self.delete(existing, &plan.delete).await
    }

    fn record_events(&self, endpoints: &Object<EndpointsView>, plan: &Plan) {
        let about = reference(&ApiResource::of::<Endpoints>(), &endpoints.header);
        let (invalid, beyond) = (plan.invalid, plan.beyond);
        if invalid > 0 {
            let message = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
            self.recorder.warning(&about, "InvalidIPAddress", message);
        }
        if beyond > 0 {
            let message = format!(
                "A max of {MAX_ENDPOINTS} addresses can be mirrored to EndpointSlices per Endpoints subset. {} \
                 addresses were skipped",
                invalid + beyond
            );
            self.recorder.warning(&about, "TooManyAddressesToMirror", message);
        }
    }

    async fn create(
        &self,
        endpoints: &Object<EndpointsView>,
        written: &Endpoints,
        content: &Content,
    ) -> Result<(), ClientError> {
        let slice = json!({
            "metadata": {
                "labels": labels(written), "annotations": annotations(written), "ownerReferences": [owner(endpoints)],
            },
            "addressType": content.family, "ports": content.ports, "endpoints": content.endpoints,
        });
        self.writer.create(endpoints.key(), slice).await
    }

    async fn update(
        &self,
        endpoints: &Object<EndpointsView>,
        written: &Endpoints,
        slice: &SliceRef,
        content: &Content,
    ) -> Result<(), ClientError> {
        let mut edit = Edit::of(&ApiResource::of::<EndpointSlice>(), &slice.json())?;
        edit.set("endpoints", &content.endpoints)?;
        edit.set("ports", &content.ports)?;
        edit.set_in("metadata", "labels", &labels(written))?;
        edit.set_in("metadata", "annotations", &annotations(written))?;
        edit.set_in("metadata", "ownerReferences", &[owner(endpoints)])?;
        self.writer.update(endpoints.key(), slice.key(), edit).await
    }

    async fn delete(&self, existing: &[SliceRef], which: &[usize]) -> Result<(), ClientError> {
        for slice in which.iter().map(|at| &existing[*at]) {
            self.writer.delete(slice).await?;
        }
        Ok(())
    }
}

fn owner(endpoints: &Object<EndpointsView>) -> OwnerReference {
    OwnerReference::controller("v1", "Endpoints", &endpoints.header)
}
