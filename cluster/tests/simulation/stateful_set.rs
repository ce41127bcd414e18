//! Sizes and templates change, pods fail and vanish, while messages are lost. The ordered set never makes a pod before the
//! one below it has been ready, no set has two pods of one ordinal, and below the partition no pod is of a new revision.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::replica_set::template;
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use machinery_meta::ObjectKey;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const PARTITION: i64 = 1;
const LARGEST: u64 = 5;

/// The last pod made of each place, and the pods that have been ready.
#[derive(Default)]
struct StatefulSets {
    last: BTreeMap<(String, i64), String>,
    ready: BTreeSet<String>,
}

fn stateful_set(name: &str, policy: &str) -> Value {
    let labels = json!({"app": name});
    let mut template = template(&labels);
    // On a node, pods take their time to end.
    template["spec"]["nodeName"] = json!("n");
    json!({"metadata": {"name": name}, "spec": {
        "replicas": 3, "serviceName": "s", "selector": {"matchLabels": labels}, "template": template,
        "podManagementPolicy": policy, "revisionHistoryLimit": 2,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": PARTITION}}}})
}

fn ordinal(pod: &ObjectVersion) -> i64 {
    let (_, digits) = pod.name().rsplit_once('-').unwrap();
    digits.parse().unwrap()
}

async fn change(world: &World, spec: Value) {
    let name = if world.once_in(2) { "a" } else { "b" };
    let key = ObjectKey::new("default", name);
    world.patch::<StatefulSet>(&key, json!({"spec": spec})).await;
}

impl Scenario for StatefulSets {
    const CONTROLLERS: &'static [&'static str] = &["statefulset-controller"];
    const STEPS: u32 = 60;

    async fn begin(&mut self, world: &World) {
        for (name, policy) in [("a", "OrderedReady"), ("b", "Parallel")] {
            world
                .create::<StatefulSet>(stateful_set(name, policy))
                .await
                .unwrap();
        }
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let pod = world.pick(model.all("Pod").cloned().collect());
        match (world.dice(8), pod) {
            (0, _) => change(world, json!({"replicas": 1 + world.dice(LARGEST)})).await,
            (1, _) => {
                let image = format!("i{}", world.dice(3));
                let containers = json!([{"name": "c", "image": image}]);
                change(world, json!({"template": {"spec": {"containers": containers}}})).await;
            }
            (2, Some(pod)) => world.delete::<Pod>(&pod.key).await,
            (3, Some(pod)) => world.pod_is(&pod, "Failed").await,
            _ => {}
        }
    }

    async fn run_nodes(&mut self, world: &World, model: &ReferenceModel) {
        for pod in model.all("Pod") {
            if pod.is_deleting() {
                world.pod_has_ended(pod).await;
            } else if !pod.is_ready_pod() && world.once_in(3) {
                world.pod_is_ready(pod).await;
            }
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        if !change.is_of("Pod") {
            return Ok(());
        }
        let Some(pod) = &change.after else { return Ok(()) };
        if pod.is_ready_pod() {
            self.ready.insert(pod.uid.0.clone());
        }
        if change.before.is_some() {
            return Ok(());
        }
        let owner = pod.controller().ok_or("made without an owner")?.name.to_string();
        let set = model.get("StatefulSet", "default", &owner).ok_or("no set")?;
        let place = ordinal(pod);
        if model.pods_of(set).filter(|own| ordinal(own) == place).count() > 1 {
            return Err(format!("two pods of ordinal {place}"));
        }
        let current = set.text("/status/currentRevision");
        let revision = pod.label("controller-revision-hash").unwrap_or("");
        if place < PARTITION && !current.is_empty() && revision != current {
            return Err(format!("is of {revision} below the partition of {current}"));
        }
        if owner == "a" && place > 0 {
            let below = self.last.get(&(owner.clone(), place - 1));
            if !below.is_some_and(|below| self.ready.contains(below)) {
                return Err(format!("ordinal {} was never ready", place - 1));
            }
        }
        self.last.insert((owner, place), pod.uid.0.clone());
        Ok(())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        for set in model.all("StatefulSet") {
            let wanted = set.number("/spec/replicas");
            let mut places: Vec<_> = model.pods_of(set).map(|pod| ordinal(pod)).collect();
            places.sort_unstable();
            let counts = ["replicas", "readyReplicas", "availableReplicas"];
            let said = counts
                .iter()
                .all(|count| set.number(&format!("/status/{count}")) == wanted);
            let seen = set.number("/status/observedGeneration") == set.generation;
            let all_ready = model.pods_of(set).all(|pod| pod.is_ready_pod());
            if places != (0..wanted).collect::<Vec<_>>() || !said || !seen || !all_ready {
                return Err(format!(
                    "{}: {places:?} of {wanted}, {:?}",
                    set.key,
                    set.at("/status")
                ));
            }
            let update = set.text("/status/updateRevision");
            let old = model.pods_of(set).find(|pod| {
                ordinal(pod) >= PARTITION && pod.label("controller-revision-hash") != Some(update)
            });
            if let Some(old) = old {
                return Err(format!("{} is of an old revision", old.key));
            }
        }
        Ok(())
    }
}

#[test]
fn stateful_set_scenario() {
    run_seeds(StatefulSets::default);
}
