//! Pods and nodes come and go, nodes are cordoned: no node is ever given more than it has, no pod is placed twice, and
//! in the end only those wait that fit nowhere.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::core::v1::{Node, Pod};
use machinery_meta::ObjectKey;
use serde_json::json;
use std::sync::Arc;

const NODES: u64 = 3;
const CPU: u64 = 1000;
const PODS: u64 = 4;

#[derive(Default)]
struct Placed {
    next: u64,
}

impl Scenario for Placed {
    const CONTROLLERS: &'static [&'static str] = &[];
    const SCHEDULER: bool = true;
    const STEPS: u32 = 40;

    async fn begin(&mut self, world: &World) {
        for number in 0..NODES {
            make_node(world, &format!("n{number}")).await;
        }
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let node = format!("n{}", world.dice(NODES));
        let pod = world.pick(model.all("Pod").cloned().collect());
        match (world.dice(10), pod) {
            (0, _) => match model.get("Node", "", &node) {
                Some(own) => world.delete::<Node>(&own.key).await,
                None => make_node(world, &node).await,
            },
            (1, _) => {
                if let Some(own) = model.get("Node", "", &node) {
                    let cordon = world.once_in(2);
                    world
                        .patch::<Node>(&own.key, json!({"spec": {"unschedulable": cordon}}))
                        .await;
                }
            }
            (2 | 3, Some(pod)) => world.delete::<Pod>(&pod.key).await,
            (4, Some(pod)) if !pod.text("/spec/nodeName").is_empty() => world.pod_is(&pod, "Succeeded").await,
            _ => {
                self.next += 1;
                let cpu = format!("{}m", 100 * (1 + world.dice(6)));
                let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
                let name = format!("p{}", self.next);
                let pod = json!({"metadata": {"name": name}, "spec": {"containers": [container]}});
                world.create::<Pod>(pod).await.unwrap();
            }
        }
    }

    async fn run_nodes(&mut self, world: &World, model: &ReferenceModel) {
        let on_node = |pod: &&Arc<ObjectVersion>| !pod.text("/spec/nodeName").is_empty();
        for pod in model.all("Pod").filter(|pod| pod.is_deleting()).filter(on_node) {
            world.pod_has_ended(pod).await;
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        let Some(after) = change.after.as_ref().filter(|own| own.kind == "Pod") else {
            return Ok(());
        };
        let before = change
            .before
            .as_ref()
            .map_or("", |before| before.text("/spec/nodeName"));
        let node = after.text("/spec/nodeName");
        if !before.is_empty() && before != node {
            return Err(format!("it was on {before}"));
        }
        if before.is_empty() && !node.is_empty() {
            let (cpu, pods) = used(model, node);
            if cpu > CPU || pods > PODS {
                return Err(format!("{node} has {pods} pods with {cpu}m"));
            }
        }
        Ok(())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        let waiting = model
            .all("Pod")
            .filter(|pod| pod.is_active_pod() && pod.text("/spec/nodeName").is_empty());
        for pod in waiting {
            let open = model
                .all("Node")
                .filter(|node| node.at("/spec/unschedulable") != Some(&json!(true)));
            for node in open {
                let (cpu, pods) = used(model, node.name());
                if cpu + request(pod) <= CPU && pods < PODS {
                    return Err(format!("{} fits {}", pod.key, node.name()));
                }
            }
            if pod.condition("PodScheduled") != "False" {
                return Err(format!("{} is not told why it waits", pod.key));
            }
        }
        Ok(())
    }
}

/// A node is made tainted as not ready, and here no controller takes that back.
async fn make_node(world: &World, name: &str) {
    world.create_node(name, CPU, PODS).await;
    let body = json!({"spec": {"taints": null}});
    world.patch::<Node>(&ObjectKey::cluster(name), body).await;
}

fn request(pod: &ObjectVersion) -> u64 {
    let text = pod.text("/spec/containers/0/resources/requests/cpu");
    text.trim_end_matches('m').parse().unwrap()
}

/// Thousandths of a processor and pods that a node has given away.
fn used(model: &ReferenceModel, node: &str) -> (u64, u64) {
    let on = model
        .all("Pod")
        .filter(|pod| pod.text("/spec/nodeName") == node && !pod.is_ended_pod());
    on.fold((0, 0), |(cpu, pods), pod| (cpu + request(pod), pods + 1))
}

#[test]
fn scheduler_scenario() {
    run_seeds(Placed::default);
}
