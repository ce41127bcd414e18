//! Notes the time of a node's last heartbeat, and writes what follows.

use super::heartbeats::{HeartbeatTracker, Now, Renewal};
use super::labels::reconciled;
use super::metrics::NodeMetrics;
use super::plan::{
    EvictionTaint, conditions_as_written, is_given_up_on, is_tainted_no_execute, readiness, reason, silenced,
    taints,
};
use super::zones::{Permit, Zones};
use super::{LEASE_NAMESPACE, LeaseView, zone};
use crate::config::Config;
use crate::metrics::since;
use crate::pod_control::reference;
use crate::views::{NodeView, PodView, find, seconds};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod};
use machinery_client::{ApiResource, Client, Informer, Object, Patch};
use machinery_meta::ObjectKey;
use machinery_reconcile::{EventRecorder, ObjectReference, Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct NodeReconciler {
    pub(super) client: Client,
    pub(super) recorder: EventRecorder,
    pub(super) runtime: Runtime,
    pub(super) config: Arc<Config>,
    pub(super) nodes: Informer<NodeView>,
    pub(super) leases: Informer<LeaseView>,
    pub(super) pods: Informer<PodView>,
    pub(super) zones: Arc<Zones>,
    pub(super) tracker: Arc<HeartbeatTracker>,
    pub(super) metrics: NodeMetrics,
}

impl Reconciler for NodeReconciler {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let begun = self.runtime.monotonic();
            let outcome = self.look(key).await;
            self.metrics.took(since(&self.runtime, begun));
            outcome
        })
    }
}

impl NodeReconciler {
    async fn look(&self, key: &ObjectKey) -> Result<Outcome, ReconcileError> {
        let Some(node) = self.nodes.get(key) else {
            self.removed(key);
            return Ok(Outcome::Done);
        };
        let about = reference(&ApiResource::of::<Node>(), &node.header);
        let grace = grace(&node, &self.config);
        let mut left = grace.saturating_sub(self.heartbeat_age(
            &node,
            &about,
            Renewal::Watched(&self.watched_renewal(&node)),
        ));
        if left.is_zero()
            && let Some(conditions) = silenced(&node, self.runtime.now())
        {
            // What was delivered may be old, for a watch can be behind: the lease itself has the last word.
            let renewed = self.read_renewal(&node).await?;
            left = grace.saturating_sub(self.heartbeat_age(&node, &about, Renewal::Read(&renewed)));
            if left.is_zero() {
                self.believe_lost(&node, &about, &conditions).await?;
                // The node's own event brings the taints.
                return Ok(Outcome::Done);
            }
        }
        let ask_again = self.write_taints(&node).await?;
        self.write_labels(&node).await?;
        // Pods of a node that this controller marked are updated in every round, as a pod may have been bound
        // since.
        if is_given_up_on(&node) {
            self.unready_pods(&node).await?;
        }
        let next = ask_again
            .into_iter()
            .chain((!left.is_zero()).then_some(left))
            .min();
        Ok(next.map_or(Outcome::Done, Outcome::RequeueAfter))
    }

    /// The node is gone.
    fn removed(&self, key: &ObjectKey) {
        if let Some(about) = self.tracker.remove(key) {
            let message = format!("Removing Node {} from Controller", key.name);
            self.recorder.normal(&about, "RemovingNode", message);
        }
    }

    /// Time of the node's last lease renewal, by the watch.
    fn watched_renewal(&self, node: &Object<NodeView>) -> String {
        let lease = self.leases.get(&lease_of(node));
        lease.map_or_else(String::new, |lease| lease.renewed().to_owned())
    }

    /// Time of the node's last lease renewal, read from the server; empty without a lease.
    async fn read_renewal(&self, node: &Object<NodeView>) -> Result<String, ReconcileError> {
        let leases = &self.leases.source().resource;
        match self.client.get_as::<LeaseView>(leases, &lease_of(node)).await {
            Ok(lease) => Ok(lease.renewed().to_owned()),
            Err(error) if error.is_not_found() => Ok(String::new()),
            Err(error) => Err(ReconcileError::doing("reading a silent node's lease")(error)),
        }
    }

