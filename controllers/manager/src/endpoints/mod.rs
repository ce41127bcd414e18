//! Keeps the Endpoints object (deprecated, and still read by many) of every Service that has a selector.
//!
//! Owns: Endpoints named as their Service. Watches: Services (the key), pods, Endpoints. Those that a user wrote go with
//! their Service too; they stay where there never was one, until the next start. Those of a namespace have a bounded number of
//! ports and addresses ([`crate::endpoint_shares`]).

mod plan;
mod reconcile;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::endpoint_shares::EndpointShares;
use crate::endpoint_slice::services_of_pod;
use crate::views::{PodView, ServiceView};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use machinery_client::{Informer, Projection};
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_reconcile::{QueueKey, WriteTracker};
use machinery_runtime::metrics::Family;
use plan::Subset;
use reconcile::EndpointsReconciler;
use serde::Deserialize;
use std::collections::BTreeMap;

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
/// Of ours.
const SHORT: Family = Family::new(
    "knarr_endpoints_services_short_of_room",
    "Services that have fewer addresses in Endpoints than pods, as their namespace has its share.",
    &["namespace"],
);

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
        shares: EndpointShares::new(&context.runtime, &SHORT),
        client,
        runtime: context.runtime.clone(),
        recorder,
        services,
        pods,
        endpoints,
        own_writes: WriteTracker::default(),
    })
}

/// Keys to reconcile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Endpoints whose Service went while no controller ran, once at the start.
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
        let endpoints: Endpoints = machinery_client::json::from_slice(json)?;
        Ok(Self {
            annotations: endpoints.metadata.annotations,
            subsets: endpoints.subsets.unwrap_or_default(),
        })
    }
}

fn is_ours(header: &ObjectHeader) -> bool {
    header.label(MANAGED_BY) == Some(CONTROLLER)
}
