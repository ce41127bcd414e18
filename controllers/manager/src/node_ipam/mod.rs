//! Gives every node its range of pod addresses, cut from the cluster's.
//!
//! Owns: `spec.podCIDR` and `spec.podCIDRs` of nodes. Which ranges are taken is read from the nodes themselves, each
//! time; nothing is remembered but ranges just given out and not seen yet, and nodes that wait for one. Upstream retries those
//! again and again; here they wait until a range is free, for nothing else can help them.

mod metrics;
mod ranges;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::pod_control::reference;
use crate::views::NodeView;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use machinery_client::{ApiResource, Change, Client, Informer, Object, Patch};
use machinery_meta::ObjectKey;
use machinery_reconcile::{EventRecorder, Outcome, ReconcileError, Reconciler, WorkQueue};
use metrics::IpamMetrics;
use ranges::Ranges;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "node-ipam-controller",
    queue: "cidrallocator_node",
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
    let waiting = Arc::new(Waiting::default());
    let known = Arc::clone(&waiting);
    let metrics = IpamMetrics::new(context.runtime.metrics(), ranges, &nodes);
    let releases = metrics.clone();
    let controller = ROW
        .controller(&context.runtime)
        .workers(1)
        .watches(&nodes, move |change| {
            releases.node_changed(change);
            let freed = if frees(change) { known.all() } else { Vec::new() };
            freed.into_iter().chain([change.key().clone()])
        });
    let queue = controller.queue();
    controller.run(Allocator {
        client,
        recorder,
        nodes,
        ranges,
        waiting,
        queue,
        given: Mutex::default(),
        metrics,
    })
}

/// A node had a range and has it no more.
fn frees(change: &Change<NodeView>) -> bool {
    let has =
        |node: &Option<Arc<Object<NodeView>>>| node.as_ref().is_some_and(|node| !node.pod_cidrs.is_empty());
    has(&change.old) && !has(&change.new)
}

/// Nodes for which no range was left.
#[derive(Debug, Default)]
struct Waiting(Mutex<BTreeSet<ObjectKey>>);

impl Waiting {
    fn with<T>(&self, look: impl FnOnce(&mut BTreeSet<ObjectKey>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn all(&self) -> Vec<ObjectKey> {
        self.with(|nodes| nodes.iter().cloned().collect())
    }
}

struct Allocator {
    client: Client,
    recorder: EventRecorder,
    nodes: Informer<NodeView>,
    ranges: Ranges,
    waiting: Arc<Waiting>,
    queue: WorkQueue<ObjectKey>,
    /// Given out, and not in the cache yet.
    given: Mutex<BTreeMap<ObjectKey, String>>,
    metrics: IpamMetrics,
}

impl Reconciler for Allocator {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let node = self.nodes.get(key);
            let Some(node) = node.as_ref().filter(|node| node.pod_cidrs.is_empty()) else {
                self.is_allocated(key, node.is_none());
                return Ok(Outcome::Done);
            };
            // In line before looking, so that a range that becomes free meanwhile is noticed.
            let new = self.waiting.with(|nodes| nodes.insert(key.clone()));
            let Some(range) = self.choose(key) else {
                if new {
                    self.record_event(node);
                }
                return Ok(Outcome::Done);
            };
            self.waiting.with(|nodes| nodes.remove(key));
            let body =
                json!({"metadata": {"uid": node.uid().0}, "spec": {"podCIDR": range, "podCIDRs": [range]}});
            match self
                .client
                .patch(&ApiResource::of::<Node>(), key, "", &Patch::Merge, &body)
                .await
            {
                Err(error) if error.is_not_found() => Ok(Outcome::Done),
                // An answer that got lost may have given the range: it stays reserved and is requested again.
                Err(error) => Err(ReconcileError::doing("giving a node its pod addresses")(error)),
                Ok(_) => Ok(Outcome::Done),
            }
        })
    }
}

impl Allocator {
    /// The node has its range, or is gone: with a range perhaps that was not seen.
    fn is_allocated(&self, key: &ObjectKey, gone: bool) {
        self.waiting.with(|nodes| nodes.remove(key));
        let given = self
            .given
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
        if gone && given.is_some() {
            self.waiting.all().into_iter().for_each(|key| self.queue.add(key));
        }
    }

    fn record_event(&self, node: &Object<NodeView>) {
        let about = reference(&ApiResource::of::<Node>(), &node.header);
        let message = format!("Node {} status is now: CIDRNotAvailable", node.name());
        self.recorder.normal(&about, "CIDRNotAvailable", message);
    }

    /// The range given to this node before, or the first that no node has.
    fn choose(&self, key: &ObjectKey) -> Option<String> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(range) = given.get(key) {
            return Some(range.clone());
        }
        let mut taken = self.ranges.nothing_taken();
        given.values().for_each(|range| taken.add(range));
        self.nodes
            .for_each(|node| node.pod_cidrs.iter().for_each(|range| taken.add(range)));
        let range = taken.first_free()?;
        given.insert(key.clone(), range.clone());
        self.metrics.allocated();
        Some(range)
    }
}
