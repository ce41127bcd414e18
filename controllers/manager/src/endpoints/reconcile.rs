//! Gather, plan, write Endpoints.

use super::plan::{Planned, Subset, object_units, subsets};
use super::{CONTROLLER, ELECTION, EndpointsView, Key, MANAGED_BY, ROW, is_ours};
use crate::endpoint_shares::{EndpointShares, PlanCost, Taken, say_short};
use crate::endpoint_slice::own_labels;
use crate::heavy;
use crate::pod_control::reference;
use crate::views::{PodView, ServiceView};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, Edit, IndexName, Informer, Object};
use machinery_meta::ObjectKey;
use machinery_reconcile::{EventRecorder, Outcome, ReconcileError, Reconciler, WorkQueue, WriteTracker};
use machinery_runtime::Runtime;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const HEADLESS: &str = "service.kubernetes.io/headless";
/// Says that there are more addresses than the object holds.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const TRUNCATED: &str = "truncated";
/// Until changes of a Service are looked at whose Endpoints are too large to be written: the next ones will be so too.
const TOO_LARGE_REST: Duration = Duration::from_secs(60);
/// HTTP code of what is too large.
const TOO_LARGE: i32 = 413;

pub(super) struct EndpointsReconciler {
    pub(super) client: Client,
    pub(super) runtime: Runtime,
    pub(super) recorder: EventRecorder,
    pub(super) services: Informer<ServiceView>,
    pub(super) pods: Informer<PodView>,
    pub(super) endpoints: Informer<EndpointsView>,
    pub(super) own_writes: WriteTracker,
    pub(super) queue: WorkQueue<Key>,
    pub(super) shares: EndpointShares,
}

impl Reconciler for EndpointsReconciler {
    type Key = Key;

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Key::Service(key) = key else {
                self.look_for_leftovers();
                return Ok(Outcome::Done);
            };
            let Some(service) = self.services.get(key) else {
                let removed = self.remove(key).await;
                return match removed {
                    Err(error) if error.has_cause("NamespaceTerminating") => Ok(Outcome::Done),
                    Err(error) => Err(ReconcileError::doing("removing endpoints")(error)),
                    Ok(()) => Ok(Outcome::Done),
                };
            };
            if service.selector.is_empty() || service.external_name {
                self.count(key);
                return Ok(Outcome::Done);
            }
            let written = self.write(&service).await;
            self.outcome(&service, written)
        })
    }
}

impl EndpointsReconciler {
    fn outcome(
        &self,
        service: &Object<ServiceView>,
        written: Result<Outcome, ClientError>,
    ) -> Result<Outcome, ReconcileError> {
        match written {
            Err(error) if error.has_cause("NamespaceTerminating") => Ok(Outcome::Done),
            Err(error) if error.code() == TOO_LARGE => {
                let message = format!("Failed to update endpoint {}: {error}", service.key());
                self.warn(service, "FailedToUpdateEndpoint", message);
                Ok(Outcome::Rest(TOO_LARGE_REST))
            }
            written => written.map_err(ReconcileError::doing("writing endpoints")),
        }
    }

    fn warn(&self, service: &Object<ServiceView>, reason: &'static str, message: String) {
        let about = reference(&ApiResource::of::<Service>(), &service.header);
        self.recorder.warning(&about, reason, message);
    }

    /// Puts Endpoints without a Service in line. Records of elections never had one.
    fn look_for_leftovers(&self) {
        self.endpoints.for_each(|own| {
            if !own.has_annotation(ELECTION) && self.services.get(own.key()).is_none() {
                self.queue.add(Key::Service(own.key().clone()));
            }
        });
    }

    /// The Service is gone, and its Endpoints go with it, whichever client wrote them, as upstream's.
    async fn remove(&self, key: &ObjectKey) -> Result<(), ClientError> {
        self.own_writes.forget(key);
        // The cache may be behind; the name says enough.
        let own = self.endpoints.get(key);
        let options = own.map_or_else(DeleteOptions::default, |own| DeleteOptions::uid(own.uid()));
        match self
            .client
            .delete(&ApiResource::of::<Endpoints>(), key, &options)
            .await
        {
            Err(error) if !error.is_not_found() && !error.is_conflict() => return Err(error),
            _ => self.look_at(self.shares.note(key, 0)),
        }
        Ok(())
    }

    /// Counts Endpoints that are its user's from now on.
    fn count(&self, key: &ObjectKey) {
        let own = self.endpoints.get(key).filter(|own| is_ours(&own.header));
        let units = own.map_or(0, |own| object_units(&own.subsets));
        self.look_at(self.shares.note(key, units));
    }

