//! Nodes come and go, and a client changes their annotation: in the end each has the time to live of a small cluster.

use crate::Scenario;
use crate::model::{Change, ReferenceModel};
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::core::v1::Node;
use machinery_meta::ObjectKey;
use serde_json::json;

const TTL: &str = "node.alpha.kubernetes.io/ttl";

struct NodeTtl;

impl Scenario for NodeTtl {
    const CONTROLLERS: &'static [&'static str] = &["ttl-controller"];

    async fn begin(&mut self, _: &World) {}

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let name = format!("n{}", world.dice(4));
        let key = ObjectKey::cluster(&*name);
        match (world.dice(3), model.get("Node", "", &name)) {
            (_, None) => world.create_node(&name, 4, 10).await,
            (0, _) => world.delete::<Node>(&key).await,
            (1, _) => {
                let annotations = json!({"metadata": {"annotations": {TTL: "7"}}});
                world.patch::<Node>(&key, annotations).await;
            }
            _ => {
                let annotations = json!({"metadata": {"annotations": {TTL: null}}});
                world.patch::<Node>(&key, annotations).await;
            }
        }
    }

    fn check_invariant(&mut self, _: &ReferenceModel, _: &Change) -> Result<(), String> {
        Ok(())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        let ttl = |node: &serde_json::Value| node["metadata"]["annotations"][TTL] == "0";
        match model.all("Node").find(|node| !ttl(node.value())) {
            Some(node) => Err(format!("{} has {:?}", node.key, node.value()["metadata"])),
            None => Ok(()),
        }
    }
}

#[test]
fn node_ttl_scenario() {
    run_seeds(|| NodeTtl);
}
