//! Pods whose stored state an agent cannot decode: they run on across its restart, and end when they are deleted.

use crate::pods::pod;
use crate::simulated_node::World;
use bytes::Bytes;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use machinery_runtime::Simulation;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Longest time until a pod runs, or has ended.
const PATIENCE: Duration = Duration::from_secs(120);
/// Workers have come to rest and saved their pods by then.
const A_WHILE: Duration = Duration::from_secs(20);
/// Time in which the agent looks twice for what belongs to no pod.
const TWO_LOOKS: Duration = Duration::from_secs(150);

const ANNOTATION: &str = r#""unread":"12345678""#;
/// The same without a text: a pod that has it cannot be decoded.
const GARBLED: &str = r#""unread":  12345678"#;

/// Garbling of the answers to an agent.
#[derive(Debug, Default)]
pub(crate) struct Garbling {
    /// It is on.
    pub(crate) is_on: AtomicBool,
    /// Number of patches of pods that the agent has sent.
    patches: AtomicUsize,
}

/// A client whose answers are garbled wherever [`ANNOTATION`] stands, while that is on.
pub(crate) fn garbled(client: kube::Client, garbling: Arc<Garbling>) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, garbling) = (client.clone(), garbling.clone());
        async move {
            if request.method() == http::Method::PATCH && request.uri().path().contains("/pods/") {
                garbling.patches.fetch_add(1, Ordering::Relaxed);
            }
            let answer = client.send(request).await?;
            let garble = move |data: Bytes| match garbling.is_on.load(Ordering::Relaxed) {
                true => garble(data),
                false => data,
            };
            Ok::<_, kube::Error>(answer.map(|body| body.map_frame(move |frame| frame.map_data(&garble))))
        }
    });
    kube::Client::new(service, "default")
}

fn garble(data: Bytes) -> Bytes {
    match std::str::from_utf8(&data) {
        Ok(text) if text.contains(ANNOTATION) => text.replace(ANNOTATION, GARBLED).into(),
        _ => data,
    }
}

/// Runs the scenario of a seed.
pub(crate) fn run_seed(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let mut world = world.await;
        for name in ["saved", "unsaved"] {
            let mut pod = pod(&world, name, "stubborn");
            pod["metadata"]["annotations"] = json!({"unread": "12345678"});
            world.create::<Pod>(pod).await.unwrap();
        }
        let saved = world.until_running("saved", "", PATIENCE).await;
        let unsaved = world.until_running("unsaved", "", PATIENCE).await;
        world.runtime.sleep(A_WHILE).await;
        world.end_agent().await;
        let files = saved_files(world.data_dir());
        let of = |name: &str| {
            let name = format!("\"name\":\"{name}\"");
            let mut found = files.iter();
            let found = found.find(|file| std::fs::read_to_string(file).unwrap().contains(&name));
            found.expect("it is saved").clone()
        };
        assert!(of("saved").try_exists().unwrap());
        std::fs::remove_file(of("unsaved")).unwrap();
        world.garbling.is_on.store(true, Ordering::Relaxed);
        world.start_agent();
        world.runtime.sleep(TWO_LOOKS).await;
        assert_eq!(world.running("saved").as_ref(), Some(&saved));
        assert_eq!(world.running("unsaved"), Some(unsaved));
        world.containerd.crash(&saved, 1);
        world.until_running("saved", &saved, PATIENCE).await;
        // The first is known by what was saved, of the other no more than its name.
        for name in ["saved", "unsaved"] {
            world.delete(name, Some(2)).await;
        }
        world.runtime.sleep(PATIENCE).await;
        assert_eq!(world.pods().await, []);
        assert_eq!(world.containerd.containers().len(), 0);
    });
}

/// A mirror that cannot be decoded is written when the static pod's status changes, and once then.
pub(crate) fn run_mirror(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        let mut pod = pod(&world, "web", "stubborn");
        (pod["apiVersion"], pod["kind"]) = ("v1".into(), "Pod".into());
        pod["metadata"]["annotations"] = json!({"unread": "12345678"});
        std::fs::create_dir_all(world.manifests()).unwrap();
        std::fs::write(world.manifests().join("web.json"), pod.to_string()).unwrap();
        let first = world.until_running("web-n", "", PATIENCE).await;
        world.runtime.sleep(A_WHILE).await;
        world.garbling.is_on.store(true, Ordering::Relaxed);
        let patches = || world.garbling.patches.load(Ordering::Relaxed);
        let before = patches();
        world.containerd.crash(&first, 1);
        world.until_running("web-n", &first, PATIENCE).await;
        world.runtime.sleep(A_WHILE).await;
        let written = patches();
        assert!(written > before);
        world.runtime.sleep(TWO_LOOKS).await;
        assert_eq!(patches(), written);
    });
}

/// The saved pods of the node.
fn saved_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(saved_files(&path)),
            false if path.ends_with("pod.json") => found.push(path),
            false => {}
        }
    }
    found
}