    fn look_at(&self, services: Vec<ObjectKey>) {
        services
            .into_iter()
            .for_each(|key| self.queue.add(Key::Service(key)));
    }

    /// Plans; for many pods with many ports in the namespace's turn. Takes what it needs of the namespace's share.
    async fn plan(&self, service: &Arc<Object<ServiceView>>) -> (Planned, Taken) {
        self.shares.seed(|add| {
            self.endpoints.for_each(|own| {
                if is_ours(&own.header) {
                    add(own.key().clone(), object_units(&own.subsets));
                }
            });
        });
        let mut attempt = 0;
        loop {
            let pods = self.pods.by_index(IndexName::NAMESPACE, service.namespace());
            let steps = pods.len().saturating_mul(service.steps());
            let (own, room) = (service.clone(), self.shares.room(service.key()));
            let flow = || heavy::flow(ROW.name, service.namespace());
            let planning = move || subsets(&own, &pods, room);
            let planned = heavy::step(&self.runtime, flow, steps, planning).await;
            let cost = PlanCost {
                part: planned.part,
                steps,
            };
            if let Some(taken) = self.shares.take(service.key(), cost, attempt) {
                return (planned, taken);
            }
            attempt += 1;
        }
    }

    async fn write(&self, service: &Arc<Object<ServiceView>>) -> Result<Outcome, ClientError> {
        let own = self.endpoints.get(service.key());
        if own
            .as_ref()
            .is_some_and(|own| self.own_writes.cache_is_stale(own))
        {
            return Ok(Outcome::Done);
        }
        let (planned, taken) = self.plan(service).await;
        if taken.is_short {
            say_short(&self.recorder, service, "Endpoints");
        }
        self.look_at(taken.due);
        match own {
            None => self.create(service, &planned.subsets, planned.truncated).await?,
            Some(own) => self.update(service, &own, &planned).await?,
        }
        Ok(Outcome::Rest(self.shares.rest(service.namespace())))
    }

    async fn update(
        &self,
        service: &Object<ServiceView>,
        own: &Object<EndpointsView>,
        planned: &Planned,
    ) -> Result<(), ClientError> {
        let (labels, resource) = (labels(service), ApiResource::of::<Endpoints>());
        let known = own.header.labels.iter().map(|(k, v)| (&**k, &**v));
        let same_labels = known.eq(labels.iter().map(|(k, v)| (*k, *v)));
        let noted = own.annotations.contains_key(OVER_CAPACITY);
        if own.subsets == planned.subsets && same_labels && noted == planned.truncated {
            return Ok(());
        }
        let mut edit = Edit::of(&resource, &own.json())?;
        edit.set("subsets", &planned.subsets)?;
        edit.set_in("metadata", "labels", &labels)?;
        if noted != planned.truncated {
            let mut annotations = own.annotations.clone();
            annotations.remove(OVER_CAPACITY);
            if planned.truncated {
                annotations.insert(OVER_CAPACITY.to_owned(), TRUNCATED.to_owned());
            }
            edit.set_in("metadata", "annotations", &annotations)?;
        }
        let written = self
            .client
            .writes()
            .update(&resource, service.key(), "", edit.body())
            .await?;
        self.own_writes.record_write(service.key(), &written);
        Ok(())
    }

    async fn create(
        &self,
        service: &Object<ServiceView>,
        subsets: &[Subset],
        truncated: bool,
    ) -> Result<(), ClientError> {
        let mut body = json!({"apiVersion": "v1", "kind": "Endpoints", "subsets": subsets,
            "metadata": {"name": service.name(), "namespace": service.namespace(), "labels": labels(service)}});
        if truncated {
            body["metadata"]["annotations"] = json!({OVER_CAPACITY: TRUNCATED});
        }
        let resource = ApiResource::of::<Endpoints>();
        let created = self.client.create(&resource, service.namespace(), &body).await;
        if let Err(error) = &created
            && error.is_forbidden()
            && !error.has_cause("NamespaceTerminating")
        {
            let message = format!("Failed to create endpoint for service {}: {error}", service.key());
            self.warn(service, "FailedToCreateEndpoint", message);
        }
        created.map(|_| ())
    }
}

fn labels(service: &Object<ServiceView>) -> BTreeMap<&str, &str> {
    let mut labels = own_labels(service);
    labels.insert(MANAGED_BY, CONTROLLER);
    if service.headless {
        labels.insert(HEADLESS, "");
    }
    labels
}
