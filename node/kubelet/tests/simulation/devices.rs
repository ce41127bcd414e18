//! Pods that request devices of plugins, while plugins come and go and the agent is killed.

use crate::model_plugins::ModelPlugin;
use crate::pods::IMAGE;
use crate::simulated_node::World;
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use machinery_runtime::Simulation;
use node_cri_model::{Program, SeenContainer};
use node_plugin_api::device_plugin::messages::DevicePluginOptions;
use node_plugin_api::pod_resources::{self, GetPodResourcesRequest};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const FPGA: &str = "example.com/fpga";
const GPU: &str = "example.com/gpu";
/// The first of them by name, which a pod is given before its plugin of the others is asked.
const NIC: &str = "example.com/eth";
const PATIENCE: Duration = Duration::from_secs(120);
const A_WHILE: Duration = Duration::from_secs(20);

/// Pods keep their devices while agents are killed and plugins die, and give them back when they end.
pub(crate) fn run_pods(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let mut world = world.await;
        let options = DevicePluginOptions {
            pre_start_required: true,
            get_preferred_allocation_available: true,
        };
        let plugin = ModelPlugin::new(&world.runtime, GPU, options, &["a", "b", "c"]);
        register(&world, &plugin).await;
        until_numbers(&world, GPU, "3", "3").await;
        world
            .create::<Pod>(pod(&world, "one", &[(GPU, 2)]))
            .await
            .unwrap();
        let one = until_main_runs(&world, "one", "").await;
        assert_eq!(one.environment["DEVICES"], "b,c", "the plugin prefers them");
        assert_eq!(one.devices, ["/dev/host-b", "/dev/host-c"]);
        assert_eq!(*plugin.started.lock(), [["b", "c"]]);
        check_resources(&world, "one", &["b", "c"]).await;
        world
            .create::<Pod>(pod(&world, "many", &[(GPU, 2)]))
            .await
            .unwrap();
        let status = until_failed(&world, "many").await;
        assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
        assert_eq!(
            status.message.as_deref(),
            Some(
                "Pod was rejected: Allocate failed due to requested number of devices unavailable for \
                 example.com/gpu. Requested: 2, Available: 1, which is unexpected"
            )
        );

        // The agent is killed, and the container crashes meanwhile. It starts again once its plugin is there.
        world.end_agent().await;
        world.containerd.crash(&one.id, 1);
        world.start_agent();
        until_numbers(&world, GPU, "0", "0").await;
        world
            .create::<Pod>(pod(&world, "two", &[(GPU, 1)]))
            .await
            .unwrap();
        world.runtime.sleep(Duration::from_secs(5)).await;
        assert!(world.running("one").is_none() && world.running("two").is_none());
        register(&world, &plugin).await;
        let again = until_main_runs(&world, "one", &one.id).await;
        assert_eq!(again.environment["DEVICES"], "b,c");
        let two = until_main_runs(&world, "two", "").await;
        assert_eq!(two.environment["DEVICES"], "a");
        assert_eq!(*plugin.given.lock(), [vec!["b", "c"], vec!["a"]], "each once");

        // What a pod had is another's when it has ended.
        world.delete("one", None).await;
        until_gone(&world, "one").await;
        world
            .create::<Pod>(pod(&world, "three", &[(GPU, 2)]))
            .await
            .unwrap();
        let three = until_main_runs(&world, "three", "").await;
        assert_eq!(three.environment["DEVICES"], "b,c");
        check_disjoint(&world);
    });
}

/// The Node object shows what plugins list.
pub(crate) fn run_numbers(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        let plugin = ModelPlugin::new(&world.runtime, GPU, DevicePluginOptions::default(), &["a", "b"]);
        register(&world, &plugin).await;
        until_numbers(&world, GPU, "2", "2").await;
        world
            .create::<Pod>(pod(&world, "holder", &[(GPU, 1)]))
            .await
            .unwrap();
        let holder = until_main_runs(&world, "holder", "").await;
        plugin.set_health("b", false);
        until_numbers(&world, GPU, "2", "1").await;
        plugin.set_health("b", true);
        until_numbers(&world, GPU, "2", "2").await;
        plugin.set_lives(false);
        until_numbers(&world, GPU, "2", "0").await;
        // What runs goes on, and starts again with what it has.
        world.containerd.crash(&holder.id, 1);
        until_main_runs(&world, "holder", &holder.id).await;
        world
            .create::<Pod>(pod(&world, "late", &[(GPU, 1)]))
            .await
            .unwrap();
        let message = until_failed(&world, "late").await.message.unwrap();
        let words = "no healthy devices present; cannot allocate unhealthy devices example.com/gpu";
        assert!(message.contains(words), "{message}");
        world.runtime.sleep(Duration::from_secs(300)).await;
        until_numbers(&world, GPU, "0", "0").await;
        plugin.set_lives(true);
        register(&world, &plugin).await;
        until_numbers(&world, GPU, "2", "2").await;
    });
}

