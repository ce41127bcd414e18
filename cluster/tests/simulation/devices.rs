//! Pods with claims of devices come, end and go, while slices go and come back: no device is ever given to two claims, no pod
//! is bound before its claim is reserved for it, and in the end pods wait only where all devices are taken.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::replica_set::template;
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate, ResourceSlice};
use machinery_meta::ObjectKey;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

const CLAIM: &str = "ResourceClaim";
const NODES: [&str; 2] = ["n0", "n1"];
const RESULTS: &str = "/status/allocation/devices/results";

#[derive(Default)]
struct Devices {
    next: u64,
}

/// Two devices of a node.
async fn offer(world: &World, node: &str) {
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    let devices = json!([{"name": "d0"}, {"name": "d1"}]);
    let slice = json!({"metadata": {"name": node}, "spec": {"driver": "example.com", "pool": pool, "nodeName": node,
        "devices": devices}});
    drop(world.create::<ResourceSlice>(slice).await);
}

impl Scenario for Devices {
    const CONTROLLERS: &'static [&'static str] =
        &["resourceclaim-controller", "garbage-collector-controller"];
    const SCHEDULER: bool = true;
    const STEPS: u32 = 40;

    async fn begin(&mut self, world: &World) {
        for node in NODES {
            world.create_node(node, 8000, 100).await;
            let body = json!({"spec": {"taints": null}});
            world.patch::<Node>(&ObjectKey::cluster(node), body).await;
            offer(world, node).await;
        }
        let class = json!({"metadata": {"name": "c"}, "spec": {"selectors": [
            {"cel": {"expression": "device.driver == 'example.com'"}}]}});
        world.create::<DeviceClass>(class).await.unwrap();
        let spec =
            json!({"spec": {"devices": {"requests": [{"name": "d", "exactly": {"deviceClassName": "c"}}]}}});
        let own = json!({"metadata": {"name": "t"}, "spec": spec});
        world.create::<ResourceClaimTemplate>(own).await.unwrap();
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let node = NODES[usize::from(world.once_in(2))];
        let pod = world.pick(model.all("Pod").cloned().collect());
        match (world.dice(10), pod) {
            (0, _) => world.delete::<ResourceSlice>(&ObjectKey::cluster(node)).await,
            (1, _) => offer(world, node).await,
            (2 | 3, Some(pod)) => world.delete::<Pod>(&pod.key).await,
            (4, Some(pod)) if !pod.text("/spec/nodeName").is_empty() => world.pod_is(&pod, "Succeeded").await,
            _ => {
                self.next += 1;
                let mut pod = template(&json!({"app": "a"}));
                pod["metadata"]["name"] = json!(format!("p{}", self.next));
                pod["spec"]["resourceClaims"] = json!([{"name": "d", "resourceClaimTemplateName": "t"}]);
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

    async fn final_step(&mut self, world: &World) {
        for node in NODES {
            offer(world, node).await;
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        if change.is_of(CLAIM) {
            let mut given = BTreeSet::new();
            let twice = model
                .all(CLAIM)
                .flat_map(devices)
                .find(|own| !given.insert(own.clone()));
            return twice.map_or(Ok(()), |own| Err(format!("{own} is given twice")));
        }
        let Some(pod) = change.after.as_ref().filter(|own| own.kind == "Pod") else {
            return Ok(());
        };
        let node = |pod: &Arc<ObjectVersion>| pod.text("/spec/nodeName").to_owned();
        let was_bound = change
            .before
            .as_ref()
            .is_some_and(|before| !node(before).is_empty());
        if was_bound || node(pod).is_empty() {
            return Ok(());
        }
        let own = model.all(CLAIM).find(|claim| claim.is_controlled_by(pod));
        match own.filter(|claim| is_reserved(claim, pod)) {
            Some(claim) if devices(claim).iter().all(|own| own.starts_with(&node(pod))) => Ok(()),
            _ => Err(format!("{} is bound without its devices", pod.key)),
        }
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        let taken = model.all(CLAIM).flat_map(devices).count();
        let mut waiting = model
            .all("Pod")
            .filter(|pod| pod.is_active_pod() && pod.text("/spec/nodeName").is_empty());
        match waiting.next() {
            Some(pod) if taken < 4 => Err(format!("{} waits, and {taken} devices are taken", pod.key)),
            _ => Ok(()),
        }
    }
}

/// Devices of a claim, by pool.
fn devices(claim: &Arc<ObjectVersion>) -> Vec<String> {
    let text = |own: &Value, name: &str| own[name].as_str().unwrap_or_default().to_owned();
    let results = claim.list(RESULTS).iter();
    results
        .map(|own| format!("{}/{}", text(own, "pool"), text(own, "device")))
        .collect()
}

fn is_reserved(claim: &ObjectVersion, pod: &ObjectVersion) -> bool {
    let mut consumers = claim.list("/status/reservedFor").iter();
    consumers.any(|own| own["name"].as_str() == Some(pod.name()))
}

#[test]
fn devices_are_given_once() {
    run_seeds(Devices::default);
}
