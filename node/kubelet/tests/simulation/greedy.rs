//! Pods that want more objects, volumes and tokens than a node gives one pod: they get an event, and others go on.

use crate::pods::{IMAGE, pod};
use crate::simulated_node::World;
use k8s_openapi::api::core::v1::{Event, Pod};
use machinery_runtime::Simulation;
use node_cri_model::Program;
use serde_json::{Value, json};
use std::time::Duration;

/// Longest time until a pod runs, or has the reason why it does not.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs the scenario of a seed.
pub(crate) fn run_seed(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        let greedy = [
            ("objects", object_volumes(300), "256 ConfigMaps and Secrets"),
            ("volumes", empty_volumes(600), "512 volumes"),
            ("tokens", token_volume(100), "64 projected service account tokens"),
        ];
        for (name, volumes, _) in &greedy {
            world.create::<Pod>(with(&world, name, volumes)).await.unwrap();
        }
        world
            .create::<Pod>(pod(&world, "modest", "volumes"))
            .await
            .unwrap();
        world.until_running("modest", "", PATIENCE).await;
        for (name, _, bound) in &greedy {
            until_event(&world, name, bound).await;
            assert_eq!(world.running(name), None);
        }
        for (name, ..) in &greedy {
            world.delete(name, Some(0)).await;
        }
        world.create::<Pod>(pod(&world, "late", "volumes")).await.unwrap();
        world.until_running("late", "", PATIENCE).await;
    });
}

async fn until_event(world: &World, name: &str, bound: &str) {
    let events: kube::Api<Event> = kube::Api::namespaced(world.client.kube().clone(), "default");
    let until = world.runtime.monotonic() + PATIENCE;
    loop {
        let all = events.list(&kube::api::ListParams::default()).await.unwrap();
        let told = all.into_iter().any(|event| {
            let words = event.message.unwrap_or_default();
            event.involved_object.name.as_deref() == Some(name)
                && event.reason.as_deref() == Some("FailedMount")
                && words.starts_with("MountVolume.SetUp failed for volume \"")
                && words.ends_with(bound)
        });
        if told {
            return;
        }
        assert!(
            world.runtime.monotonic() < until,
            "{name} has no event about {bound}"
        );
        world.runtime.sleep(Duration::from_secs(1)).await;
    }
}

fn with(world: &World, name: &str, volumes: &[Value]) -> Value {
    let mount = |volume: &Value| json!({"name": volume["name"], "mountPath": format!("/{}", volume["name"].as_str().unwrap())});
    let mounts: Vec<Value> = volumes.iter().map(mount).collect();
    json!({"metadata": {"name": name}, "spec": {
        "nodeName": world.node_name(), "automountServiceAccountToken": false, "volumes": volumes,
        "containers": [{"name": "main", "image": IMAGE, "command": Program::serving().command(), "volumeMounts": mounts}],
    }})
}

fn object_volumes(count: usize) -> Vec<Value> {
    let source = |number| json!({"configMap": {"name": format!("absent-{number}"), "optional": true}});
    let sources: Vec<Value> = (0..count).map(source).collect();
    vec![json!({"name": "all", "projected": {"sources": sources}})]
}

fn empty_volumes(count: usize) -> Vec<Value> {
    let volume = |number| json!({"name": format!("v{number}"), "emptyDir": {}});
    (0..count).map(volume).collect()
}

fn token_volume(count: usize) -> Vec<Value> {
    let source = |number| json!({"serviceAccountToken": {"path": format!("t{number}"), "audience": format!("a{number}")}});
    let sources: Vec<Value> = (0..count).map(source).collect();
    vec![json!({"name": "all", "projected": {"sources": sources}})]
}
