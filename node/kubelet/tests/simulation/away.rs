//! An agent that starts while the API server is away: it goes on with the pods of the agent before it.

use crate::pods::{IMAGE, PURPOSE, pod};
use crate::rules::{Moments, check_converged};
use crate::simulated_node::World;
use k8s_openapi::api::core::v1::Pod;
use machinery_runtime::Simulation;
use node_cri_model::{Program, RuntimeEvent};
use serde_json::{Value, json};
use std::time::Duration;

/// Longest time until a pod of a whole world runs.
const TO_RUN: Duration = Duration::from_secs(120);
/// Longest time until a worker sees a crash and starts another container; a probe may have to fail before, and the
/// back-off passes.
const TO_RESTART: Duration = Duration::from_secs(60);
const TO_FAIL: Duration = Duration::from_secs(400);
/// A worker has come to rest by then, and an agent has waited for the API server long enough.
const A_WHILE: Duration = Duration::from_secs(20);
const TO_SETTLE: u32 = 300;

/// Containers that crash or fail their probes are started again, with the volumes that they had.
pub(crate) fn run_running(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let mut world = world.await;
        world.create::<Pod>(with_volumes(&world)).await.unwrap();
        world
            .create::<Pod>(pod(&world, "probed", "unwell"))
            .await
            .unwrap();
        let crashing = world.until_running("lasting", "", TO_RUN).await;
        world.until_running("probed", "", TO_RUN).await;
        world.runtime.sleep(A_WHILE).await;
        restart_without_api(&mut world).await;
        world.containerd.crash(&crashing, 1);
        let second = world.until_running("lasting", &crashing, TO_RESTART).await;
        let probed = world.until_running("probed", "", TO_FAIL).await;
        world.until_running("probed", &probed, TO_FAIL).await;
        assert_eq!(world.running("lasting"), Some(second), "what runs well stays");
        world.disable_faults();
        world.delete("probed", None).await;
        until_converged(&world).await;
        let pods = world.pods().await;
        let status = pods[0].status.as_ref().unwrap().container_statuses.clone();
        assert_eq!(status.unwrap()[0].restart_count, 1);
    });
}

/// A pod that was to end when the agent did is not started again.
pub(crate) fn run_ending(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let mut world = world.await;
        world
            .create::<Pod>(pod(&world, "ending", "stubborn"))
            .await
            .unwrap();
        let only = world.until_running("ending", "", TO_RUN).await;
        world.runtime.sleep(A_WHILE).await;
        world.delete("ending", Some(600)).await;
        world.runtime.sleep(Duration::from_secs(2)).await;
        restart_without_api(&mut world).await;
        world.containerd.crash(&only, 1);
        world.runtime.sleep(TO_RESTART).await;
        let happened = world.containerd.happenings();
        let starts = happened
            .iter()
            .filter(|one| matches!(one, RuntimeEvent::Started(..)))
            .count();
        assert_eq!(starts, 1, "it was deleted");
        world.disable_faults();
        until_converged(&world).await;
        assert_eq!(world.pods().await, []);
    });
}

async fn restart_without_api(world: &mut World) {
    world.take_api_away();
    world.end_agent().await;
    world.start_agent();
    world.runtime.sleep(A_WHILE).await;
}

async fn until_converged(world: &World) {
    let mut moments = Moments::default();
    let mut last = Ok(());
    for _ in 0..TO_SETTLE {
        moments.check_invariants(world);
        last = check_converged(world, &moments).await;
        if last.is_ok() {
            return;
        }
        world.runtime.sleep(Duration::from_secs(1)).await;
    }
    panic!("did not come to rest: {last:?}");
}

/// A pod that ends by itself never, with every kind of volume that comes from the API server.
fn with_volumes(world: &World) -> Value {
    let token = json!({"serviceAccountToken": {"path": "token"}});
    let volumes = [
        ("token", json!({"projected": {"sources": [token]}})),
        ("secret", json!({"secret": {"secretName": "s"}})),
        ("map", json!({"configMap": {"name": "m"}})),
    ];
    let mounts = volumes
        .clone()
        .map(|(name, _)| json!({"name": name, "mountPath": format!("/{name}")}));
    let volumes = volumes.map(|(name, mut volume)| {
        volume["name"] = json!(name);
        volume
    });
    json!({"metadata": {"name": "lasting", "labels": {PURPOSE: "volumes"}}, "spec": {
        "nodeName": world.node_name(), "automountServiceAccountToken": false, "volumes": volumes,
        "containers": [{"name": "main", "image": IMAGE, "command": Program::serving().command(), "volumeMounts": mounts}],
    }})
}
