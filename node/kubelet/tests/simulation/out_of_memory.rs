//! A container that the kernel kills for memory: the runtime reports its end first, and the reason later.

use crate::pods::IMAGE;
use crate::simulated_node::World;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use machinery_runtime::Simulation;
use node_cri_model::Program;
use serde_json::json;
use std::time::Duration;

/// Runs the scenario of a seed.
pub(crate) fn run_seed(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        let container = json!({"name": "main", "image": IMAGE, "command": Program::serving().command()});
        let pod = json!({"metadata": {"name": "greedy"}, "spec": {"nodeName": world.node_name(),
            "automountServiceAccountToken": false, "restartPolicy": "Never", "containers": [container]}});
        world.create::<Pod>(pod).await.unwrap();
        let id = world.until_running("greedy", "", Duration::from_secs(300)).await;
        world.containerd.run_out_of_memory(&id);
        let patience = world.runtime.monotonic() + Duration::from_secs(300);
        let end = loop {
            if let Some(end) = end(&world).await {
                break end;
            }
            assert!(world.runtime.monotonic() < patience, "its end is not told");
            world.runtime.sleep(Duration::from_millis(100)).await;
        };
        assert_eq!((end.exit_code, end.reason.as_deref()), (137, Some("OOMKilled")));
    });
}

async fn end(world: &World) -> Option<ContainerStateTerminated> {
    let pod = world.pods().await.into_iter().next()?;
    let statuses = pod.status?.container_statuses?;
    statuses.into_iter().next()?.state?.terminated
}
