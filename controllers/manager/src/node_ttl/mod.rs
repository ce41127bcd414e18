//! Sets for how long nodes may use what they have read of ConfigMaps and Secrets: the more nodes, the longer.
//!
//! Watches: nodes (the key). Writes the annotation `node.alpha.kubernetes.io/ttl`, in seconds. Where the cluster's size
//! changes the number, all nodes are reconciled (upstream waits for each node's next status).

#[cfg(test)]
mod tests;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::views::NodeView;
use crate::views::node::TTL;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use machinery_client::{ApiResource, Client, Informer, Object, Patch};
use machinery_meta::ObjectKey;
use machinery_reconcile::{Outcome, ReconcileError, Reconciler, WorkQueue};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "ttl-controller",
    queue: "ttlcontroller",
    service_account: "ttl-controller",
    default: true,
    start,
};

/// Sizes of clusters and their seconds. Neighbours overlap, so that a cluster at a boundary does not swing.
struct Band {
    least: usize,
    most: usize,
    seconds: i64,
}

const BANDS: [Band; 5] = [
    Band::new(0, 100, 0),
    Band::new(90, 500, 15),
    Band::new(450, 1000, 30),
    Band::new(900, 2000, 60),
    Band::new(1800, usize::MAX, 300),
];

impl Band {
    const fn new(least: usize, most: usize, seconds: i64) -> Self {
        Self { least, most, seconds }
    }
}

/// The band of a cluster of so many nodes that was in another.
fn band(mut band: usize, nodes: usize) -> usize {
    while nodes > BANDS[band].most {
        band += 1;
    }
    while nodes < BANDS[band].least {
        band -= 1;
    }
    band
}

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let nodes: Informer<NodeView> = context.informers.of::<Node, _>();
    let controller = ROW
        .controller(&context.runtime)
        .watches(&nodes, |change| [change.key().clone()]);
    let reconciler = TtlReconciler {
        client: context.client(ROW.service_account),
        queue: controller.queue(),
        nodes,
        band: AtomicUsize::new(0),
    };
    controller.run(reconciler)
}

struct TtlReconciler {
    client: Client,
    queue: WorkQueue<ObjectKey>,
    nodes: Informer<NodeView>,
    band: AtomicUsize,
}

impl Reconciler for TtlReconciler {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let seconds = self.seconds();
            match self
                .nodes
                .get(key)
                .filter(|node| node.ttl_seconds != Some(seconds))
            {
                Some(node) => self.write(&node, seconds).await,
                None => Ok(Outcome::Done),
            }
        })
    }
}

impl TtlReconciler {
    /// The seconds of the cluster's present size.
    fn seconds(&self) -> i64 {
        let before = self.band.load(Ordering::Relaxed);
        let now = band(before, self.nodes.len());
        if now != before && self.band.swap(now, Ordering::Relaxed) != now {
            self.nodes.for_each(|node| self.queue.add(node.key().clone()));
        }
        BANDS[now].seconds
    }

    async fn write(&self, node: &Object<NodeView>, seconds: i64) -> Result<Outcome, ReconcileError> {
        let body = json!({"metadata": {"uid": node.uid().0, "annotations": {TTL: seconds.to_string()}}});
        let patched = self
            .client
            .patch(&ApiResource::of::<Node>(), node.key(), "", &Patch::Merge, &body)
            .await;
        match patched {
            // Gone, or recreated under the name, which wakes us.
            Err(error) if !error.is_not_found() && !error.is_conflict() => {
                Err(ReconcileError::doing("writing the time to live")(error))
            }
            _ => Ok(Outcome::Done),
        }
    }
}
