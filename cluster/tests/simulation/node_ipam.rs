//! Nodes come and go, more than there are ranges: no two ever share addresses, no node's range changes, and in the end
//! every node has one.

use crate::Scenario;
use crate::model::{Change, ReferenceModel};
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use controllers_manager::Config;
use k8s_openapi::api::core::v1::Node;
use machinery_meta::ObjectKey;

/// Ranges there are.
const RANGES: usize = 4;
const NODES: u64 = 6;
const CIDR: &str = "/spec/podCIDR";

struct Ranges;

impl Scenario for Ranges {
    const CONTROLLERS: &'static [&'static str] = &["node-ipam-controller"];
    const STEPS: u32 = 30;

    fn configure(&self, config: &mut Config) {
        config.cluster_cidr = "10.244.0.0/26".to_owned();
        config.node_cidr_mask_size = 28;
    }

    async fn begin(&mut self, _: &World) {}

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let name = format!("n{}", world.dice(NODES));
        match model.get("Node", "", &name) {
            None => world.create_node(&name, 1000, 10).await,
            Some(own) if world.once_in(2) => world.delete::<Node>(&own.key).await,
            Some(_) => {}
        }
    }

    async fn final_step(&mut self, world: &World) {
        for number in RANGES as u64..NODES {
            world
                .delete::<Node>(&ObjectKey::cluster(format!("n{number}")))
                .await;
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        let Some(after) = change.after.as_ref().filter(|own| own.kind == "Node") else {
            return Ok(());
        };
        let range = after.text(CIDR);
        let before = change.before.as_ref().map_or("", |before| before.text(CIDR));
        if !before.is_empty() && before != range {
            return Err(format!("its range was {before}"));
        }
        // All ranges have one size, so that those that overlap are equal.
        let same = model
            .all("Node")
            .find(|own| own.uid != after.uid && own.text(CIDR) == range);
        match same {
            Some(other) if !range.is_empty() => Err(format!("{} has the range too", other.name())),
            _ => Ok(()),
        }
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        let without = model.all("Node").find(|own| own.text(CIDR).is_empty());
        without.map_or(Ok(()), |own| Err(format!("{} has no range", own.name())))
    }
}

#[test]
fn node_ipam_scenario() {
    run_seeds(|| Ranges);
}
