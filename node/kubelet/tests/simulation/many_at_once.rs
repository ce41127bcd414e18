//! Pods that start together: a bounded number of sandboxes starts at once, and all come to run.

use crate::pods::IMAGE;
use crate::simulated_node::World;
use k8s_openapi::api::core::v1::Pod;
use machinery_runtime::Simulation;
use node_cri_model::Program;
use serde_json::{Value, json};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(900);
const PODS: usize = 60;
/// Turns of a machine of 64 processors, without the one that is kept for critical pods.
const AT_ONCE: usize = 31;

/// Runs the scenario of a seed.
pub(crate) fn run_seed(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let mut world = world.await;
        world.disable_faults();
        world.end_agent().await;
        for number in 0..PODS {
            let pod = pod(&world, &format!("pod-{number}"));
            world.create::<Pod>(pod).await.unwrap();
        }
        world.start_agent();
        let patience = world.runtime.monotonic() + PATIENCE;
        loop {
            let pods = world.pods().await;
            let running = pods.iter().filter(|pod| is_running(pod)).count();
            if running == PODS {
                break;
            }
            assert!(world.runtime.monotonic() < patience, "{running} run");
            world.runtime.sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(world.containerd.sandboxes_started_at_once(), AT_ONCE);
    });
}

fn pod(world: &World, name: &str) -> Value {
    let container = json!({"name": "main", "image": IMAGE, "command": Program::serving().command()});
    json!({"metadata": {"name": name}, "spec": {"nodeName": world.node_name(),
        "automountServiceAccountToken": false, "containers": [container]}})
}

fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Running")
}
