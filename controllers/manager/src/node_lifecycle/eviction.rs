//! Ends pods on nodes with `NoExecute` taints they do not tolerate, or no longer.

use super::EVICTION_ROW;
use super::pending::{Next, Pending};
use crate::context::ControllerContext;
use crate::pod_control::reference;
use crate::views::{NodeView, PodView, seconds};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use machinery_client::{ApiResource, Client, DeleteOptions, Informer, Object, Patch};
use machinery_meta::ObjectKey;
use machinery_reconcile::{EventRecorder, ObjectReference, Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Counter, Family, Histogram};
use machinery_semantics::taints::{NO_EXECUTE, toleration_window};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const DELETIONS: Family = Family::new(
    "taint_eviction_controller_pod_deletions_total",
    "[ALPHA] Total number of Pods deleted by TaintEvictionController since its start.",
    &[],
);
const DURATIONS: Family = Family::new(
    "taint_eviction_controller_pod_deletion_duration_seconds",
    "[ALPHA] Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion via \
     TaintEvictionController.",
    &[],
)
.listed(&[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0]);

pub(super) fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let nodes: Informer<NodeView> = context.informers.of::<Node, _>();
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let (on_node, known) = (pods.clone(), nodes.clone());
    let controller = EVICTION_ROW
        .controller(&context.runtime)
        .watches(&pods, move |change| {
            let tainted = |pod: &&std::sync::Arc<Object<PodView>>| {
                !pod.node.is_empty()
                    && known
                        .get(&ObjectKey::cluster(&*pod.node))
                        .is_some_and(|node| evicts(&node))
            };
            // One that is gone has nothing pending any more.
            change
                .sides()
                .any(|pod| tainted(&pod))
                .then(|| change.key().clone())
        })
        .watches(&nodes, move |change| {
            let tainted = change.sides().any(|node| evicts(node));
            let pods = if tainted {
                on_node.by_index(PodView::NODE, &change.key().name)
            } else {
                Vec::new()
            };
            pods.into_iter().map(|pod| pod.key().clone()).collect::<Vec<_>>()
        });
    let client = context.client(EVICTION_ROW.service_account);
    let recorder = context.recorder(&client, EVICTION_ROW.name);
    controller.run(Evictor {
        client,
        recorder,
        runtime: context.runtime.clone(),
        nodes,
        pods,
        deletions: context.runtime.metrics().counters(&DELETIONS).of(&[]),
        durations: context.runtime.metrics().histograms(&DURATIONS).of(&[]),
        pending: Mutex::default(),
    })
}

fn evicts(node: &NodeView) -> bool {
    node.taints.iter().any(|taint| taint.effect == NO_EXECUTE)
}

struct Evictor {
    client: Client,
    recorder: EventRecorder,
    runtime: Runtime,
    nodes: Informer<NodeView>,
    pods: Informer<PodView>,
    deletions: Counter,
    durations: Histogram,
    /// Evictions whose time has not come, by pod.
    pending: Mutex<BTreeMap<ObjectKey, Pending>>,
}

impl Reconciler for Evictor {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let pod = self.pods.get(key).filter(|pod| leaves(pod));
            let node = pod
                .as_ref()
                .and_then(|pod| self.nodes.get(&ObjectKey::cluster(&*pod.node)));
            let (Some(pod), Some(node)) = (pod, node) else {
                self.with(|pending| pending.remove(key));
                return Ok(Outcome::Done);
            };
            let (next, late) = self.next(&pod, &node);
            match next {
                Next::Stay => Ok(Outcome::Done),
                Next::Cancelled => {
                    let message = format!("Cancelling deletion of Pod {key}");
                    self.recorder
                        .normal(&about(&pod), "TaintManagerEviction", message);
                    Ok(Outcome::Done)
                }
                Next::Wait(left) => Ok(Outcome::RequeueAfter(left)),
                Next::Evict => self.evict(&pod, late).await,
            }
        })
    }
}

/// Reports whether a pod leaves its node: every one that is not being deleted already, finished ones included.
pub(super) fn leaves(pod: &Object<PodView>) -> bool {
    !pod.header.is_deleting()
}

/// The patch that says why a pod leaves.
pub(super) fn marked(pod: &Object<PodView>, now: Timestamp) -> Value {
    json!({"metadata": {"uid": pod.uid().0}, "status": {"conditions": [{
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "observedGeneration": pod.header.generation, "lastTransitionTime": seconds(now),
    }]}})
}

fn about(pod: &Object<PodView>) -> ObjectReference {
    reference(&ApiResource::of::<Pod>(), &pod.header)
}

impl Evictor {
    fn with<T>(&self, look: impl FnOnce(&mut BTreeMap<ObjectKey, Pending>) -> T) -> T {
        look(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The next step with a pod, noted, and for how long it has been due.
    fn next(&self, pod: &Object<PodView>, node: &NodeView) -> (Next, Duration) {
        let window = toleration_window(&node.taints, &pod.tolerations.items());
        let now = self.runtime.monotonic();
        self.with(|all| {
            let known = all.remove(pod.key()).filter(|own| own.uid == *pod.uid());
            let late = known.as_ref().map_or(Duration::ZERO, |own| own.late(now));
            let (next, pending) = Pending::look(known, pod.uid(), window, now);
            all.extend(pending.map(|own| (pod.key().clone(), own)));
            (next, late)
        })
    }

    async fn evict(&self, pod: &Object<PodView>, late: Duration) -> Result<Outcome, ReconcileError> {
        let pods = ApiResource::of::<Pod>();
        self.recorder.normal(
            &about(pod),
            "TaintManagerEviction",
            format!("Marking for deletion Pod {}", pod.key()),
        );
        let body = marked(pod, self.runtime.now());
        match self
            .client
            .patch(&pods, pod.key(), "status", &Patch::Strategic, &body)
            .await
        {
            // The condition goes before the deletion: a Job's failure policy reads it from the pod (KEP-3329).
            Err(error) if error.is_not_found() => return Ok(Outcome::Done),
            Err(error) => return Err(ReconcileError::doing("marking a pod for eviction")(error)),
            Ok(_) => {}
        }
        match self
            .client
            // By uid: a StatefulSet may have a new pod of this name already.
            .delete(&pods, pod.key(), &DeleteOptions::uid(pod.uid()))
            .await
        {
            Err(error) if !error.is_not_found() && !error.is_conflict() => {
                Err(ReconcileError::doing("evicting a pod")(error))
            }
            Err(_) => Ok(Outcome::Done),
            Ok(_) => {
                self.deletions.inc();
                self.durations.observe(late.as_secs_f64());
                Ok(Outcome::Done)
            }
        }
    }
}
