//! Pods with claims of devices, while drivers come, hang and go and the agent is killed.

use crate::model_dra::ModelDra;
use crate::pods::IMAGE;
use crate::simulated_node::World;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use machinery_runtime::Simulation;
use node_cri_model::{FaultProfile, Program};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

const DRIVER: &str = "dongles.example";
const PATIENCE: Duration = Duration::from_secs(300);
const CLAIMS: [&str; 3] = ["a", "b", "c"];

/// A claim is prepared before its pods start, once, and taken back after the last, whichever process dies meanwhile.
pub(crate) fn run_life(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let mut world = world.await;
        let driver = ModelDra::new(&world.runtime, DRIVER, &world.cdi());
        create_slice(&world).await;
        create_claim(&world, "a").await;
        create_claim(&world, "b").await;
        create_pod(&world, "first", &["a", "b"]).await;
        let failed = "Failed to prepare dynamic resources: prepare dynamic resources: ";
        until_event(&world, &format!("{failed}pod first (")).await;
        reserve(&world, "first", &["a", "b"]).await;
        until_event(&world, &format!("{failed}DRA driver {DRIVER} is not registered")).await;
        driver.start(&world.sockets);
        let first = world.until_running("first", "", PATIENCE).await;
        assert_eq!(
            *driver.calls.lock(),
            [("prepare", vec!["a".to_owned(), "b".to_owned()])]
        );
        let seen = world.containerd.containers();
        let seen = seen.iter().find(|own| own.id == first).unwrap();
        assert_eq!(seen.devices, ["/dev/null", "/dev/null"]);
        assert!(seen.environment.contains_key("CLAIM_A") && seen.environment.contains_key("CLAIM_B"));
        create_pod(&world, "second", &["a"]).await;
        reserve(&world, "second", &["a"]).await;
        world.until_running("second", "", PATIENCE).await;
        assert_eq!(driver.count("prepare", "a"), 1, "for all its pods");

        // The agent is killed: the next one takes from a pod that went meanwhile, and containers start again without the driver.
        world.end_agent().await;
        world.delete("first", Some(0)).await;
        driver.stop(&world.sockets);
        world.start_agent();
        let second = world.running("second").unwrap();
        world.containerd.crash(&second, 1);
        world.until_running("second", &second, PATIENCE).await;
        world.runtime.sleep(Duration::from_secs(60)).await;
        assert_eq!(driver.count("unprepare", "b"), 0, "its driver is not there");
        driver.start(&world.sockets);
        until(&world, "the claim of the pod that went is taken back", || {
            driver.count("unprepare", "b") > 0
        })
        .await;
        assert_eq!(
            (driver.count("unprepare", "a"), driver.count("prepare", "a")),
            (0, 1)
        );

        // A pod whose driver does not take back ends when it does.
        driver.set_refuses(true);
        world.delete("second", None).await;
        world.runtime.sleep(Duration::from_secs(60)).await;
        assert!(driver.count("unprepare", "a") > 1 && exists(&world, "second").await);
        driver.set_refuses(false);
        until_gone(&world, "second").await;
        assert!(driver.prepared().is_empty());
        // Slices of a driver that stays away go, too.
        create_slice(&world).await;
        driver.stop(&world.sockets);
        until_no_slice(&world).await;
    });
}

/// A driver that answers nothing holds up its pods alone, and they can end.
pub(crate) fn run_hanging(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        let driver = ModelDra::new(&world.runtime, DRIVER, &world.cdi());
        driver.start(&world.sockets);
        for claim in ["a", "b"] {
            create_claim(&world, claim).await;
        }
        driver.set_hangs(true);
        create_pod(&world, "stuck", &["a"]).await;
        reserve(&world, "stuck", &["a"]).await;
        until(&world, "the driver hangs", || driver.count("prepare", "a") == 1).await;
        driver.set_hangs(false);
        create_pod(&world, "free", &["b"]).await;
        reserve(&world, "free", &["b"]).await;
        world.until_running("free", "", Duration::from_secs(30)).await;
        assert!(world.running("stuck").is_none());
        // It is deleted while its driver is called, which may have done something.
        world.delete("stuck", None).await;
        until_gone(&world, "stuck").await;
        assert_eq!(driver.count("unprepare", "a"), 1);
        world.delete("free", None).await;
        until_gone(&world, "free").await;
        assert!(driver.prepared().is_empty());
    });
}

