//! A pod whose objects are deleted while it runs, and one that names a volume that none of its containers mounts.

use crate::pods::IMAGE;
use crate::simulated_node::World;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use machinery_client::{ApiResource, DeleteOptions, Patch};
use machinery_meta::ObjectKey;
use machinery_runtime::Simulation;
use node_cri_model::Program;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(300);

/// Runs the scenario of a seed.
pub(crate) fn run_seed(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        create_map(&world, "hashed").await;
        create_map(&world, "settings").await;
        world.create::<Pod>(pod(&world)).await.unwrap();
        let first = world.until_running("lasting", "", PATIENCE).await;
        let key = ObjectKey::new("default", "hashed");
        let maps = ApiResource::of::<ConfigMap>();
        world
            .client
            .delete(&maps, &key, &DeleteOptions::default())
            .await
            .unwrap();
        until_event(
            &world,
            "MountVolume.SetUp failed for volume \"hashed\" : configmap \"hashed\" not found",
        )
        .await;
        world.containerd.crash(&first, 1);
        world.until_running("lasting", &first, PATIENCE).await;
        let changed = json!({"data": {"key": "new"}});
        let key = ObjectKey::new("default", "settings");
        world
            .client
            .patch(&maps, &key, "", &Patch::Merge, &changed)
            .await
            .unwrap();
        until_shown(&world, "settings", "new").await;
        until_shown(&world, "hashed", "old").await;
    });
}

async fn create_map(world: &World, name: &str) {
    let map = json!({"metadata": {"name": name}, "data": {"key": "old"}});
    world.create::<ConfigMap>(map).await.unwrap();
}

fn pod(world: &World) -> Value {
    let volume = |name: &str| json!({"name": name, "configMap": {"name": name}});
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
    let volumes = ["hashed", "settings", "never-there"].map(volume);
    let mounts = ["hashed", "settings"].map(mount);
    json!({"metadata": {"name": "lasting"}, "spec": {
        "nodeName": world.node_name(), "automountServiceAccountToken": false, "volumes": volumes,
        "containers": [{"name": "main", "image": IMAGE, "command": Program::serving().command(), "volumeMounts": mounts}],
    }})
}

/// Waits until a volume of the pod shows a value.
async fn until_shown(world: &World, volume: &str, value: &str) {
    let pods = world.pods().await;
    let uid = pods[0].metadata.uid.clone().unwrap();
    let below = format!("agent/pods/{uid}/volumes/kubernetes.io~configmap/{volume}/key");
    let file: PathBuf = world.data_dir().join(below);
    let until = world.runtime.monotonic() + PATIENCE;
    while std::fs::read_to_string(&file).unwrap() != value {
        assert!(world.runtime.monotonic() < until, "{volume} is not {value}");
        world.runtime.sleep(Duration::from_secs(1)).await;
    }
}

async fn until_event(world: &World, message: &str) {
    let events: kube::Api<Event> = kube::Api::namespaced(world.client.kube().clone(), "default");
    let until = world.runtime.monotonic() + PATIENCE;
    loop {
        let all = events.list(&kube::api::ListParams::default()).await.unwrap();
        if all
            .into_iter()
            .any(|event| event.message.as_deref() == Some(message))
        {
            return;
        }
        assert!(world.runtime.monotonic() < until, "no event {message}");
        world.runtime.sleep(Duration::from_secs(1)).await;
    }
}
