//! Believes nodes as long as they are heard of, taints them by what they say, and evicts pods that do not tolerate it.
//!
//! Three rows' worth of upstream's work on one key, the node:
//! - silence: a node whose lease has not moved for the grace period becomes `Unknown`, and its pods not ready;
//! - taints: conditions and `spec.unschedulable` become taints, so that the scheduler needs to know only taints;
//! - eviction (its own row, [`EVICTION_ROW`], on the key of the pod): `NoExecute` taints end pods, after the time their
//!   tolerations grant.
//!
//! Watches: nodes, leases of `kube-node-lease`, pods. Nothing scans: each node waits for its own next deadline.
//! Never: taints with `NoExecute` while no node at all is ready: then it is more likely that we cannot hear.

mod eviction;
mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use crate::all::ControllerRow;
use crate::context::ControllerContext;
use crate::views::{NodeView, PodView};
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use machinery_client::{Informer, ListWatch, Projection};
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_reconcile::Controller;
use serde::Deserialize;

pub(crate) const ROW: ControllerRow = ControllerRow {
    name: "node-lifecycle-controller",
    service_account: "node-controller",
    default: true,
    start,
};

pub(crate) const EVICTION_ROW: ControllerRow = ControllerRow {
    name: "taint-eviction-controller",
    service_account: "node-controller",
    default: true,
    start: eviction::start,
};

const LEASE_NAMESPACE: &str = "kube-node-lease";

/// What is read of a node's lease.
#[derive(Debug)]
struct LeaseView {
    renewed: String,
}

impl Projection for LeaseView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Lease {
            #[serde(default)]
            spec: Spec,
        }
        #[derive(Deserialize, Default)]
        struct Spec {
            #[serde(default, rename = "renewTime")]
            renew_time: Option<String>,
        }
        Ok(Self {
            renewed: serde_json::from_slice::<Lease>(json)?
                .spec
                .renew_time
                .unwrap_or_default(),
        })
    }
}

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let nodes: Informer<NodeView> = context.informers.of::<Node, _>();
    let leases: Informer<LeaseView> = context
        .informers
        .informer(ListWatch::of::<Lease>().in_namespace(LEASE_NAMESPACE));
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let controller = Controller::new(ROW.name, context.runtime.clone())
        .needs(&pods)
        .watches(&nodes, |change| {
            change
                .new
                .iter()
                .map(|node| node.key().clone())
                .collect::<Vec<_>>()
        })
        .watches(&leases, |change| [ObjectKey::cluster(change.key().name.clone())]);
    let client = context.client(ROW.service_account);
    controller.run(reconcile::NodeReconciler {
        recorder: context.recorder(&client, "node-controller"),
        client,
        runtime: context.runtime.clone(),
        config: context.config.clone(),
        nodes,
        leases,
        pods,
        heard: Default::default(),
    })
}
