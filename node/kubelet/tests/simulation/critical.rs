//! A critical pod on a full node: another ends for it, and says so.

use crate::pods::IMAGE;
use crate::simulated_node::World;
use k8s_openapi::api::core::v1::Pod;
use machinery_runtime::Simulation;
use node_cri_model::Program;
use serde_json::{Value, json};
use std::time::Duration;

/// Runs the scenario of a seed, on a node of 64 processors.
pub(crate) fn run_seed(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        for (name, cpu) in [("small", "10"), ("large", "50")] {
            world.create::<Pod>(pod(&world, name, cpu, "")).await.unwrap();
        }
        until_running(&world, &["small", "large"]).await;
        world.create::<Pod>(pod(&world, "late", "30", "")).await.unwrap();
        world
            .create::<Pod>(pod(&world, "critical", "30", "system-node-critical"))
            .await
            .unwrap();
        until_running(&world, &["small", "critical"]).await;
        let told = |name: &'static str| {
            let world = &world;
            async move {
                let pods = world.pods().await.into_iter();
                let status = pods
                    .into_iter()
                    .find(|pod| pod.metadata.name.as_deref() == Some(name));
                status.unwrap().status.unwrap()
            }
        };
        let large = told("large").await;
        assert_eq!(
            (
                large.phase.as_deref(),
                large.reason.as_deref(),
                large.message.as_deref()
            ),
            (
                Some("Failed"),
                Some("Preempting"),
                Some("Preempted in order to admit critical pod")
            )
        );
        let conditions = large.conditions.unwrap();
        let disrupted = conditions
            .iter()
            .find(|own| own.type_ == "DisruptionTarget")
            .unwrap();
        assert_eq!(disrupted.reason.as_deref(), Some("TerminationByKubelet"));
        let late = told("late").await;
        assert_eq!(
            late.reason.as_deref(),
            Some("OutOfcpu"),
            "a pod like others finds no room"
        );
    });
}

fn pod(world: &World, name: &str, cpu: &str, class: &str) -> Value {
    let container = json!({"name": "main", "image": IMAGE, "command": Program::serving().command(),
        "resources": {"requests": {"cpu": cpu}}});
    json!({"metadata": {"name": name}, "spec": {"nodeName": world.node_name(), "priorityClassName": class,
        "automountServiceAccountToken": false, "containers": [container]}})
}

async fn until_running(world: &World, names: &[&str]) {
    let patience = world.runtime.monotonic() + Duration::from_secs(300);
    loop {
        let pods = world.pods().await.into_iter();
        let running = pods.filter(|pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Running"));
        let running: Vec<String> = running.filter_map(|pod| pod.metadata.name).collect();
        if names.iter().all(|name| running.iter().any(|own| own == name)) {
            return;
        }
        assert!(world.runtime.monotonic() < patience, "only {running:?} run");
        world.runtime.sleep(Duration::from_secs(1)).await;
    }
}
