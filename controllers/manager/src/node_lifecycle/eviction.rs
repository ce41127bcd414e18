//! Ends pods on nodes with `NoExecute` taints they do not tolerate, or no longer.

use super::EVICTION_ROW;
use crate::context::ControllerContext;
use crate::pod_control::reference;
use crate::views::{NodeView, PodView, seconds};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use machinery_client::{ApiResource, Client, DeleteOptions, Informer, Object, Patch};
use machinery_meta::ObjectKey;
use machinery_reconcile::{EventRecorder, Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Counter, Family, Histogram};
use machinery_semantics::taints::{NO_EXECUTE, TolerationWindow, toleration_window};
use serde_json::json;
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
            change
                .new
                .iter()
                .filter(tainted)
                .map(|pod| pod.key().clone())
                .collect::<Vec<_>>()
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
}

impl Reconciler for Evictor {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(pod) = self
                .pods
                .get(key)
                .filter(|pod| !pod.header.is_deleting() && !pod.is_terminal())
            else {
                return Ok(Outcome::Done);
            };
            let Some(node) = self.nodes.get(&ObjectKey::cluster(&*pod.node)) else {
                return Ok(Outcome::Done);
            };
            match evicted_at(&node.taints, &pod, self.runtime.now()) {
                None => Ok(Outcome::Done),
                Some(at) if at > self.runtime.now() => {
                    let wait = at.duration_since(self.runtime.now());
                    Ok(Outcome::RequeueAfter(
                        Duration::try_from(wait).unwrap_or_default(),
                    ))
                }
                Some(at) => self.evict(&pod, at).await,
            }
        })
    }
}

/// When a pod has to leave; `None` when it may stay. Its time runs from the newest taint.
pub(super) fn evicted_at(taints: &[Taint], pod: &PodView, now: Timestamp) -> Option<Timestamp> {
    match toleration_window(taints, &pod.tolerations.items()) {
        TolerationWindow::Unlimited => None,
        TolerationWindow::None => Some(now),
        TolerationWindow::Seconds(seconds) => {
            let added = taints.iter().filter(|taint| taint.effect == NO_EXECUTE);
            let since = added
                .filter_map(|taint| taint.time_added.as_ref().map(|time| time.0))
                .max()
                .unwrap_or(now);
            since.checked_add(SignedDuration::from_secs(seconds)).ok()
        }
    }
}

impl Evictor {
    async fn evict(&self, pod: &Object<PodView>, at: Timestamp) -> Result<Outcome, ReconcileError> {
        let pods = ApiResource::of::<Pod>();
        let about = reference(&pods, &pod.header);
        self.recorder.normal(
            &about,
            "TaintManagerEviction",
            format!("Marking for deletion Pod {}", pod.key()),
        );
        let body = json!({"metadata": {"uid": pod.uid().0}, "status": {"conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": seconds(self.runtime.now()),
        }]}});
        match self
            .client
            .patch(&pods, pod.key(), "status", &Patch::Strategic, &body)
            .await
        {
            Err(error) if error.is_not_found() => return Ok(Outcome::Done),
            Err(error) => return Err(ReconcileError::doing("marking a pod for eviction")(error)),
            Ok(_) => {}
        }
        match self
            .client
            .delete(&pods, pod.key(), &DeleteOptions::uid(pod.uid()))
            .await
        {
            Err(error) if !error.is_not_found() && !error.is_conflict() => {
                Err(ReconcileError::doing("evicting a pod")(error))
            }
            Err(_) => Ok(Outcome::Done),
            Ok(_) => {
                self.deletions.inc();
                let late = self.runtime.now().duration_since(at);
                self.durations.observe(late.as_secs_f64());
                Ok(Outcome::Done)
            }
        }
    }
}
