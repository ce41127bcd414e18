//! Static pods: they run without an API server, show in it once it is there, and go with their files.

use crate::pods::IMAGE;
use crate::simulated_node::World;
use k8s_openapi::api::core::v1::Pod;
use machinery_runtime::Simulation;
use node_cri_model::Program;
use serde_json::json;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(300);
const NAME: &str = "web-n";

/// Runs the scenario of a seed.
pub(crate) fn run_seed(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let mut world = world.await;
        world.end_agent().await;
        world.take_api_away();
        write(&world, "first");
        world.start_agent();
        let first = world.until_running(NAME, "", PATIENCE).await;
        world.disable_faults();
        let mirror = until(&world, |pods| pods.iter().find(|pod| is_running(pod)).cloned()).await;
        assert_eq!(mirror.metadata.name.as_deref(), Some(NAME));
        assert!(
            mirror
                .metadata
                .annotations
                .unwrap()
                .contains_key("kubernetes.io/config.mirror")
        );
        let status = mirror.status.unwrap();
        assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
        assert_eq!(status.container_statuses.unwrap().len(), 1);
        // A client deletes its mirror: it is made again, and the pod runs on.
        world.delete(NAME, Some(0)).await;
        let again = until(&world, |pods| pods.iter().find(|pod| is_running(pod)).cloned()).await;
        assert_ne!(again.metadata.uid, mirror.metadata.uid);
        assert_eq!(world.running(NAME).as_deref(), Some(first.as_str()));
        // The next agent finds it running.
        world.end_agent().await;
        world.start_agent();
        world.runtime.sleep(Duration::from_secs(90)).await;
        assert_eq!(world.running(NAME).as_deref(), Some(first.as_str()));
        write(&world, "second");
        world.until_running(NAME, &first, PATIENCE).await;
        let changed = until(&world, |pods| {
            let changed =
                |pod: &&Pod| is_running(pod) && pod.metadata.labels.as_ref().unwrap()["version"] == "second";
            pods.iter().find(changed).cloned()
        });
        changed.await;
        std::fs::remove_dir_all(world.manifests()).unwrap();
        until(&world, |pods| pods.is_empty().then(Pod::default)).await;
        assert_eq!(world.running(NAME), None);
        world.runtime.sleep(Duration::from_secs(90)).await;
        assert!(world.containerd.sandboxes().is_empty(), "nothing is left of it");
    });
}

fn write(world: &World, version: &str) {
    let container = json!({"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
        "command": Program::serving().command()});
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "labels": {"version": version}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}});
    std::fs::create_dir_all(world.manifests()).unwrap();
    std::fs::write(world.manifests().join("web.json"), pod.to_string()).unwrap();
}

fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}

async fn until(world: &World, find: impl Fn(&[Pod]) -> Option<Pod>) -> Pod {
    let patience = world.runtime.monotonic() + PATIENCE;
    loop {
        let pods = world.pods().await;
        if let Some(found) = find(&pods) {
            return found;
        }
        assert!(world.runtime.monotonic() < patience, "{pods:?}");
        world.runtime.sleep(Duration::from_millis(500)).await;
    }
}