/// A pod that has exited is over once its claims are taken back; all else that it holds is given back before.
pub(crate) fn run_exit(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        let driver = ModelDra::new(&world.runtime, DRIVER, &world.cdi());
        driver.start(&world.sockets);
        create_claim(&world, "a").await;
        let mut job = pod(&world, "job", &["a"]);
        job["spec"]["restartPolicy"] = "Never".into();
        // Of 64 processors.
        let cpus = json!({"cpu": "50"});
        job["spec"]["containers"][0]["resources"]["requests"] = cpus.clone();
        world.create::<Pod>(job).await.unwrap();
        reserve(&world, "job", &["a"]).await;
        let id = world.until_running("job", "", PATIENCE).await;
        until_phase(&world, "job", "Running").await;
        driver.set_hangs(true);
        world.containerd.crash(&id, 0);
        until(&world, "its claim is being taken back", || {
            driver.count("unprepare", "a") > 0
        })
        .await;
        let mut next = pod(&world, "next", &[]);
        next["spec"]["containers"][0]["resources"]["requests"] = cpus;
        world.create::<Pod>(next).await.unwrap();
        world.until_running("next", "", PATIENCE).await;
        for _ in 0..120 {
            assert_eq!(phase(&world, "job").await, "Running");
            world.runtime.sleep(Duration::from_millis(500)).await;
        }
        driver.set_hangs(false);
        until_phase(&world, "job", "Succeeded").await;
        let record = std::fs::read_to_string(world.data_dir().join("agent/dra_manager_state"));
        assert!(
            !record.unwrap().contains("ClaimUID"),
            "it is over before its claim"
        );
    });
}

/// A container that cannot be killed keeps its devices, also where its pod's object is gone.
pub(crate) fn run_survivor(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        let driver = ModelDra::new(&world.runtime, DRIVER, &world.cdi());
        driver.start(&world.sockets);
        create_claim(&world, "a").await;
        create_pod(&world, "main", &["a"]).await;
        reserve(&world, "main", &["a"]).await;
        world.until_running("main", "", PATIENCE).await;
        world.containerd.set_weather(FaultProfile {
            fail_one_in: 1,
            ..FaultProfile::none()
        });
        let sandbox = world.containerd.sandboxes().remove(0).id;
        world.containerd.crash(&sandbox, 137);
        world.delete("main", Some(0)).await;
        for _ in 0..120 {
            check_devices(&world, &driver);
            world.runtime.sleep(Duration::from_millis(500)).await;
        }
        assert!(world.running("main").is_some());
        world.containerd.set_weather(FaultProfile::none());
        until(&world, "the claim is taken back", || driver.prepared().is_empty()).await;
    });
}

/// Anything happens; no container runs without its devices, and in the end nothing is prepared.
pub(crate) fn run_storm(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let mut world = world.await;
        let driver = ModelDra::new(&world.runtime, DRIVER, &world.cdi());
        driver.start(&world.sockets);
        for claim in CLAIMS {
            create_claim(&world, claim).await;
        }
        world.break_things();
        let mut pods: Vec<String> = Vec::new();
        for step in 0..60 {
            match world.dice(12) {
                0..=3 if pods.len() < 8 => {
                    let name = format!("p{step}");
                    let claims = [CLAIMS[world.dice(3) as usize], CLAIMS[world.dice(3) as usize]];
                    let claims: BTreeSet<&str> = claims.into();
                    let claims: Vec<&str> = claims.into_iter().collect();
                    create_pod(&world, &name, &claims).await;
                    reserve(&world, &name, &claims).await;
                    pods.push(name);
                }
                4..=6 => {
                    if let Some(name) = world.pick(pods.clone()) {
                        let grace = Some(0).filter(|_| world.dice(3) == 0);
                        world.delete(&name, grace).await;
                        pods.retain(|own| *own != name);
                    }
                }
                7 => {
                    world.end_agent().await;
                    world.start_agent();
                }
                8 => driver.stop(&world.sockets),
                9 => driver.start(&world.sockets),
                10 => driver.set_hangs(world.dice(2) == 0),
                _ => driver.set_refuses(world.dice(2) == 0),
            }
            for _ in 0..world.dice(20) {
                world.runtime.sleep(Duration::from_millis(500)).await;
                check_devices(&world, &driver);
            }
        }
        world.disable_faults();
        driver.set_hangs(false);
        driver.set_refuses(false);
        driver.start(&world.sockets);
        for name in &pods {
            world.until_running(name, "", PATIENCE).await;
        }
        check_devices(&world, &driver);
        for name in pods {
            world.delete(&name, None).await;
        }
        until(&world, "nothing is prepared", || driver.prepared().is_empty()).await;
        let record = world.data_dir().join("agent/dra_manager_state");
        // A run that made no pod has written nothing.
        until(&world, "nothing is written down", || {
            let text = std::fs::read_to_string(&record);
            text.map_or_else(
                |error| error.kind() == ErrorKind::NotFound,
                |text| !text.contains("ClaimUID"),
            )
        })
        .await;
    });
}

/// Each container that runs has its devices, and its driver has not taken them back.
fn check_devices(world: &World, driver: &Arc<ModelDra>) {
    let prepared = driver.prepared();
    for container in world.containerd.containers().into_iter().filter(|own| own.runs) {
        let uids: Vec<&String> = container
            .environment
            .iter()
            .filter(|(name, _)| name.starts_with("CLAIM_"))
            .map(|(_, uid)| uid)
            .collect();
        assert!(!uids.is_empty(), "{container:?} runs without devices");
        for uid in uids {
            assert!(
                prepared.contains(uid),
                "{container:?} runs with devices that were taken back"
            );
        }
    }
}