/// A plugin that answers nothing holds up the pods that request its devices, and those that request what such a pod requests,
/// too: they wait for it, and are not refused.
pub(crate) fn run_hanging(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        let options = DevicePluginOptions::default();
        let gpu = ModelPlugin::new(&world.runtime, GPU, options, &["a", "b"]);
        let nic = ModelPlugin::new(&world.runtime, NIC, options, &["x", "y"]);
        register(&world, &gpu).await;
        let fpga = ModelPlugin::new(&world.runtime, FPGA, options, &["p"]);
        register(&world, &nic).await;
        register(&world, &fpga).await;
        until_numbers(&world, GPU, "2", "2").await;
        until_numbers(&world, NIC, "2", "2").await;
        until_numbers(&world, FPGA, "1", "1").await;
        gpu.set_hangs(true);
        world
            .create::<Pod>(pod(&world, "stuck", &[(GPU, 1), (NIC, 1)]))
            .await
            .unwrap();
        world
            .create::<Pod>(pod(&world, "behind", &[(GPU, 1)]))
            .await
            .unwrap();
        world
            .create::<Pod>(pod(&world, "free", &[(FPGA, 1)]))
            .await
            .unwrap();
        let free = until_main_runs(&world, "free", "").await;
        assert_eq!(free.environment["DEVICES"], "p");
        world
            .create::<Pod>(pod(&world, "waits", &[(NIC, 2)]))
            .await
            .unwrap();
        world.delete("behind", Some(0)).await;
        until_gone(&world, "behind").await;
        let message = until_failed(&world, "stuck").await.message.unwrap();
        let words =
            "Allocate failed due to rpc error: code = DeadlineExceeded desc = context deadline exceeded";
        assert!(message.contains(words), "{message}");
        let waits = until_main_runs(&world, "waits", "").await;
        assert_eq!(waits.environment["DEVICES"], "x,y");
        gpu.set_hangs(false);
        world
            .create::<Pod>(pod(&world, "next", &[(GPU, 2)]))
            .await
            .unwrap();
        let next = until_main_runs(&world, "next", "").await;
        assert_eq!(next.environment["DEVICES"], "a,b", "they are free");
    });
}

/// A restart of the agent disturbs no pod whose devices have become ill meanwhile, as long as nothing starts with them.
pub(crate) fn run_ill(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let mut world = world.await;
        let plugin = ModelPlugin::new(
            &world.runtime,
            GPU,
            DevicePluginOptions::default(),
            &["a", "b", "c"],
        );
        register(&world, &plugin).await;
        until_numbers(&world, GPU, "3", "3").await;
        let mut ids = BTreeMap::new();
        for name in ["prepared", "job", "crashes"] {
            let mut pod = pod(&world, name, &[(GPU, 1)]);
            pod["spec"]["restartPolicy"] = match name {
                "job" => "Never".into(),
                _ => "Always".into(),
            };
            if name == "prepared" {
                let mut init = pod["spec"]["containers"][0].clone();
                init["name"] = "prepare".into();
                init["command"] = Program::ending(1, 0).command().into();
                pod["spec"]["initContainers"] = json!([init]);
            }
            world.create::<Pod>(pod).await.unwrap();
            world.runtime.sleep(A_WHILE).await;
            ids.insert(name, until_main_runs(&world, name, "").await.id);
        }
        world.end_agent().await;
        for id in ["a", "b", "c"] {
            plugin.set_health(id, false);
        }
        world.start_agent();
        register(&world, &plugin).await;
        until_numbers(&world, GPU, "3", "0").await;
        world.runtime.sleep(A_WHILE).await;
        for name in ["prepared", "job", "crashes"] {
            assert_eq!(world.running(name).as_ref(), Some(&ids[name]), "{name}");
        }
        world.containerd.crash(&ids["job"], 0);
        world.containerd.crash(&ids["crashes"], 1);
        let status = until_phase(&world, "crashes", "Failed").await;
        assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
        until_phase(&world, "job", "Succeeded").await;
        assert_eq!(world.running("prepared").as_ref(), Some(&ids["prepared"]));
    });
}

