//! Notes when a node was last heard of, and writes what follows.

use super::plan::{readiness, silenced, taints};
use super::{LEASE_NAMESPACE, LeaseView};
use crate::config::Config;
use crate::pod_control::reference;
use crate::views::{NodeView, PodView, seconds};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod};
use machinery_client::{ApiResource, Client, Informer, Object, Patch};
use machinery_meta::ObjectKey;
use machinery_reconcile::{EventRecorder, ObjectReference, Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// When a node's sign of life changed, by our own clock: the node's clock proves nothing.
#[derive(Debug)]
pub(super) struct Heard {
    sign: String,
    at: Duration,
}

pub(super) struct NodeReconciler {
    pub(super) client: Client,
    pub(super) recorder: EventRecorder,
    pub(super) runtime: Runtime,
    pub(super) config: Arc<Config>,
    pub(super) nodes: Informer<NodeView>,
    pub(super) leases: Informer<LeaseView>,
    pub(super) pods: Informer<PodView>,
    pub(super) heard: Mutex<BTreeMap<ObjectKey, Heard>>,
}

impl Reconciler for NodeReconciler {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(node) = self.nodes.get(key) else {
                self.heard
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(key);
                return Ok(Outcome::Done);
            };
            let about = reference(&ApiResource::of::<Node>(), &node.header);
            let silent_for = self.silent_for(&node);
            let grace = self.config.node_monitor_grace_period;
            let left = grace.saturating_sub(silent_for);
            if left.is_zero()
                && let Some(conditions) = silenced(&node, self.runtime.now())
            {
                self.write_conditions(&node, &conditions).await?;
                self.recorder.normal(
                    &about,
                    "NodeNotReady",
                    format!("Node {} status is now: NodeNotReady", node.name()),
                );
                // The node's own event brings the taints.
                return Ok(Outcome::Done);
            }
            self.write_taints(&node).await?;
            if readiness(&node) != "True" {
                self.unready_pods(&node).await?;
            }
            Ok(if left.is_zero() {
                Outcome::Done
            } else {
                Outcome::RequeueAfter(left)
            })
        })
    }
}

impl NodeReconciler {
    /// How long the node has given no sign of life; a new sign starts the clock again.
    fn silent_for(&self, node: &Object<NodeView>) -> Duration {
        let lease = self.leases.get(&ObjectKey::new(LEASE_NAMESPACE, node.name()));
        // The lease where there is one, else the heartbeat of `Ready`, which moves with the node's status.
        let sign = match lease {
            Some(lease) => lease.renewed.clone(),
            None => node.heartbeat.clone(),
        };
        let now = self.runtime.monotonic();
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = heard.entry(node.key().clone()).or_insert_with(|| Heard {
            sign: sign.clone(),
            at: now,
        });
        if entry.sign != sign {
            *entry = Heard { sign, at: now };
        }
        now.saturating_sub(entry.at)
    }

    async fn write_conditions(
        &self,
        node: &Object<NodeView>,
        conditions: &[crate::views::Condition],
    ) -> Result<(), ReconcileError> {
        let body = json!({"metadata": {"uid": node.uid().0}, "status": {"conditions": conditions}});
        let patched = self
            .client
            .patch(
                &ApiResource::of::<Node>(),
                node.key(),
                "status",
                &Patch::Strategic,
                &body,
            )
            .await;
        ignore_gone(patched.map(drop), "writing a silent node's conditions")
    }

    async fn write_taints(&self, node: &Object<NodeView>) -> Result<(), ReconcileError> {
        let mut others_ready = false;
        self.nodes
            .for_each(|other| others_ready |= other.name() != node.name() && readiness(other) == "True");
        let Some(taints) = taints(node, others_ready, self.runtime.now()) else {
            return Ok(());
        };
        // The whole list is replaced, as decided on this version.
        let body = json!({
            "metadata": {"uid": node.uid().0, "resourceVersion": node.revision.to_string()},
            "spec": {"taints": taints},
        });
        let patched = self
            .client
            .patch(&ApiResource::of::<Node>(), node.key(), "", &Patch::Merge, &body)
            .await;
        ignore_gone(patched.map(drop), "writing taints")
    }

    /// Pods of a node that is not ready serve no traffic: whoever watches them is to know.
    async fn unready_pods(&self, node: &Object<NodeView>) -> Result<(), ReconcileError> {
        let pods = ApiResource::of::<Pod>();
        for pod in self
            .pods
            .by_index(PodView::NODE, node.name())
            .iter()
            .filter(|pod| pod.ready)
        {
            let body = json!({"metadata": {"uid": pod.uid().0}, "status": {"conditions": [
                {"type": "Ready", "status": "False", "lastTransitionTime": seconds(self.runtime.now())}]}});
            let patched = self
                .client
                .patch(&pods, pod.key(), "status", &Patch::Strategic, &body)
                .await;
            ignore_gone(patched.map(drop), "marking a pod not ready")?;
            let about: ObjectReference = reference(&pods, &pod.header);
            self.recorder.warning(&about, "NodeNotReady", "Node is not ready");
        }
        Ok(())
    }
}

fn ignore_gone(
    result: Result<(), machinery_client::ClientError>,
    doing: &'static str,
) -> Result<(), ReconcileError> {
    match result {
        Err(error) if !error.is_not_found() => Err(ReconcileError::doing(doing)(error)),
        _ => Ok(()),
    }
}
