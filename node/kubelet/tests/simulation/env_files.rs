//! A container whose variables another container of the pod has written into a volume.

use crate::pods::IMAGE;
use crate::simulated_node::World;
use k8s_openapi::api::core::v1::Pod;
use machinery_runtime::Simulation;
use node_cri_model::{Program, SeenContainer};
use serde_json::{Value, json};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// Runs the scenario of a seed: one pod whose file has all that is wanted, and others whose file lacks something.
pub(crate) fn run_seed(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        for (name, content) in [
            ("whole", "# made by init\nKEY='a b' # why\nLINES='1\n2'\n"),
            ("lacking", "OTHER='1'\n"),
            ("broken", "KEY=unquoted\n"),
        ] {
            world.create::<Pod>(pod(&world, name, content)).await.unwrap();
        }
        let main = until_main_runs(&world, "whole").await;
        let value = |name: &str| main.environment.get(name).map(String::as_str);
        assert_eq!(
            ["KEY", "COPY", "LINES", "MISSING"].map(value),
            [Some("a b"), Some("<a b>"), Some("1\n2"), None]
        );
        let (reason, message) = until_waiting(&world, "lacking").await;
        assert_eq!(reason, "CreateContainerConfigError");
        let told = message.strip_prefix("environment variable key \"KEY\" not found in file \"");
        let file = told.unwrap_or_else(|| panic!("{message}"));
        assert!(
            file.ends_with("/volumes/kubernetes.io~empty-dir/shared/app.env\""),
            "{message}"
        );
        let waiting = until_waiting(&world, "broken").await;
        let words = "couldn't parse env file".to_owned();
        assert_eq!(waiting, ("CreateContainerConfigError".to_owned(), words));
    });
}

fn pod(world: &World, name: &str, content: &str) -> Value {
    let writer = Program {
        writes: Some(("/shared/app.env".to_owned(), content.to_owned())),
        ..Program::ending(1, 0)
    };
    let from = |key: &str, optional: bool| {
        let selector = json!({"volumeName": "shared", "path": "app.env", "key": key, "optional": optional});
        json!({"name": key, "valueFrom": {"fileKeyRef": selector}})
    };
    let env = [
        from("KEY", false),
        json!({"name": "COPY", "value": "<$(KEY)>"}),
        from("LINES", true),
        from("MISSING", true),
    ];
    json!({"metadata": {"name": name}, "spec": {
        "nodeName": world.node_name(),
        "automountServiceAccountToken": false,
        "volumes": [{"name": "shared", "emptyDir": {}}],
        "initContainers": [{"name": "writer", "image": IMAGE, "command": writer.command(),
            "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}],
        "containers": [{"name": "main", "image": IMAGE, "command": Program::serving().command(), "env": env}],
    }})
}

async fn until_main_runs(world: &World, pod: &str) -> SeenContainer {
    let until = world.runtime.monotonic() + PATIENCE;
    loop {
        let mut containers = world.containerd.containers().into_iter();
        let is_it = |own: &SeenContainer| {
            let label = |name: &str| own.labels[&format!("io.kubernetes.{name}")].as_str();
            own.runs && label("pod.name") == pod && label("container.name") == "main"
        };
        if let Some(found) = containers.find(is_it) {
            return found;
        }
        assert!(world.runtime.monotonic() < until, "{pod} does not run");
        world.runtime.sleep(Duration::from_millis(500)).await;
    }
}

/// The reason and message with which the main container waits.
async fn until_waiting(world: &World, name: &str) -> (String, String) {
    let until = world.runtime.monotonic() + PATIENCE;
    loop {
        let mut pods = world.pods().await.into_iter();
        let pod = pods.find(|pod| pod.metadata.name.as_deref() == Some(name));
        let statuses = pod.unwrap().status.unwrap().container_statuses;
        let state = statuses.into_iter().flatten().find_map(|status| status.state);
        let waiting = state.and_then(|state| state.waiting).unwrap_or_default();
        if let (Some(reason), Some(message)) = (waiting.reason, waiting.message) {
            return (reason, message);
        }
        assert!(world.runtime.monotonic() < until, "{name} waits without a reason");
        world.runtime.sleep(Duration::from_millis(500)).await;
    }
}
