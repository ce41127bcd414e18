//! Removes pods that no other component removes: those of nodes that are gone, those being deleted that never had a node or whose
//! node is out of service, and finished ones beyond a number.
//!
//! A pod that goes this way is marked as failed first: no other component does, and a Job waits for it. A node is out of service
//! where an operator has tainted it so and it is not ready ([`is_out_of_service`]): nothing runs on it any more.
//!
//! Watches: pods and nodes. A pod of a missing node waits [`QUARANTINE`], then the node is read from the live API.
//! Never: lists pods on a timer.

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::views::{Condition, NodeView, PodView, find, seconds};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use machinery_client::{ApiResource, Change, Client, DeleteOptions, Informer, Object, Patch};
use machinery_meta::ObjectKey;
use machinery_reconcile::{Outcome, QueueKey, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Counters, Family};
use missing::MissingNodes;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

mod missing;
#[cfg(test)]
mod tests;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "pod-garbage-collector-controller",
    queue: "orphaned_pods_nodes",
    service_account: "pod-garbage-collector",
    default: true,
    start,
};

const LABELS: &[&str] = &["namespace", "reason"];
const DELETIONS: Family = Family::new(
    "pod_gc_collector_force_delete_pods_total",
    "[ALPHA] Number of pods that are being forcefully deleted since the Pod GC Controller started.",
    LABELS,
);
const DELETION_ERRORS: Family = Family::new(
    "pod_gc_collector_force_delete_pod_errors_total",
    "[ALPHA] Number of errors encountered when forcefully deleting the pods since the Pod GC Controller started.",
    LABELS,
);

/// Time that a node may be missing before its pods go.
const QUARANTINE: Duration = Duration::from_secs(40);
/// Finished pods are counted at most this often.
const COUNT_EVERY: Duration = Duration::from_secs(20);

/// Says that a node was shut down and nothing runs on it.
pub(crate) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Key of the work queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Pod(ObjectKey),
    /// The count of finished pods.
    Finished,
}

impl QueueKey for Key {
    fn namespace(&self) -> &str {
        match self {
            Self::Pod(key) => &key.namespace,
            Self::Finished => "",
        }
    }
}

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let nodes: Informer<NodeView> = context.informers.of::<Node, _>();
    let controller = ROW.controller::<Collector>(&context.runtime);
    let (by_node, known, threshold) = (
        pods.clone(),
        nodes.clone(),
        context.config.terminated_pod_gc_threshold,
    );
    let queue = controller.queue();
    let controller = controller.needs(&nodes).watches(&pods, move |change| {
        let finished = change.new.as_ref().is_some_and(|pod| pod.is_terminal());
        let was = change.old.as_ref().is_some_and(|pod| pod.is_terminal());
        if threshold > 0 && finished && !was {
            queue.add_after(Key::Finished, COUNT_EVERY);
        }
        of_interest(&known, change).then(|| Key::Pod(change.key().clone()))
    });
    let missing = Arc::new(MissingNodes::default());
    let absent = missing.clone();
    let controller = controller.watches(&nodes, move |change| {
        if change.old.is_none() || change.is_removal() {
            absent.changed(change.key());
        }
        let out = change.new.as_ref().is_some_and(|node| is_out_of_service(node));
        let pods = if out || change.is_removal() {
            by_node.by_index(PodView::NODE, &change.key().name)
        } else {
            Vec::new()
        };
        let concerned = |pod: &Arc<Object<PodView>>| !out || pod.header.is_deleting();
        let concerned = pods.iter().filter(|pod| concerned(pod));
        concerned
            .map(|pod| Key::Pod(pod.key().clone()))
            .collect::<Vec<_>>()
    });
    controller.run(Collector {
        client: context.client(ROW.service_account),
        runtime: context.runtime.clone(),
        pods,
        nodes,
        threshold,
        missing,
        deletions: context.runtime.metrics().counters(&DELETIONS),
        errors: context.runtime.metrics().counters(&DELETION_ERRORS),
    })
}

fn of_interest(nodes: &Informer<NodeView>, change: &Change<PodView>) -> bool {
    let Some(pod) = &change.new else { return false };
    if pod.node.is_empty() {
        return pod.header.is_deleting();
    }
    let first = change.old.as_ref().is_none_or(|old| old.node.is_empty());
    match nodes.get(&ObjectKey::cluster(&*pod.node)) {
        None => first,
        Some(node) => pod.header.is_deleting() && is_out_of_service(&node),
    }
}