    /// Time since the node's last heartbeat; the first call for a node records its `RegisteredNode` event.
    fn heartbeat_age(
        &self,
        node: &Object<NodeView>,
        about: &ObjectReference,
        renewal: Renewal<'_>,
    ) -> Duration {
        let now = Now {
            monotonic: self.runtime.monotonic(),
            wall: self.runtime.now(),
        };
        let (new, age) = self.tracker.age(node, about, renewal, now);
        if new {
            let message = format!("Registered Node {} in Controller", node.name());
            self.recorder.normal(about, "RegisteredNode", message);
        }
        age
    }

    async fn believe_lost(
        &self,
        node: &Object<NodeView>,
        about: &ObjectReference,
        conditions: &[crate::views::Condition],
    ) -> Result<(), ReconcileError> {
        self.write_conditions(node, conditions).await?;
        // One that was not ready before has not changed in that.
        if readiness(node) == "True" {
            let message = format!("Node {} status is now: NodeNotReady", node.name());
            self.recorder.normal(about, "NodeNotReady", message);
        }
        Ok(())
    }

    async fn write_conditions(
        &self,
        node: &Object<NodeView>,
        conditions: &[crate::views::Condition],
    ) -> Result<(), ReconcileError> {
        // As decided on this version: a node that has just reported is reconciled again.
        let body = json!({
            "metadata": {"uid": node.uid().0, "resourceVersion": node.revision.to_string()},
            "status": {"conditions": conditions_as_written(conditions, &node.header)},
        });
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

    /// Writes the taints that follow; answers when to ask again for the permit to give the node up.
    async fn write_taints(&self, node: &Object<NodeView>) -> Result<Option<Duration>, ReconcileError> {
        let now = self.runtime.monotonic();
        let (give_up, ask_again) = eviction_permit(&self.zones, node, now, &self.config);
        let Some(taints) = taints(node, give_up, self.runtime.now()) else {
            return Ok(ask_again);
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
        ignore_gone(patched.map(drop), "writing taints")?;
        if give_up == EvictionTaint::Yes {
            self.metrics.given_up(&zone(node));
        }
        Ok(ask_again)
    }

    /// Writes the labels of earlier releases that follow from those of this one.
    async fn write_labels(&self, node: &Object<NodeView>) -> Result<(), ReconcileError> {
        let labels = reconciled(&node.header);
        if labels.is_empty() {
            return Ok(());
        }
        let body = json!({"metadata": {"uid": node.uid().0, "labels": labels}});
        let patched = self
            .client
            .patch(&ApiResource::of::<Node>(), node.key(), "", &Patch::Merge, &body)
            .await;
        ignore_gone(patched.map(drop), "writing labels")
    }

    /// Pods of a node that is silent serve no traffic: their watchers are to know. Where the node says itself that
    /// it is not ready, its kubelet speaks for the pods.
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

/// Time without a heartbeat after which a node counts as unreachable.
pub(super) fn grace(node: &NodeView, config: &Config) -> Duration {
    match find(&node.conditions, "Ready") {
        Some(_) => config.node_monitor_grace_period,
        // A node that never reported gets the startup grace period: its kubelet may still be starting.
        None => config.node_startup_grace_period,
    }
}

/// Decides on the `NoExecute` taint of a node, and takes its zone's permit where there is one; else answers when to ask again.
pub(super) fn eviction_permit(
    zones: &Zones,
    node: &Object<NodeView>,
    now: Duration,
    config: &Config,
) -> (EvictionTaint, Option<Duration>) {
    // No zone has a ready node: more likely this controller is cut off than all nodes are, so evictions stop
    // (upstream's `masterDisruption`).
    if zones.is_all_lost() {
        return (EvictionTaint::Stopped, None);
    }
    if reason(node).is_none() || is_tainted_no_execute(node) {
        return (EvictionTaint::NotYet, None);
    }
    match zones.permit(&zone(node), now, config) {
        Permit::Now => (EvictionTaint::Yes, None),
        Permit::In(wait) => (EvictionTaint::NotYet, Some(wait)),
        Permit::Never => (EvictionTaint::NotYet, None),
    }
}

fn lease_of(node: &Object<NodeView>) -> ObjectKey {
    ObjectKey::new(LEASE_NAMESPACE, node.name())
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
