//! Gives every node its range of pod addresses, cut from the cluster's.
//!
//! Owns: `spec.podCIDR` and `spec.podCIDRs` of nodes. Which ranges are taken is read from the nodes themselves, each
//! time; nothing is remembered but ranges just given out and not seen yet.

mod ranges;

use crate::all::ControllerRow;
use crate::context::ControllerContext;
use crate::pod_control::reference;
use crate::views::NodeView;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use machinery_client::{ApiResource, Client, Informer, Patch};
use machinery_meta::ObjectKey;
use machinery_reconcile::{Controller, EventRecorder, Outcome, ReconcileError, Reconciler};
use ranges::Ranges;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

pub(crate) const ROW: ControllerRow = ControllerRow {
    name: "node-ipam-controller",
    service_account: "node-controller",
    default: true,
    start,
};

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let nodes: Informer<NodeView> = context.informers.of::<Node, _>();
    let client = context.client(ROW.service_account);
    let recorder = context.recorder(&client, "cidrAllocator");
    let Some(ranges) = Ranges::parse(&context.config.cluster_cidr, context.config.node_cidr_mask_size) else {
        tracing::error!(
            cidr = context.config.cluster_cidr,
            "the cluster's address range cannot be cut for nodes"
        );
        return Box::pin(async {});
    };
    // One at a time: two nodes must not be given the same range.
    let controller = Controller::new(ROW.name, context.runtime.clone())
        .workers(1)
        .watches(&nodes, |change| {
            change
                .new
                .iter()
                .map(|node| node.key().clone())
                .collect::<Vec<_>>()
        });
    controller.run(Allocator {
        client,
        recorder,
        nodes,
        ranges,
        given: Mutex::default(),
    })
}

struct Allocator {
    client: Client,
    recorder: EventRecorder,
    nodes: Informer<NodeView>,
    ranges: Ranges,
    /// Given out, and not in the cache yet.
    given: Mutex<BTreeMap<ObjectKey, String>>,
}

impl Reconciler for Allocator {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(node) = self.nodes.get(key).filter(|node| node.pod_cidrs.is_empty()) else {
                self.forget(key);
                return Ok(Outcome::Done);
            };
            let Some(range) = self.choose(key) else {
                let about = reference(&ApiResource::of::<Node>(), &node.header);
                let message = format!("Node {} status is now: CIDRNotAvailable", key.name);
                self.recorder.normal(&about, "CIDRNotAvailable", message);
                return Err(ReconcileError::Unusable(
                    "no range of pod addresses is left".to_owned(),
                ));
            };
            let body =
                json!({"metadata": {"uid": node.uid().0}, "spec": {"podCIDR": range, "podCIDRs": [range]}});
            match self
                .client
                .patch(&ApiResource::of::<Node>(), key, "", &Patch::Merge, &body)
                .await
            {
                Err(error) if error.is_not_found() => Ok(Outcome::Done),
                // An answer that got lost may have given the range: it stays reserved and is asked for again.
                Err(error) => Err(ReconcileError::doing("giving a node its pod addresses")(error)),
                Ok(_) => Ok(Outcome::Done),
            }
        })
    }
}

impl Allocator {
    fn forget(&self, key: &ObjectKey) {
        self.given
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }

    /// The range given to this node before, or the first that no node has.
    fn choose(&self, key: &ObjectKey) -> Option<String> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(range) = given.get(key) {
            return Some(range.clone());
        }
        let mut taken: Vec<String> = given.values().cloned().collect();
        self.nodes
            .for_each(|node| taken.extend(node.pod_cidrs.iter().cloned()));
        let range = self.ranges.first_free(&taken)?;
        given.insert(key.clone(), range.clone());
        Some(range)
    }
}
