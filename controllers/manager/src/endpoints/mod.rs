//! Keeps the Endpoints object (deprecated, and still read by many) of every Service that has a selector.
//!
//! Owns: Endpoints named as their Service. Watches: Services (the key), pods, Endpoints. Those that a user wrote go with
//! their Service too; they stay where there never was one, until the next start.

mod plan;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::endpoint_slice::services_of_pod;
use crate::heavy;
use crate::pod_control::reference;
use crate::views::{PodView, ServiceView};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use machinery_client::{
    ApiResource, Client, ClientError, DeleteOptions, Edit, IndexName, Informer, Object, Projection,
};
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_reconcile::{
    EventRecorder, Outcome, QueueKey, ReconcileError, Reconciler, WorkQueue, WriteTracker,
};
use machinery_runtime::Runtime;
use plan::{Subset, subsets};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "endpoints-controller",
    queue: "endpoint",
    service_account: "endpoint-controller",
    default: true,
    start,
};

/// Marks what this controller made.
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpoint-controller";
/// Marks the record of an election.
pub(crate) const ELECTION: &str = "control-plane.alpha.kubernetes.io/leader";
const HEADLESS: &str = "service.kubernetes.io/headless";
/// Says that there are more addresses than the object holds.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const TRUNCATED: &str = "truncated";

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let services: Informer<ServiceView> = context.informers.of::<Service, _>();
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let endpoints: Informer<EndpointsView> = context.informers.of::<Endpoints, _>();
    let (by_pod, known) = (services.clone(), services.clone());
    let controller = ROW
        .controller(&context.runtime)
        .watches(&services, |change| [Key::Service(change.key().clone())])
        .watches(&pods, move |change| {
            let services = services_of_pod(&by_pod, change).into_iter();
            services.map(Key::Service).collect::<Vec<_>>()
        })
        .watches(&endpoints, move |change| {
            // What a user writes before its Service stays.
            let is_left = !change.is_removal() && is_ours(&change.latest().header);
            let concerns = is_left || known.get(change.key()).is_some();
            concerns.then(|| Key::Service(change.key().clone()))
        });
    let queue = controller.queue();
    queue.add(Key::Leftovers);
    let client = context.client(ROW.service_account);
    let recorder = context.recorder(&client, CONTROLLER);
    controller.run(EndpointsReconciler {
        queue,
        client,
        runtime: context.runtime.clone(),
        recorder,
        services,
        pods,
        endpoints,
        own_writes: WriteTracker::default(),
    })
}

/// Things to look at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Endpoints whose Service went while nobody looked, once at the start.
    Leftovers,
    /// A Service that is there or has gone.
    Service(ObjectKey),
}

impl QueueKey for Key {
    fn namespace(&self) -> &str {
        match self {
            Self::Leftovers => "",
            Self::Service(key) => &key.namespace,
        }
    }
}

#[derive(Debug)]
pub(crate) struct EndpointsView {
    annotations: BTreeMap<String, String>,
    subsets: Vec<Subset>,
}

impl EndpointsView {
    /// Reports whether the object has an annotation of this name.
    pub(crate) fn has_annotation(&self, name: &str) -> bool {
        self.annotations.contains_key(name)
    }
}

impl Projection for EndpointsView {
    const KEEP_BYTES: bool = true;

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Endpoints {
            metadata: Metadata,
            #[serde(default)]
            subsets: Option<Vec<Subset>>,
        }
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(default)]
            annotations: BTreeMap<String, String>,
        }
        let endpoints: Endpoints = serde_json::from_slice(json)?;
        Ok(Self {
            annotations: endpoints.metadata.annotations,
            subsets: endpoints.subsets.unwrap_or_default(),
        })
    }
}

struct EndpointsReconciler {
    client: Client,
    runtime: Runtime,
    recorder: EventRecorder,
    services: Informer<ServiceView>,
    pods: Informer<PodView>,
    endpoints: Informer<EndpointsView>,
    own_writes: WriteTracker,
    queue: WorkQueue<Key>,
}

