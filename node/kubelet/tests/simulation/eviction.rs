//! A node that runs short: what it takes back first, the pods it evicts, their statuses, and its own.

use crate::pods::IMAGE;
use crate::simulated_node::World;
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodStatus};
use kube::api::{Api, ListParams};
use machinery_runtime::Simulation;
use node_cri_model::Program;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;

const MI: u64 = 1 << 20;
/// Room on the disk that is too little, and enough.
const SHORT: u64 = 1 << 30;
const ENOUGH: u64 = 500 << 30;
/// An unused image.
const IDLE: &str = "idle.test/image:1";
const PATIENCE: Duration = Duration::from_secs(300);

/// Three pods: one below its request, one above it, one that is critical and above all.
pub(crate) fn run_memory(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        for (name, memory, class, used) in [
            ("below", "1Gi", "", 900),
            ("above", "100Mi", "", 700),
            ("critical", "100Mi", "system-node-critical", 5000),
        ] {
            world
                .create::<Pod>(pod(&world, name, memory, class))
                .await
                .unwrap();
            world.until_running(name, "", PATIENCE).await;
            let status = world.pods().await.into_iter();
            let uid = status.filter(|own| own.metadata.name.as_deref() == Some(name));
            let uid: Vec<_> = uid.filter_map(|own| own.metadata.uid).collect();
            world.groups.set_used(&format!("/pod{}", uid[0]), used * MI);
        }
        world.vitals.memory_bytes.store(50 * MI, Ordering::Relaxed);
        let above = until(&world, "above", |status| {
            status.phase.as_deref() == Some("Failed")
        })
        .await;
        let words = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. ";
        assert_eq!(above.reason.as_deref(), Some("Evicted"));
        assert_eq!(above.message.as_deref(), Some(words));
        let conditions = above.conditions.unwrap();
        let disrupted = conditions.iter().find(|own| own.type_ == "DisruptionTarget");
        let disrupted = disrupted.unwrap();
        assert_eq!(disrupted.reason.as_deref(), Some("TerminationByKubelet"));
        assert_eq!(disrupted.message.as_deref(), Some(words));
        assert_eq!(phase(&world, "below").await, "Running", "one at a time");
        assert_eq!(condition(&world, "MemoryPressure").await, "True");
        // The next that is new is not taken in, unless it requests something.
        world.create::<Pod>(pod(&world, "late", "", "")).await.unwrap();
        let late = until(&world, "late", |status| status.phase.as_deref() == Some("Failed")).await;
        assert_eq!(
            late.message.as_deref(),
            Some("Pod was rejected: The node had condition: [MemoryPressure]. ")
        );
        until(&world, "below", |status| {
            status.reason.as_deref() == Some("Evicted")
        })
        .await;
        world.runtime.sleep(Duration::from_secs(120)).await;
        assert_eq!(phase(&world, "critical").await, "Running");
        let logs: Vec<String> = logs(&world).collect();
        let of_critical = logs.iter().all(|folder| folder.contains("_critical_"));
        assert!(
            of_critical && logs.len() == 1,
            "the disk is not short, and logs of evicted pods go: {logs:?}"
        );
        world.vitals.memory_bytes.store(500 * MI, Ordering::Relaxed);
        world.runtime.sleep(Duration::from_secs(330)).await;
        assert_eq!(condition(&world, "MemoryPressure").await, "False");
        let told = events(&world).await;
        for (reason, message) in [
            ("EvictionThresholdMet", "Attempting to reclaim memory"),
            ("Evicted", words),
            (
                "NodeHasInsufficientMemory",
                "Node n status is now: NodeHasInsufficientMemory",
            ),
        ] {
            let is_told = |(own, text): &(String, String)| own == reason && text == message;
            assert!(told.iter().any(is_told), "{reason}: {told:?}");
        }
    });
}

