//! Nodes vanish, pods end, and some are deleted before they had a node: what no other controller removes goes, and nothing
//! else does.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::replica_set::template;
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use controllers_manager::Config;
use k8s_openapi::api::core::v1::{Node, Pod};
use machinery_meta::Uid;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Finished pods that are kept.
const KEPT: usize = 3;

#[derive(Default)]
struct Collected {
    next: u64,
    deleted: BTreeSet<Uid>,
    /// Pods whose node was gone at some time since they had it.
    orphaned: BTreeSet<Uid>,
}

impl Scenario for Collected {
    const CONTROLLERS: &'static [&'static str] = &["pod-garbage-collector-controller"];
    const STEPS: u32 = 40;
    const STEP_MILLIS: u64 = 15_000;

    fn configure(&self, config: &mut Config) {
        config.terminated_pod_gc_threshold = KEPT;
    }

    async fn begin(&mut self, world: &World) {
        for name in ["n0", "n1"] {
            world.create_node(name, 1000, 10).await;
        }
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let node = format!("n{}", world.dice(2));
        let pod = world.pick(model.all("Pod").cloned().collect());
        match (world.dice(6), pod) {
            (0, _) => match model.get("Node", "", &node) {
                Some(own) => world.delete::<Node>(&own.key).await,
                None => world.create_node(&node, 1000, 10).await,
            },
            (1, Some(pod)) => {
                self.deleted.insert(pod.uid.clone());
                world.delete::<Pod>(&pod.key).await;
            }
            (2 | 3, Some(pod)) => world.pod_is(&pod, "Succeeded").await,
            _ => {
                let mut own = template(&json!({}));
                self.next += 1;
                own["metadata"]["name"] = json!(format!("p{}", self.next));
                if !world.once_in(4) {
                    own["spec"]["nodeName"] = json!(node);
                }
                world.create::<Pod>(own).await.unwrap();
            }
        }
    }

    async fn run_nodes(&mut self, world: &World, model: &ReferenceModel) {
        let has_node = |pod: &ObjectVersion| model.get("Node", "", pod.text("/spec/nodeName")).is_some();
        for pod in model.all("Pod").filter(|pod| pod.is_deleting() && has_node(pod)) {
            world.pod_has_ended(pod).await;
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        for pod in model.all("Pod") {
            let node = pod.text("/spec/nodeName");
            if !node.is_empty() && model.get("Node", "", node).is_none() {
                self.orphaned.insert(pod.uid.clone());
            }
        }
        let Some(pod) = change.gone("Pod") else {
            return Ok(());
        };
        let one_too_many = pod.is_ended_pod() && ended(model) >= KEPT;
        if self.deleted.contains(&pod.uid) || self.orphaned.contains(&pod.uid) || one_too_many {
            return Ok(());
        }
        Err("nobody asked for it to go".to_owned())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        let lost = |pod: &&Arc<ObjectVersion>| {
            let node = pod.text("/spec/nodeName");
            pod.is_deleting() || (!node.is_empty() && model.get("Node", "", node).is_none())
        };
        if let Some(pod) = model.all("Pod").find(lost) {
            return Err(format!("{} is left", pod.key));
        }
        let ended = ended(model);
        if ended <= KEPT {
            Ok(())
        } else {
            Err(format!("{ended} finished pods"))
        }
    }
}

fn ended(model: &ReferenceModel) -> usize {
    model.all("Pod").filter(|pod| pod.is_ended_pod()).count()
}

#[test]
fn pod_gc_scenario() {
    run_seeds(Collected::default);
}
