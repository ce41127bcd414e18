//! A sidecar whose turn to stop comes when the pod's time is up: it has two seconds more, as upstream's.

use crate::pods::IMAGE;
use crate::simulated_node::World;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use machinery_runtime::Simulation;
use node_cri_model::Program;
use serde_json::{Value, json};
use std::time::Duration;

/// Seconds in which the pod is to end; its main container uses them up.
const GRACE: i64 = 5;

pub(crate) fn run_seed(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        world.create::<Pod>(pod(&world)).await.unwrap();
        world.until_running("late", "", Duration::from_secs(300)).await;
        while !started(&world).await {
            world.runtime.sleep(Duration::from_secs(1)).await;
        }
        world.delete("late", Some(GRACE)).await;
        let patience = world.runtime.monotonic() + Duration::from_secs(300);
        let codes = loop {
            if let [Some(main), Some(sidecar)] = exit_codes(&world).await {
                break [main, sidecar];
            }
            assert!(world.runtime.monotonic() < patience, "it does not end");
            world.runtime.sleep(Duration::from_secs(1)).await;
        };
        assert_eq!(codes, [137, 0], "killed, and ended by itself");
    });
}

async fn statuses(world: &World) -> [Option<ContainerStatus>; 2] {
    let pods = world.pods().await.into_iter();
    let mut found = pods.filter(|pod| pod.metadata.name.as_deref() == Some("late"));
    let status = found.next().and_then(|pod| pod.status).unwrap_or_default();
    let first = |all: Option<Vec<ContainerStatus>>| all.into_iter().flatten().next();
    [
        first(status.container_statuses),
        first(status.init_container_statuses),
    ]
}

async fn started(world: &World) -> bool {
    let all = statuses(world).await;
    all.iter()
        .all(|status| status.as_ref().is_some_and(|own| own.started == Some(true)))
}

async fn exit_codes(world: &World) -> [Option<i32>; 2] {
    let code = |status: Option<ContainerStatus>| Some(status?.state?.terminated?.exit_code);
    statuses(world).await.map(code)
}

/// Its finalizer keeps it, so that its last status can be read.
fn pod(world: &World) -> Value {
    let container =
        |name: &str, program: Program| json!({"name": name, "image": IMAGE, "command": program.command()});
    let mut sidecar = container("sidecar", Program::serving());
    sidecar["restartPolicy"] = json!("Always");
    json!({"metadata": {"name": "late", "finalizers": ["example.com/hold"]}, "spec": {
        "nodeName": world.node_name(), "automountServiceAccountToken": false,
        "initContainers": [sidecar], "containers": [container("main", Program::default())]}})
}