/// Room on the disk comes back once an unused image is removed; then it does not, and a pod ends.
pub(crate) fn run_disk(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        world.create::<Pod>(pod(&world, "main", "", "")).await.unwrap();
        world.until_running("main", "", PATIENCE).await;
        world.containerd.add_image(IDLE);
        // Images are not removed before their time, which begins when the collection sees them first.
        world.runtime.sleep(Duration::from_secs(450)).await;
        let images = world.containerd.image_names();
        let is_there = move |name: &str| images().iter().any(|own| own == name);
        let has_idle = is_there.clone();
        assert!(is_there(IDLE), "there is room");
        let in_its_way = move || if has_idle(IDLE) { SHORT } else { ENOUGH };
        world.vitals.set_disk(in_its_way);
        let patience = world.runtime.monotonic() + PATIENCE;
        while is_there(IDLE) {
            assert!(world.runtime.monotonic() < patience, "the image stays");
            world.runtime.sleep(Duration::from_millis(100)).await;
        }
        assert!(is_there(IMAGE), "it is in use");
        world.runtime.sleep(Duration::from_secs(60)).await;
        assert_eq!(phase(&world, "main").await, "Running", "an image was enough");
        assert_eq!(condition(&world, "DiskPressure").await, "True");
        assert_eq!(logs(&world).count(), 1, "the pod prints");
        world.vitals.set_disk(|| SHORT);
        let status = until(&world, "main", |status| status.phase.as_deref() == Some("Failed"));
        let message = status.await.message.unwrap();
        let words = "The node was low on resource: ephemeral-storage. Threshold quantity: ";
        assert!(message.starts_with(words), "{message}");
        let patience = world.runtime.monotonic() + PATIENCE;
        while logs(&world).next().is_some() {
            assert!(world.runtime.monotonic() < patience, "its logs stay");
            world.runtime.sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(phase(&world, "main").await, "Failed", "it is not deleted");
    });
}

/// Folders of logs on the node.
fn logs(world: &World) -> impl Iterator<Item = String> + use<> {
    let found = std::fs::read_dir(world.data_dir().join("agent/logs/pods"));
    let names = found.into_iter().flatten().flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn pod(world: &World, name: &str, memory: &str, class: &str) -> Value {
    let requests = match memory {
        "" => json!({}),
        amount => json!({"memory": amount}),
    };
    let container = json!({"name": "main", "image": IMAGE, "command": Program::serving().command(),
        "resources": {"requests": requests}});
    json!({"metadata": {"name": name}, "spec": {"nodeName": world.node_name(), "priorityClassName": class,
        "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1, "containers": [container]}})
}

async fn status(world: &World, name: &str) -> PodStatus {
    let pods = world.pods().await.into_iter();
    let mut named = pods.filter(|pod| pod.metadata.name.as_deref() == Some(name));
    named.next().and_then(|pod| pod.status).unwrap_or_default()
}

async fn phase(world: &World, name: &str) -> String {
    status(world, name).await.phase.unwrap_or_default()
}

async fn until(world: &World, name: &str, is_so: impl Fn(&PodStatus) -> bool) -> PodStatus {
    let patience = world.runtime.monotonic() + PATIENCE;
    loop {
        let now = status(world, name).await;
        if is_so(&now) {
            return now;
        }
        assert!(world.runtime.monotonic() < patience, "{name} is {now:?}");
        world.runtime.sleep(Duration::from_millis(100)).await;
    }
}

/// Status of a condition of the node, where the node has it by now.
async fn condition(world: &World, kind: &str) -> String {
    let nodes: Api<Node> = Api::all(world.client.kube().clone());
    let node = nodes.get(world.node_name()).await.unwrap();
    let conditions = node.status.unwrap().conditions.unwrap().into_iter();
    let mut of_kind = conditions.filter(|own| own.type_ == kind);
    of_kind.next().unwrap().status
}

async fn events(world: &World) -> Vec<(String, String)> {
    let all: Api<Event> = Api::all(world.client.kube().clone());
    let events = all.list(&ListParams::default()).await.unwrap().items.into_iter();
    let told = events.map(|own| (own.reason.unwrap_or_default(), own.message.unwrap_or_default()));
    told.collect()
}
