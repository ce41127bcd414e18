//! Notes the time of a node's last heartbeat, and writes what follows.

use super::metrics::NodeMetrics;
use super::plan::{
    EvictionTaint, is_given_up_on, is_tainted_no_execute, readiness, reason, silenced, taints,
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
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Times at which nodes' signs of life changed, by the controller's own clock: the nodes' clocks prove nothing.
#[derive(Debug, Default)]
pub(super) struct HeartbeatTracker {
    nodes: Mutex<BTreeMap<ObjectKey, LastHeartbeat>>,
}

#[derive(Debug)]
struct LastHeartbeat {
    about: ObjectReference,
    /// Of `Ready`, which comes with the node's status.
    heartbeat: String,
    /// Time of the lease's renewal, as the watch delivered it last and as it was read last: the one may be behind the
    /// other, and alternating between the two is no sign of life.
    told: String,
    read: String,
    /// `None` until the next look.
    at: Option<Duration>,
}

/// Time at which a node's lease was renewed.
#[derive(Debug, Clone, Copy)]
enum Renewal<'a> {
    /// As the watch delivered it.
    Told(&'a str),
    /// As the server has it.
    Read(&'a str),
}

impl LastHeartbeat {
    fn of(about: &ObjectReference) -> Self {
        Self {
            about: about.clone(),
            heartbeat: String::new(),
            told: String::new(),
            read: String::new(),
            at: None,
        }
    }

    /// Reports whether the node has given a sign of life since the last look: the lease or the heartbeat moves.
    fn has_moved(&mut self, heartbeat: &str, renewal: Renewal<'_>) -> bool {
        let (Renewal::Told(renewed) | Renewal::Read(renewed)) = renewal;
        let moved = self.heartbeat != heartbeat || (self.told != renewed && self.read != renewed);
        heartbeat.clone_into(&mut self.heartbeat);
        let own = match renewal {
            Renewal::Told(_) => &mut self.told,
            Renewal::Read(_) => &mut self.read,
        };
        renewed.clone_into(own);
        moved
    }
}

impl HeartbeatTracker {
    fn with<T>(&self, look: impl FnOnce(&mut BTreeMap<ObjectKey, LastHeartbeat>) -> T) -> T {
        look(&mut self.nodes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// No node has been silent so far.
    pub(super) fn reset_heartbeats(&self) {
        self.with(|nodes| nodes.values_mut().for_each(|own| own.at = None));
    }
}

pub(super) struct NodeReconciler {
    pub(super) client: Client,
    pub(super) recorder: EventRecorder,
    pub(super) runtime: Runtime,
    pub(super) config: Arc<Config>,
    pub(super) nodes: Informer<NodeView>,
    pub(super) leases: Informer<LeaseView>,
    pub(super) pods: Informer<PodView>,
    pub(super) zones: Arc<Zones>,
    pub(super) heard: Arc<HeartbeatTracker>,
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
        let grace = match find(&node.conditions, "Ready") {
            Some(_) => self.config.node_monitor_grace_period,
            None => self.config.node_startup_grace_period,
        };
        let mut left = grace.saturating_sub(self.heartbeat_age(
            &node,
            &about,
            Renewal::Told(&self.watched_renewal(&node)),
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
        if let Some(known) = self.heard.with(|nodes| nodes.remove(key)) {
            let message = format!("Removing Node {} from Controller", key.name);
            self.recorder.normal(&known.about, "RemovingNode", message);
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

    /// Time since the node's last sign of life; a new sign starts the clock again.
    fn heartbeat_age(
        &self,
        node: &Object<NodeView>,
        about: &ObjectReference,
        renewal: Renewal<'_>,
    ) -> Duration {
        let now = self.runtime.monotonic();
        let (new, at) = self.heard.with(|nodes| {
            let new = nodes.get(node.key()).is_none_or(|own| own.about.uid != about.uid);
            let entry = nodes
                .entry(node.key().clone())
                .or_insert_with(|| LastHeartbeat::of(about));
            if entry.has_moved(&node.heartbeat, renewal) || new {
                entry.at = None;
                entry.about = about.clone();
            }
            (new, *entry.at.get_or_insert(now))
        });
        if new {
            let message = format!("Registered Node {} in Controller", node.name());
            self.recorder.normal(about, "RegisteredNode", message);
        }
        now.saturating_sub(at)
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
        // As decided on this version: a node that has just spoken for itself is looked at anew.
        let body = json!({
            "metadata": {"uid": node.uid().0, "resourceVersion": node.revision.to_string()},
            "status": {"conditions": conditions},
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
        let (give_up, ask_again) = self.eviction_permit(node);
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

    fn eviction_permit(&self, node: &Object<NodeView>) -> (EvictionTaint, Option<Duration>) {
        if self.zones.is_all_lost() {
            return (EvictionTaint::Stopped, None);
        }
        if reason(node).is_none() || is_tainted_no_execute(node) {
            return (EvictionTaint::NotYet, None);
        }
        match self
            .zones
            .permit(&zone(node), self.runtime.monotonic(), &self.config)
        {
            Permit::Now => (EvictionTaint::Yes, None),
            Permit::In(wait) => (EvictionTaint::NotYet, Some(wait)),
            Permit::Never => (EvictionTaint::NotYet, None),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeat_stale_watch_is_no_heartbeat() {
        let mut sign = LastHeartbeat::of(&ObjectReference::new(
            &ApiResource::of::<Node>(),
            &ObjectKey::new("", "n"),
            "u",
        ));
        assert!(sign.has_moved("h", Renewal::Told("1")));
        assert!(sign.has_moved("h", Renewal::Read("2")));
        // The watch stays where it is, and the node has gone.
        for _ in 0..2 {
            assert!(!sign.has_moved("h", Renewal::Told("1")));
            assert!(!sign.has_moved("h", Renewal::Read("2")));
        }
        assert!(!sign.has_moved("h", Renewal::Told("2")));
        assert!(sign.has_moved("h", Renewal::Told("3")));
        assert!(sign.has_moved("i", Renewal::Told("3")));
    }
}
