//! Believes nodes as long as they renew, taints them by their conditions, and evicts pods that do not tolerate it.
//!
//! Three rows' worth of upstream's work on one key, the node:
//! - silence: a node whose lease has not moved for the grace period becomes `Unknown`, and its pods not ready; the lease
//!   is read once more before that, for what watches deliver can be old;
//! - taints: conditions and `spec.unschedulable` become taints, so that the scheduler needs to know only taints; a node
//!   that is not ready is tainted `NoExecute` as fast as its zone allows, see [`zones`];
//! - eviction (its own row, [`EVICTION_ROW`], on the key of the pod): `NoExecute` taints end pods, after the time their
//!   tolerations grant, see [`pending`].
//!
//! Watches: nodes, leases of `kube-node-lease`, pods. Nothing scans: each node waits for its own next deadline.
//! Never: gives a node up while no node at all is ready: then it is more likely that we receive nothing.

mod eviction;
mod heartbeats;
mod labels;
mod metrics;
mod pending;
mod plan;
mod reconcile;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod upstream_tests;
mod zones;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::views::{NodeView, PodView};
use futures::future::BoxFuture;
use heartbeats::HeartbeatTracker;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use machinery_client::{Informer, ListWatch, Object, Projection};
use machinery_meta::{ObjectHeader, ObjectKey};
use metrics::NodeMetrics;
use plan::readiness;
use serde::Deserialize;
use std::sync::Arc;
use zones::{NodeHealth, Shift, Zones};

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "node-lifecycle-controller",
    queue: "node_lifecycle_controller",
    service_account: "node-controller",
    default: true,
    start,
};

pub(crate) const EVICTION_ROW: ControllerDescriptor = ControllerDescriptor {
    name: "taint-eviction-controller",
    queue: "noexec_taint_pod",
    service_account: "node-controller",
    default: true,
    start: eviction::start,
};

/// Marks nodes whose readiness says nothing about their zone.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Fields of a node's lease that are read.
#[derive(Debug, Deserialize)]
pub(crate) struct LeaseView {
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Debug, Default, Deserialize)]
struct LeaseSpec {
    #[serde(default, rename = "renewTime")]
    renewed: Option<String>,
}

impl LeaseView {
    /// Time of the node's last renewal; empty if there was none.
    fn renewed(&self) -> &str {
        self.spec.renewed.as_deref().unwrap_or("")
    }
}

impl Projection for LeaseView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        machinery_client::json::from_slice(json)
    }
}

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let nodes: Informer<NodeView> = context.informers.of::<Node, _>();
    let leases: Informer<LeaseView> = context
        .informers
        .informer(ListWatch::of::<Lease>().in_namespace(LEASE_NAMESPACE));
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let (zones, tracker) = (Arc::new(Zones::default()), Arc::new(HeartbeatTracker::default()));
    let (watched, (known, all)) = (zones.clone(), (tracker.clone(), nodes.clone()));
    let controller = ROW
        .controller(&context.runtime)
        .needs(&pods)
        .watches(&nodes, move |change| {
            let shift = watched.stands(change.key(), change.new.as_deref().and_then(standing));
            if shift == Shift::HeartbeatTracker {
                known.reset_heartbeats();
            }
            let waiting = if shift == Shift::None {
                Vec::new()
            } else {
                unready(&all)
            };
            waiting.into_iter().chain([change.key().clone()])
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
        metrics: NodeMetrics::new(context.runtime.metrics(), &zones),
        zones,
        tracker,
    })
}

/// Zone and readiness of a node, unless a label excludes it from the count.
fn standing(node: &Object<NodeView>) -> Option<NodeHealth> {
    let counts = node.header.label(EXCLUDED).is_none();
    counts.then(|| NodeHealth {
        zone: zone(node),
        ready: readiness(node) == "True",
    })
}

/// Region and zone, as upstream joins them; nothing of a node that has neither.
fn zone(node: &Object<NodeView>) -> String {
    let region = node.header.label("topology.kubernetes.io/region").unwrap_or("");
    let zone = node.zone.as_deref().unwrap_or("");
    match (region, zone) {
        ("", "") => String::new(),
        _ => format!("{region}:\0:{zone}"),
    }
}

fn unready(nodes: &Informer<NodeView>) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    nodes.for_each(|node| {
        if readiness(node) != "True" {
            keys.push(node.key().clone());
        }
    });
    keys
}
