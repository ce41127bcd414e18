//! Gather, plan, write slices.

use super::plan::{Content, Plan, annotations, labels, plan};
use super::{MAX_ENDPOINTS, MirroredView};
use crate::endpoints::EndpointsView;
use crate::pod_control::reference;
use crate::views::ServiceView;
use crate::views::template::OwnerReference;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Endpoints;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use machinery_client::object::parse_header;
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, Edit, Informer, Object};
use machinery_meta::{ObjectKey, Revision};
use machinery_reconcile::{EventRecorder, Expectations, Outcome, ReconcileError, Reconciler, names};
use machinery_runtime::Runtime;
use serde_json::json;
use std::sync::Arc;

/// Endpoints that say so are not mirrored.
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Endpoints that are the record of an election change every few seconds.
const ELECTION: &str = "control-plane.alpha.kubernetes.io/leader";

type SliceRef = Arc<Object<MirroredView>>;

pub(super) struct MirroringReconciler {
    pub(super) client: Client,
    pub(super) recorder: EventRecorder,
    pub(super) runtime: Runtime,
    pub(super) services: Informer<ServiceView>,
    pub(super) endpoints: Informer<EndpointsView>,
    pub(super) slices: Informer<MirroredView>,
    /// Slices made and changed and not seen yet.
    pub(super) tracker: Expectations<ObjectKey>,
}

impl Reconciler for MirroringReconciler {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let existing = self.slices.by_index(MirroredView::SERVICE, &key.to_string());
            let Some(endpoints) = self.endpoints.get(key).filter(|_| self.is_mirrored(key)) else {
                self.tracker.forget(key);
                let all = (0..existing.len()).collect::<Vec<_>>();
                let done = self.delete(&existing, &all).await;
                done.map_err(ReconcileError::doing("removing mirrored slices"))?;
                return Ok(Outcome::Done);
            };
            let awaited = self.tracker.settle(key, &self.slices);
            if awaited.events {
                // The slices' own events wake us.
                return Ok(Outcome::Done);
            }
            for slice in &awaited.unacknowledged {
                self.tracker.not_created(key, slice);
            }
            match self.mirror(&endpoints, &existing).await {
                // Nothing can be made in a namespace that is going.
                Err(error) if error.has_cause("NamespaceTerminating") => Ok(Outcome::Done),
                Err(error) => Err(ReconcileError::doing("mirroring endpoints")(error)),
                Ok(()) => Ok(Outcome::Done),
            }
        })
    }
}

impl MirroringReconciler {
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
        self.tell(endpoints, &plan);
        for content in &plan.create {
            self.create(endpoints, &written, content).await?;
        }
        for (at, content) in &plan.update {
            self.update(endpoints, &written, &existing[*at], content).await?;
        }
        self.delete(existing, &plan.delete).await
    }

    fn tell(&self, endpoints: &Object<EndpointsView>, plan: &Plan) {
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
        let prefix = format!("{}-", endpoints.name());
        let name = ObjectKey::new(endpoints.namespace(), names::generate(&self.runtime, &prefix));
        let body = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": name.name, "generateName": prefix, "namespace": name.namespace, "labels": labels(written),
                "annotations": annotations(written), "ownerReferences": [owner(endpoints)],
            },
            "addressType": content.family, "ports": content.ports, "endpoints": content.endpoints,
        });
        self.tracker.creating(endpoints.key(), name.clone());
        let resource = ApiResource::of::<EndpointSlice>();
        match self.client.create(&resource, &name.namespace, &body).await {
            Ok(body) => {
                let revision = parse_header(&body).map_or(Revision::ZERO, |(_, revision)| revision);
                self.tracker.created(endpoints.key(), &name, revision);
                Ok(())
            }
            Err(error) => {
                self.tracker.not_created(endpoints.key(), &name);
                Err(error)
            }
        }
    }

    async fn update(
        &self,
        endpoints: &Object<EndpointsView>,
        written: &Endpoints,
        slice: &SliceRef,
        content: &Content,
    ) -> Result<(), ClientError> {
        let resource = ApiResource::of::<EndpointSlice>();
        let mut edit = Edit::of(&resource, &slice.json())?;
        edit.set("endpoints", &content.endpoints)?;
        edit.set("ports", &content.ports)?;
        edit.set_in("metadata", "labels", &labels(written))?;
        edit.set_in("metadata", "annotations", &annotations(written))?;
        edit.set_in("metadata", "ownerReferences", &[owner(endpoints)])?;
        self.tracker.changing(endpoints.key(), slice.key().clone());
        match self.client.update(&resource, slice.key(), "", edit.body()).await {
            Ok(body) => {
                let revision = parse_header(&body).map_or(Revision::ZERO, |(_, revision)| revision);
                self.tracker.changed(endpoints.key(), slice.key(), revision);
                Ok(())
            }
            Err(error) => {
                self.tracker.not_changed(endpoints.key(), slice.key());
                Err(error)
            }
        }
    }

    async fn delete(&self, existing: &[SliceRef], which: &[usize]) -> Result<(), ClientError> {
        for slice in which.iter().map(|at| &existing[*at]) {
            let options = DeleteOptions::uid(slice.uid());
            let resource = ApiResource::of::<EndpointSlice>();
            match self.client.delete(&resource, slice.key(), &options).await {
                Err(error) if !error.is_not_found() && !error.is_conflict() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

fn owner(endpoints: &Object<EndpointsView>) -> OwnerReference {
    OwnerReference::controller("v1", "Endpoints", &endpoints.header)
}