/// Nothing runs on the node any more: it is not ready, and it is marked as shut down.
fn is_out_of_service(node: &NodeView) -> bool {
    let ready = find(&node.conditions, "Ready").is_some_and(Condition::is_true);
    !ready && node.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

/// The patch that says that a pod has failed, unless it has ended.
fn failed(pod: &Object<PodView>, condition: Option<Value>) -> Option<Value> {
    let mut status = json!({"phase": "Failed", "observedGeneration": pod.header.generation});
    if let Some(condition) = condition {
        status["conditions"] = json!([condition]);
    }
    (!pod.is_terminal()).then(|| json!({"metadata": {"uid": pod.uid().0}, "status": status}))
}

/// Evicted pods go first, for those that made them have others; then the oldest.
fn removal_order(pod: &Object<PodView>) -> (bool, Timestamp, ObjectKey) {
    (!pod.evicted, pod.created, pod.key().clone())
}

struct Collector {
    client: Client,
    runtime: Runtime,
    pods: Informer<PodView>,
    nodes: Informer<NodeView>,
    threshold: usize,
    missing: Arc<MissingNodes>,
    deletions: Counters,
    errors: Counters,
}

impl Reconciler for Collector {
    type Key = Key;

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            match key {
                Key::Finished => self.finished().await,
                Key::Pod(key) => self.pod(key).await,
            }
        })
    }
}

impl Collector {
    async fn pod(&self, key: &ObjectKey) -> Result<Outcome, ReconcileError> {
        let Some(pod) = self.pods.get(key) else {
            return Ok(Outcome::Done);
        };
        if pod.node.is_empty() {
            return self.terminating(&pod, "unscheduled").await;
        }
        let node = ObjectKey::cluster(&*pod.node);
        match self.nodes.get(&node) {
            Some(node) if is_out_of_service(&node) => return self.terminating(&pod, "out-of-service").await,
            Some(_) => return Ok(Outcome::Done),
            None => {}
        }
        let waited = self.missed_for(&node);
        if waited < QUARANTINE {
            return Ok(Outcome::RequeueAfter(QUARANTINE - waited));
        }
        match self.client.get(&ApiResource::of::<Node>(), &node).await {
            Ok(_) => Ok(Outcome::Done),
            Err(error) if error.is_not_found() => self.orphan(&pod).await,
            Err(error) => Err(ReconcileError::doing("reading a pod's node")(error)),
        }
    }

    /// Time that a node has been missing; the first call starts the clock.
    fn missed_for(&self, node: &ObjectKey) -> Duration {
        let has_pods = |own: &ObjectKey| !self.pods.by_index(PodView::NODE, &own.name).is_empty();
        self.missing.missed_for(node, self.runtime.monotonic(), has_pods)
    }

    /// Its node has been missed for so long that the pod goes.
    fn is_lost(&self, pod: &Object<PodView>) -> bool {
        let node = ObjectKey::cluster(&*pod.node);
        self.nodes.get(&node).is_none() && self.missing.is_lost(&node, self.runtime.monotonic())
    }

    /// Nothing runs of it that could end: where it is to go, it goes.
    async fn terminating(
        &self,
        pod: &Object<PodView>,
        reason: &'static str,
    ) -> Result<Outcome, ReconcileError> {
        if !pod.header.is_deleting() {
            return Ok(Outcome::Done);
        }
        self.fail_and_remove(pod, reason, None).await
    }

    /// The node is gone: the pod has failed, for this reason, and goes.
    async fn orphan(&self, pod: &Object<PodView>) -> Result<Outcome, ReconcileError> {
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists", "observedGeneration": pod.header.generation,
            "lastTransitionTime": seconds(self.runtime.now()),
        });
        self.fail_and_remove(pod, "orphaned", Some(condition)).await
    }

    /// Removes a pod that has failed, if it had not ended before.
    async fn fail_and_remove(
        &self,
        pod: &Object<PodView>,
        reason: &'static str,
        condition: Option<Value>,
    ) -> Result<Outcome, ReconcileError> {
        if let Some(body) = failed(pod, condition) {
            let pods = ApiResource::of::<Pod>();
            match self
                .client
                .patch(&pods, pod.key(), "status", &Patch::Strategic, &body)
                .await
            {
                Err(error) if error.is_not_found() => return Ok(Outcome::Done),
                Err(error) => return Err(ReconcileError::doing("marking a pod failed")(error)),
                Ok(_) => {}
            }
        }
        self.remove(pod, reason).await
    }

    async fn remove(&self, pod: &Object<PodView>, reason: &'static str) -> Result<Outcome, ReconcileError> {
        let labels = [pod.namespace(), reason];
        self.deletions.of(&labels).inc();
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            ..DeleteOptions::uid(pod.uid())
        };
        match self
            .client
            .delete(&ApiResource::of::<Pod>(), pod.key(), &options)
            .await
        {
            Err(error) if !error.is_not_found() && !error.is_conflict() => {
                self.errors.of(&labels).inc();
                Err(ReconcileError::doing("removing a pod")(error))
            }
            _ => Ok(Outcome::Done),
        }
    }

    /// Removes finished pods beyond the threshold.
    async fn finished(&self) -> Result<Outcome, ReconcileError> {
        let mut finished = Vec::new();
        self.pods.for_each(|pod| {
            if pod.is_terminal() && !pod.header.is_deleting() {
                finished.push(pod.clone());
            }
        });
        // A pod that goes for its node's sake makes no other pod one too many.
        finished.retain(|pod| !self.is_lost(pod));
        let excess = finished.len().saturating_sub(self.threshold);
        finished.sort_by_key(|pod| removal_order(pod));
        for pod in finished.iter().take(excess) {
            self.remove(pod, "terminated").await?;
        }
        Ok(Outcome::Done)
    }
}
