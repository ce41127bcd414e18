//! Statuses that a node agent writes for its pods.

use crate::model::ObjectVersion;
use crate::simulated_cluster::World;
use k8s_openapi::api::core::v1::{Node, Pod};
use machinery_client::DeleteOptions;
use machinery_meta::ObjectKey;
use serde_json::{Value, json};

impl World {
    /// The pod runs and is ready; one that has ended stays so, as every node agent has it.
    pub(crate) async fn pod_is_ready(&self, pod: &ObjectVersion) {
        if pod.is_ended_pod() {
            return;
        }
        let status = json!({"phase": "Running", "conditions": [self.condition("Ready", true)]});
        self.patch_status::<Pod>(&pod.key, status).await;
    }

    /// The pod is in this phase.
    pub(crate) async fn pod_is(&self, pod: &ObjectVersion, phase: &str) {
        self.patch_status::<Pod>(&pod.key, json!({"phase": phase})).await;
    }

    /// The node has ended a pod that was to go.
    pub(crate) async fn pod_has_ended(&self, pod: &ObjectVersion) {
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            ..DeleteOptions::uid(&pod.uid)
        };
        self.delete_with::<Pod>(&pod.key, options).await;
    }

    /// A node with room for `pods` pods and `cpu` thousandths of a processor.
    pub(crate) async fn create_node(&self, name: &str, cpu: u64, pods: u64) {
        let size = json!({"cpu": format!("{cpu}m"), "memory": "1Gi", "pods": pods.to_string()});
        let node = json!({"metadata": {"name": name}, "status": {"capacity": size, "allocatable": size,
            "conditions": [self.condition("Ready", true)]}});
        if self.create::<Node>(node.clone()).await.is_ok() {
            // A create takes no status from most writers.
            let key = ObjectKey::cluster(name);
            self.patch_status::<Node>(&key, node["status"].clone()).await;
        }
    }

    pub(crate) fn condition(&self, kind: &str, holds: bool) -> Value {
        let status = if holds { "True" } else { "False" };
        json!({"type": kind, "status": status, "lastTransitionTime": self.now(), "lastHeartbeatTime": self.now()})
    }
}