impl Reconciler for EndpointsReconciler {
    type Key = Key;

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Key::Service(key) = key else {
                self.look_for_leftovers();
                return Ok(Outcome::Done);
            };
            let result = match self.services.get(key) {
                None => self.remove(key).await,
                Some(service) if service.selector.is_empty() || service.external_name => Ok(()),
                Some(service) => self.write(&service).await,
            };
            match result {
                Err(error) if error.has_cause("NamespaceTerminating") => Ok(Outcome::Done),
                Err(error) => Err(ReconcileError::doing("writing endpoints")(error)),
                Ok(()) => Ok(Outcome::Done),
            }
        })
    }
}

impl EndpointsReconciler {
    /// Puts Endpoints without a Service in line. Records of elections never had one.
    fn look_for_leftovers(&self) {
        self.endpoints.for_each(|own| {
            if !own.has_annotation(ELECTION) && self.services.get(own.key()).is_none() {
                self.queue.add(Key::Service(own.key().clone()));
            }
        });
    }

    /// The Service is gone, and its Endpoints go with it, whoever wrote them, as upstream's.
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
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }

    async fn write(&self, service: &Arc<Object<ServiceView>>) -> Result<(), ClientError> {
        let own = self.endpoints.get(service.key());
        if own
            .as_ref()
            .is_some_and(|own| self.own_writes.cache_is_stale(own))
        {
            return Ok(());
        }
        let pods = self.pods.by_index(IndexName::NAMESPACE, service.namespace());
        let steps = pods.len().saturating_mul(service.steps());
        let (subsets, truncated) = if steps <= heavy::LIGHT {
            subsets(service, &pods)
        } else {
            let (own, flow) = (service.clone(), heavy::flow(ROW.name, service.namespace()));
            let planning = move || subsets(&own, &pods);
            self.runtime.heavy(flow, planning).await
        };
        let labels = labels(service);
        let resource = ApiResource::of::<Endpoints>();
        let Some(own) = own else {
            return self.create(service, &labels, &subsets, truncated).await;
        };
        let same_labels = own
            .header
            .labels
            .iter()
            .map(|(k, v)| (&**k, &**v))
            .eq(labels.iter().map(|(k, v)| (*k, *v)));
        let noted = own.annotations.contains_key(OVER_CAPACITY);
        if own.subsets == subsets && same_labels && noted == truncated {
            return Ok(());
        }
        let mut edit = Edit::of(&resource, &own.json())?;
        edit.set("subsets", &subsets)?;
        edit.set_in("metadata", "labels", &labels)?;
        if noted != truncated {
            let mut annotations = own.annotations.clone();
            annotations.remove(OVER_CAPACITY);
            if truncated {
                annotations.insert(OVER_CAPACITY.to_owned(), TRUNCATED.to_owned());
            }
            edit.set_in("metadata", "annotations", &annotations)?;
        }
        let written = self
            .client
            .update(&resource, service.key(), "", edit.body())
            .await?;
        self.own_writes.record_write(service.key(), &written);
        Ok(())
    }

    async fn create(
        &self,
        service: &Object<ServiceView>,
        labels: &BTreeMap<&str, &str>,
        subsets: &[Subset],
        truncated: bool,
    ) -> Result<(), ClientError> {
        let mut body = json!({"apiVersion": "v1", "kind": "Endpoints", "subsets": subsets,
            "metadata": {"name": service.name(), "namespace": service.namespace(), "labels": labels}});
        if truncated {
            body["metadata"]["annotations"] = json!({OVER_CAPACITY: TRUNCATED});
        }
        match self
            .client
            .create(&ApiResource::of::<Endpoints>(), service.namespace(), &body)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) => {
                if error.is_forbidden() && !error.has_cause("NamespaceTerminating") {
                    let about = reference(&ApiResource::of::<Service>(), &service.header);
                    let message = format!("Failed to create endpoint for service {}: {error}", service.key());
                    self.recorder.warning(&about, "FailedToCreateEndpoint", message);
                }
                Err(error)
            }
        }
    }
}

fn is_ours(header: &ObjectHeader) -> bool {
    header.label(MANAGED_BY) == Some(CONTROLLER)
}

fn labels(service: &Object<ServiceView>) -> BTreeMap<&str, &str> {
    let mut labels: BTreeMap<&str, &str> = service.header.labels.iter().map(|(k, v)| (&**k, &**v)).collect();
    labels.insert(MANAGED_BY, CONTROLLER);
    if service.headless {
        labels.insert(HEADLESS, "");
    } else {
        labels.remove(HEADLESS);
    }
    labels
}