async fn register(world: &World, plugin: &Arc<ModelPlugin>) {
    world.sockets.register(&world.runtime, plugin).await.unwrap();
}

fn pod(world: &World, name: &str, devices: &[(&str, u32)]) -> Value {
    let limits = devices
        .iter()
        .map(|(resource, count)| ((*resource).to_owned(), json!(count.to_string())));
    let limits: serde_json::Map<String, Value> = limits.collect();
    json!({"metadata": {"name": name}, "spec": {
        "nodeName": world.node_name(),
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": IMAGE, "command": Program::serving().command(),
            "resources": {"limits": limits}}],
    }})
}

/// Waits until the Node shows so many devices, all and allocatable.
async fn until_numbers(world: &World, resource: &str, capacity: &str, allocatable: &str) {
    let until = world.runtime.monotonic() + PATIENCE;
    let nodes: kube::Api<Node> = kube::Api::all(world.client.kube().clone());
    loop {
        let status = nodes
            .get(world.node_name())
            .await
            .ok()
            .and_then(|node| node.status)
            .unwrap_or_default();
        let of = |list: Option<
            std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
        >| { list.and_then(|list| list.get(resource).map(|found| found.0.clone())) };
        let found = (of(status.capacity), of(status.allocatable));
        if found == (Some(capacity.to_owned()), Some(allocatable.to_owned())) {
            return;
        }
        let now = world.runtime.monotonic();
        assert!(
            now < until,
            "{resource}: {found:?}, not {capacity} and {allocatable}"
        );
        world.runtime.sleep(Duration::from_millis(500)).await;
    }
}

/// Waits until a container of a pod runs that is not this one.
async fn until_main_runs(world: &World, pod: &str, not: &str) -> SeenContainer {
    let id = world.until_running(pod, not, PATIENCE).await;
    let mut all = world.containerd.containers().into_iter();
    all.find(|found| found.id == id).unwrap()
}

async fn until_failed(world: &World, name: &str) -> PodStatus {
    until_phase(world, name, "Failed").await
}

async fn until_phase(world: &World, name: &str, phase: &str) -> PodStatus {
    let until = world.runtime.monotonic() + PATIENCE * 2;
    loop {
        let mut pods = world.pods().await.into_iter();
        let pod = pods.find(|pod| pod.metadata.name.as_deref() == Some(name));
        let status = pod.unwrap().status.unwrap();
        if status.phase.as_deref() == Some(phase) {
            return status;
        }
        assert!(
            world.runtime.monotonic() < until,
            "{name} does not become {phase}"
        );
        world.runtime.sleep(Duration::from_millis(500)).await;
    }
}

async fn until_gone(world: &World, name: &str) {
    let until = world.runtime.monotonic() + PATIENCE;
    while world
        .pods()
        .await
        .iter()
        .any(|pod| pod.metadata.name.as_deref() == Some(name))
    {
        assert!(world.runtime.monotonic() < until, "{name} does not go");
        world.runtime.sleep(A_WHILE / 40).await;
    }
}

/// Programs of the machine read which devices a pod has, and which there are.
async fn check_resources(world: &World, pod: &str, expected: &[&str]) {
    let agent = world.sockets.service("pod-resources/kubelet.sock").unwrap();
    let asked = |name: &str| GetPodResourcesRequest {
        pod_name: name.to_owned(),
        pod_namespace: "default".to_owned(),
    };
    let found = pod_resources::get(&agent, asked(pod)).await.unwrap();
    let found = found.pod_resources.unwrap();
    let devices = &found.containers[0].devices;
    assert!(devices.iter().all(|own| own.resource_name == GPU));
    let ids = devices.iter().flat_map(|own| &own.device_ids);
    assert_eq!(ids.collect::<Vec<_>>(), expected);
    let listed = pod_resources::list(&agent).await.unwrap();
    assert_eq!(listed.pod_resources, [found]);
    let all = pod_resources::allocatable(&agent).await.unwrap();
    assert_eq!(all.devices.len(), 3);
    let missing = pod_resources::get(&agent, asked("absent")).await.unwrap_err();
    assert_eq!(missing.message(), "pod absent in namespace default not found");
}

/// No two running containers have a device in common.
fn check_disjoint(world: &World) {
    let mut seen = BTreeSet::new();
    for found in world
        .containerd
        .containers()
        .into_iter()
        .filter(|found| found.runs)
    {
        for device in found.devices {
            assert!(seen.insert(device.clone()), "{device} is two containers'");
        }
    }
}