async fn create_claim(world: &World, name: &str) {
    let api: Api<ResourceClaim> = Api::namespaced(world.client.kube().clone(), "default");
    let request = json!({"name": "r", "exactly": {"deviceClassName": DRIVER}});
    let claim = json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}});
    let claim = serde_json::from_value(claim).unwrap();
    api.create(&PostParams::default(), &claim).await.unwrap();
    let result = json!({"driver": DRIVER, "pool": "pool", "device": name, "request": "r"});
    let status = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
}

async fn create_slice(world: &World) {
    let node = world.node_name();
    let slice = json!({"metadata": {"name": "slice"}, "spec": {
        "driver": DRIVER, "nodeName": node, "devices": [{"name": "a"}],
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}});
    let slices: Api<ResourceSlice> = Api::all(world.client.kube().clone());
    let slice = serde_json::from_value(slice).unwrap();
    // The agent that begins may remove it, or have it still.
    let _ = slices.create(&PostParams::default(), &slice).await;
}

async fn create_pod(world: &World, name: &str, claims: &[&str]) {
    world.create::<Pod>(pod(world, name, claims)).await.unwrap();
}

fn pod(world: &World, name: &str, claims: &[&str]) -> Value {
    let own: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"name": claim, "resourceClaimName": claim}))
        .collect();
    let used: Vec<Value> = claims.iter().map(|claim| json!({"name": claim})).collect();
    json!({"metadata": {"name": name}, "spec": {
        "nodeName": world.node_name(),
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 1,
        "resourceClaims": own,
        "containers": [{"name": "main", "image": IMAGE, "command": Program::serving().command(),
            "resources": {"claims": used}}],
    }})
}

async fn phase(world: &World, pod: &str) -> String {
    let mut pods = world.pods().await.into_iter();
    let found = pods.find(|own| own.metadata.name.as_deref() == Some(pod));
    found.unwrap().status.unwrap().phase.unwrap()
}

async fn until_phase(world: &World, pod: &str, expected: &str) {
    let until = world.runtime.monotonic() + PATIENCE;
    while phase(world, pod).await != expected {
        assert!(world.runtime.monotonic() < until, "{pod} is not {expected}");
        world.runtime.sleep(Duration::from_millis(500)).await;
    }
}

/// Reserves claims for a pod, as the scheduler would.
async fn reserve(world: &World, pod: &str, claims: &[&str]) {
    let client = world.client.kube().clone();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let uid = pods.get(pod).await.unwrap().metadata.uid;
    let api: Api<ResourceClaim> = Api::namespaced(client, "default");
    for claim in claims {
        let status = api.get(claim).await.unwrap().status.unwrap();
        let mut reserved: Vec<Value> = status
            .reserved_for
            .iter()
            .flatten()
            .map(|own| serde_json::to_value(own).unwrap())
            .collect();
        reserved.push(json!({"resource": "pods", "name": pod, "uid": uid}));
        let status = json!({"status": {"reservedFor": reserved}});
        api.patch_status(claim, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
    }
}

async fn exists(world: &World, pod: &str) -> bool {
    let pods = world.pods().await;
    pods.iter().any(|own| own.metadata.name.as_deref() == Some(pod))
}

async fn until_gone(world: &World, pod: &str) {
    let until = world.runtime.monotonic() + PATIENCE;
    while exists(world, pod).await {
        assert!(world.runtime.monotonic() < until, "{pod} does not end");
        world.runtime.sleep(Duration::from_millis(500)).await;
    }
}

async fn until_no_slice(world: &World) {
    let slices: Api<ResourceSlice> = Api::all(world.client.kube().clone());
    let until = world.runtime.monotonic() + PATIENCE;
    while !slices
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .is_empty()
    {
        assert!(world.runtime.monotonic() < until, "the slices stay");
        world.runtime.sleep(Duration::from_millis(500)).await;
    }
}

async fn until(world: &World, what: &str, mut is_so: impl FnMut() -> bool) {
    let until = world.runtime.monotonic() + PATIENCE;
    while !is_so() {
        assert!(world.runtime.monotonic() < until, "never: {what}");
        world.runtime.sleep(Duration::from_millis(500)).await;
    }
}

async fn until_event(world: &World, beginning: &str) {
    let events: Api<Event> = Api::namespaced(world.client.kube().clone(), "default");
    let until = world.runtime.monotonic() + PATIENCE;
    loop {
        let all = events.list(&ListParams::default()).await.unwrap();
        let mut messages = all.into_iter().filter_map(|event| event.message);
        if messages.any(|found| found.starts_with(beginning)) {
            return;
        }
        assert!(world.runtime.monotonic() < until, "no event {beginning}");
        world.runtime.sleep(Duration::from_secs(1)).await;
    }
}
