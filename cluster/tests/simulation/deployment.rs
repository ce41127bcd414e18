//! Templates and sizes change while pods come up in their own time. A rolling update keeps both of its bounds: the
//! sizes of its sets never add up to more than the surge allows, and what is available never falls below the minimum.
//! `Recreate` never has pods of two templates.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::replica_set::template;
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::apps::v1::Deployment;
use machinery_meta::ObjectKey;
use serde_json::{Value, json};
use std::sync::Arc;

const SURGE: i64 = 1;
const UNAVAILABLE: i64 = 1;
const HISTORY: usize = 2;
const CONTROLLERS: &[&str] = &["deployment-controller", "replicaset-controller"];

fn deployment(replicas: i64, strategy: Value) -> Value {
    let labels = json!({"app": "a"});
    json!({"metadata": {"name": "a"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": labels}, "template": template(&labels),
        "revisionHistoryLimit": HISTORY, "strategy": strategy}})
}

async fn change(world: &World, spec: Value) {
    world
        .patch::<Deployment>(&ObjectKey::new("default", "a"), json!({"spec": spec}))
        .await;
}

/// One of a few templates, so that some changes are rollbacks.
async fn new_template(world: &World) {
    let image = format!("i{}", world.dice(4));
    change(
        world,
        json!({"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}),
    )
    .await;
}

/// Pods come up one by one, and those that are to go end.
async fn run_nodes(world: &World, model: &ReferenceModel, up_one_in: u64) {
    for pod in model.all("Pod") {
        if pod.is_deleting() {
            world.pod_has_ended(pod).await;
        } else if !pod.is_ready_pod() && world.once_in(up_one_in) {
            world.pod_is_ready(pod).await;
        }
    }
}

fn sets(model: &ReferenceModel) -> impl Iterator<Item = &Arc<ObjectVersion>> {
    model.all("ReplicaSet")
}

fn image(object: &ObjectVersion) -> &str {
    let template = if object.kind == "Pod" {
        ""
    } else {
        "/template/spec"
    };
    object.text(&format!("/spec{template}/containers/0/image"))
}

fn check_converged(model: &ReferenceModel) -> Result<(), String> {
    let own = model.get("Deployment", "default", "a").ok_or("no deployment")?;
    let replicas = own.number("/spec/replicas");
    let counts = [
        "replicas",
        "updatedReplicas",
        "availableReplicas",
        "readyReplicas",
    ];
    let all_there = counts
        .iter()
        .all(|count| own.number(&format!("/status/{count}")) == replicas);
    let seen = own.number("/status/observedGeneration") == own.generation;
    if !all_there || !seen || own.condition("Available") != "True" {
        return Err(format!("{replicas} wanted: {:?}", own.at("/status")));
    }
    if let Some(old) = model
        .all("Pod")
        .find(|pod| pod.is_active_pod() && image(pod) != image(own))
    {
        return Err(format!("{} is of an old template", old.key));
    }
    let old = sets(model)
        .filter(|set| set.number("/spec/replicas") == 0)
        .count();
    if old > HISTORY + usize::from(replicas == 0) {
        return Err(format!("{old} old sets are kept"));
    }
    Ok(())
}

/// The largest and smallest size since the beginning bound what may be there.
struct Rolling {
    largest: i64,
    smallest: i64,
    was_available: bool,
}

impl Scenario for Rolling {
    const CONTROLLERS: &'static [&'static str] = CONTROLLERS;
    const STEPS: u32 = 100;
    const STEP_MILLIS: u64 = 300;

    async fn begin(&mut self, world: &World) {
        let bounds = json!({"rollingUpdate": {"maxSurge": SURGE, "maxUnavailable": UNAVAILABLE}});
        world
            .create::<Deployment>(deployment(self.largest, bounds))
            .await
            .unwrap();
    }

    async fn step(&mut self, world: &World, _: &ReferenceModel) {
        match world.dice(40) {
            0..3 => new_template(world).await,
            3 => {
                let size = 3 + world.dice(4);
                change(world, json!({"replicas": size})).await;
            }
            4 => change(world, json!({"paused": true})).await,
            5..8 => change(world, json!({"paused": false})).await,
            _ => {}
        }
    }

    async fn run_nodes(&mut self, world: &World, model: &ReferenceModel) {
        run_nodes(world, model, 4).await;
    }

    async fn final_step(&mut self, world: &World) {
        change(world, json!({"paused": false})).await;
    }

    fn check_invariant(&mut self, model: &ReferenceModel, _: &Change) -> Result<(), String> {
        let Some(own) = model.get("Deployment", "default", "a") else {
            return Ok(());
        };
        let replicas = own.number("/spec/replicas");
        self.largest = self.largest.max(replicas);
        self.smallest = self.smallest.min(replicas);
        let size: i64 = sets(model).map(|set| set.number("/spec/replicas")).sum();
        let available = model.all("Pod").filter(|pod| pod.is_ready_pod()).count() as i64;
        self.was_available |= available >= replicas;
        if size > self.largest + SURGE {
            return Err(format!("sets of {size} pods together"));
        }
        if self.was_available && available < self.smallest - UNAVAILABLE {
            return Err(format!("{available} available"));
        }
        Ok(())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        check_converged(model)
    }
}

struct Recreating;

impl Scenario for Recreating {
    const CONTROLLERS: &'static [&'static str] = CONTROLLERS;
    const STEPS: u32 = 40;

    async fn begin(&mut self, world: &World) {
        let mut own = deployment(3, json!({"type": "Recreate", "rollingUpdate": null}));
        // On a node, pods take their time to end.
        own["spec"]["template"]["spec"]["nodeName"] = json!("n");
        world.create::<Deployment>(own).await.unwrap();
    }

    async fn step(&mut self, world: &World, _: &ReferenceModel) {
        match world.dice(5) {
            0 => new_template(world).await,
            1 => change(world, json!({"replicas": 1 + world.dice(4)})).await,
            _ => {}
        }
    }

    async fn run_nodes(&mut self, world: &World, model: &ReferenceModel) {
        run_nodes(world, model, 3).await;
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        let Some(pod) = change.made("Pod") else {
            return Ok(());
        };
        let other = model
            .all("Pod")
            .find(|other| image(other) != image(pod) && !other.is_ended_pod());
        other.map_or(Ok(()), |other| Err(format!("{} is still there", other.key)))
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        check_converged(model)
    }
}

#[test]
fn rolling_updates_keep_their_bounds() {
    run_seeds(|| Rolling {
        largest: 4,
        smallest: 4,
        was_available: false,
    });
}

#[test]
fn recreated_pods_never_meet_their_successors() {
    run_seeds(|| Recreating);
}
