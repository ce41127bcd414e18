//! Pods with volumes of drivers, while drivers come, hang and go and the agent is killed.

use crate::model_csi::ModelDriver;
use crate::pods::IMAGE;
use crate::simulated_node::World;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use machinery_runtime::Simulation;
use node_cri_model::Program;
use serde_json::{Value, json};
use std::time::Duration;
use tonic::Status;

const DRIVER: &str = "disks.example";
const OTHER: &str = "shares.example";
const PATIENCE: Duration = Duration::from_secs(300);

/// A volume is staged once, shown to each pod, and taken away after the last, whichever process dies meanwhile.
pub(crate) fn run_life(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let mut world = world.await;
        let driver = ModelDriver::new(&world.runtime, &world.mounts, DRIVER, true);
        create_driver(&world, DRIVER, json!({"attachRequired": false})).await;
        create_volume(&world, "one", DRIVER, json!({})).await;
        create_pod(&world, "first", json!({"persistentVolumeClaim": {"claimName": "one"}})).await;
        let missing = format!(
            "MountVolume.MountDevice failed for volume \"pv-one\" : kubernetes.io/csi: attacher.MountDevice failed to create \
             newCsiDriverClient: driver name {DRIVER} not found in the list of registered CSI drivers"
        );
        until_event(&world, &missing).await;
        driver.start(&world.sockets);
        let first = world.until_running("first", "", PATIENCE).await;
        check_shown(&world).await;
        assert!(driver.statuses.lock().iter().any(|status| status.plugin_registered));
        create_pod(&world, "second", json!({"persistentVolumeClaim": {"claimName": "one"}})).await;
        world.until_running("second", "", PATIENCE).await;
        assert_eq!((driver.count("stage", "v-one"), driver.count("publish", "v-one")), (1, 2));

        // The agent is killed: the next one takes from a pod that went meanwhile, and leaves the other.
        world.end_agent().await;
        world.delete("second", Some(0)).await;
        world.start_agent();
        until(&world, "the second pod has its volume no more", || driver.count("unpublish", "v-one") == 1).await;
        world.containerd.crash(&first, 1);
        world.until_running("first", &first, PATIENCE).await;
        assert_eq!((driver.count("unpublish", "v-one"), driver.count("unstage", "v-one")), (1, 0));

        // A driver that comes anew is the same one.
        driver.stop(&world.sockets);
        until_shown(&world, false).await;
        world.delete("first", Some(0)).await;
        driver.start(&world.sockets);
        until_shown(&world, true).await;
        until(&world, "the volume is taken away", || driver.count("unstage", "v-one") > 0).await;
        until(&world, "nothing is mounted", || world.mounts.points().is_empty()).await;
        until(&world, "no record is left", || {
            let staged = world.data_dir().join("agent/plugins/kubernetes.io/csi").join(DRIVER);
            std::fs::read_dir(staged).unwrap().count() == 0
        })
        .await;
    });
}

/// A volume that a controller attaches is mounted after that, with its publish context, and is in use until it is taken away.
pub(crate) fn run_attached(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        let driver = ModelDriver::new(&world.runtime, &world.mounts, DRIVER, true);
        create_driver(&world, DRIVER, json!({})).await;
        driver.start(&world.sockets);
        let secret = json!({"name": "s", "namespace": "default"});
        create_volume(&world, "one", DRIVER, json!({"nodeStageSecretRef": secret})).await;
        create_pod(
            &world,
            "first",
            json!({"persistentVolumeClaim": {"claimName": "one"}}),
        )
        .await;
        let name = format!("kubernetes.io/csi/{DRIVER}^v-one");
        until_in_use(&world, std::slice::from_ref(&name)).await;
        world.runtime.sleep(Duration::from_secs(30)).await;
        assert!(driver.calls.lock().is_empty() && world.running("first").is_none());
        let attached = json!({"status": {"volumesAttached": [{"name": name, "devicePath": ""}]}});
        let nodes: Api<Node> = Api::all(world.client.kube().clone());
        attach(&world, &driver_attachment()).await;
        nodes
            .patch_status(
                world.node_name(),
                &PatchParams::default(),
                &Patch::Merge(&attached),
            )
            .await
            .unwrap();
        world.until_running("first", "", PATIENCE).await;
        let staged = driver.staged.lock().clone().unwrap();
        assert_eq!(staged.publish_context["device"], "/dev/x");
        assert_eq!(staged.secrets["key"], "value");
        let published = driver.published.lock().clone().unwrap();
        assert_eq!(published.publish_context["device"], "/dev/x");
        assert_eq!(published.staging_target_path, staged.staging_target_path);
        assert!(published.secrets.is_empty());
        world.delete("first", Some(0)).await;
        until_in_use(&world, &[]).await;
        assert_eq!(driver.calls.lock().last().unwrap().0, "unstage");
    });
}

/// A driver that answers nothing, and one that refuses.
pub(crate) fn run_hanging(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        let (hanging, other) = (
            ModelDriver::new(&world.runtime, &world.mounts, DRIVER, true),
            ModelDriver::new(&world.runtime, &world.mounts, OTHER, false),
        );
        for (name, driver) in [(DRIVER, &hanging), (OTHER, &other)] {
            create_driver(&world, name, json!({"attachRequired": false})).await;
            driver.start(&world.sockets);
        }
        create_volume(&world, "one", DRIVER, json!({})).await;
        create_volume(&world, "two", DRIVER, json!({})).await;
        create_volume(&world, "three", OTHER, json!({})).await;
        until_shown(&world, true).await;
        hanging.set_hangs(true);
        create_pod(&world, "stuck", json!({"persistentVolumeClaim": {"claimName": "one"}})).await;
        until(&world, "the driver hangs", || hanging.count("stage", "v-one") == 1).await;
        hanging.set_hangs(false);
        create_pod(&world, "same", json!({"persistentVolumeClaim": {"claimName": "two"}})).await;
        create_pod(&world, "free", json!({"persistentVolumeClaim": {"claimName": "three"}})).await;
        world.until_running("free", "", Duration::from_secs(60)).await;
        world.until_running("same", "", Duration::from_secs(60)).await;
        assert_eq!(other.count("stage", "v-three"), 0, "it does not stage");
        let slow = "MountVolume.MountDevice failed for volume \"pv-one\" : rpc error: code = DeadlineExceeded desc = context \
                    deadline exceeded";
        until_event(&world, slow).await;
        world.until_running("stuck", "", PATIENCE).await;

        // What a driver refuses it has not done, and is not asked to undo.
        other.set_refuses(Some(Status::not_found("no such volume")));
        create_volume(&world, "four", OTHER, json!({})).await;
        create_pod(&world, "refused", json!({"persistentVolumeClaim": {"claimName": "four"}})).await;
        let refused = "MountVolume.SetUp failed for volume \"pv-four\" : rpc error: code = NotFound desc = no such volume";
        until_event(&world, refused).await;
        world.delete("refused", Some(0)).await;
        world.runtime.sleep(Duration::from_secs(30)).await;
        assert_eq!(other.count("unpublish", "v-four"), 0);
        for pod in ["stuck", "same", "free"] {
            world.delete(pod, Some(0)).await;
        }
        until(&world, "nothing is mounted", || world.mounts.points().is_empty()).await;
    });
}

/// A volume of the pod's own, whose driver wants to know the pod, a token, and to be called again.
pub(crate) fn run_inline(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        let driver = ModelDriver::new(&world.runtime, &world.mounts, DRIVER, true);
        let object = json!({
            "attachRequired": false, "podInfoOnMount": true, "requiresRepublish": true,
            "tokenRequests": [{"audience": "vault"}], "volumeLifecycleModes": ["Ephemeral"],
        });
        create_driver(&world, DRIVER, object).await;
        create_driver(&world, OTHER, json!({"volumeLifecycleModes": ["Persistent"]})).await;
        driver.start(&world.sockets);
        let source = |driver: &str| json!({"csi": {"driver": driver, "readOnly": true, "volumeAttributes": {"role": "r"}}});
        create_pod(&world, "own", source(DRIVER)).await;
        create_pod(&world, "refused", source(OTHER)).await;
        world.until_running("own", "", PATIENCE).await;
        let asked = driver.published.lock().clone().unwrap();
        assert!(asked.readonly && asked.volume_id.starts_with("csi-") && asked.staging_target_path.is_empty());
        let context = &asked.volume_context;
        let of = |key: &str| context[&format!("csi.storage.k8s.io/{key}")].clone();
        assert_eq!((context["role"].as_str(), of("pod.name").as_str()), ("r", "own"));
        assert_eq!((of("ephemeral"), of("serviceAccount.name")), ("true".to_owned(), "default".to_owned()));
        let tokens: Value = serde_json::from_str(&of("serviceAccount.tokens")).unwrap();
        assert!(tokens["vault"]["token"].as_str().is_some_and(|token| !token.is_empty()));
        assert!(tokens["vault"]["expirationTimestamp"].is_string());
        let volume = asked.volume_id.clone();
        until(&world, "the driver is called again", || driver.count("publish", &volume) >= 3).await;
        let words = format!(
            "MountVolume.SetUp failed for volume \"data\" : volume mode \"Ephemeral\" not supported by driver {OTHER} (only \
             supports [\"Persistent\"])"
        );
        until_event(&world, &words).await;
        world.delete("own", Some(0)).await;
        world.delete("refused", Some(0)).await;
        until(&world, "nothing is mounted", || world.mounts.points().is_empty()).await;
        assert_eq!((driver.count("unpublish", &volume), driver.count("stage", &volume)), (1, 0));
    });
}

async fn create_driver(world: &World, name: &str, spec: Value) {
    let api: Api<CSIDriver> = Api::all(world.client.kube().clone());
    let object = json!({"metadata": {"name": name}, "spec": spec});
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// A claim and its volume, bound as the controller would.
async fn create_volume(world: &World, name: &str, driver: &str, more: Value) {
    let client = world.client.kube().clone();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), "default");
    let volumes: Api<PersistentVolume> = Api::all(client);
    let asked = json!({
        "accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": format!("pv-{name}"),
        "resources": {"requests": {"storage": "1Gi"}},
    });
    let claim = json!({"metadata": {"name": name}, "spec": asked});
    let claim = claims
        .create(&PostParams::default(), &serde_json::from_value(claim).unwrap())
        .await
        .unwrap();
    let mut source = json!({"driver": driver, "volumeHandle": format!("v-{name}")});
    for (key, value) in more.as_object().unwrap() {
        source[key] = value.clone();
    }
    let volume = json!({"metadata": {"name": format!("pv-{name}")}, "spec": {
        "accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Gi"}, "csi": source,
        "claimRef": {"name": name, "namespace": "default", "uid": claim.metadata.uid},
    }});
    volumes
        .create(&PostParams::default(), &serde_json::from_value(volume).unwrap())
        .await
        .unwrap();
    let bound = json!({"status": {"phase": "Bound"}});
    claims
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&bound))
        .await
        .unwrap();
}

async fn create_pod(world: &World, name: &str, mut volume: Value) {
    volume["name"] = json!("data");
    let pod = json!({"metadata": {"name": name}, "spec": {
        "nodeName": world.node_name(),
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": IMAGE, "command": Program::serving().command(),
            "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "volumes": [volume],
    }});
    world.create::<Pod>(pod).await.unwrap();
}

fn driver_attachment() -> Value {
    json!({"attached": true, "attachmentMetadata": {"device": "/dev/x"}})
}

/// Attaches the volume of the claim `one`, as its driver would.
async fn attach(world: &World, status: &Value) {
    let api: Api<VolumeAttachment> = Api::all(world.client.kube().clone());
    let text = format!("v-one{DRIVER}{}", world.node_name());
    let digest = <sha2::Sha256 as sha2::Digest>::digest(text.as_bytes());
    let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("csi-{name}");
    let spec = json!({"attacher": DRIVER, "nodeName": world.node_name(), "source": {"persistentVolumeName": "pv-one"}});
    let object = json!({"metadata": {"name": name}, "spec": spec});
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    let status = json!({ "status": status });
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
}

async fn until(world: &World, what: &str, mut is_so: impl FnMut() -> bool) {
    let until = world.runtime.monotonic() + PATIENCE;
    while !is_so() {
        assert!(world.runtime.monotonic() < until, "never: {what}");
        world.runtime.sleep(Duration::from_millis(500)).await;
    }
}

async fn until_event(world: &World, message: &str) {
    let events: Api<Event> = Api::namespaced(world.client.kube().clone(), "default");
    let until = world.runtime.monotonic() + PATIENCE;
    loop {
        let all = events.list(&ListParams::default()).await.unwrap();
        let mut messages = all.into_iter().filter_map(|event| event.message);
        if messages.any(|found| found == message) {
            return;
        }
        assert!(world.runtime.monotonic() < until, "no event {message}");
        world.runtime.sleep(Duration::from_secs(1)).await;
    }
}

/// The driver as the node's objects have it.
async fn shown(world: &World) -> (Option<Value>, Value, Value) {
    let client = world.client.kube().clone();
    let (nodes, own): (Api<Node>, Api<CSINode>) = (Api::all(client.clone()), Api::all(client));
    let node = nodes.get(world.node_name()).await.unwrap().metadata;
    let found = own.get_opt(world.node_name()).await.unwrap();
    let drivers = found.map(|found| json!(found.spec.drivers));
    let id = node
        .annotations
        .unwrap_or_default()
        .remove("csi.volume.kubernetes.io/nodeid");
    let zone = node
        .labels
        .unwrap_or_default()
        .remove(&format!("topology.{DRIVER}/zone"));
    (drivers, json!(id), json!(zone))
}

async fn until_shown(world: &World, is_there: bool) {
    let until = world.runtime.monotonic() + PATIENCE;
    loop {
        let (drivers, ..) = shown(world).await;
        let drivers = drivers.unwrap_or_default().to_string();
        if drivers.contains(DRIVER) == is_there {
            return;
        }
        assert!(world.runtime.monotonic() < until, "the CSINode has {drivers}");
        world.runtime.sleep(Duration::from_millis(500)).await;
    }
}

async fn check_shown(world: &World) {
    let (drivers, id, zone) = shown(world).await;
    let expected = json!([{
        "name": DRIVER, "nodeID": format!("{DRIVER}-node"), "allocatable": {"count": 12},
        "topologyKeys": [format!("topology.{DRIVER}/zone")],
    }]);
    assert_eq!(drivers, Some(expected));
    assert_eq!(id, json!(format!("{{\"{DRIVER}\":\"{DRIVER}-node\"}}")));
    assert_eq!(zone, json!("here"));
}

async fn until_in_use(world: &World, expected: &[String]) {
    let nodes: Api<Node> = Api::all(world.client.kube().clone());
    let until = world.runtime.monotonic() + PATIENCE;
    loop {
        let status = nodes
            .get(world.node_name())
            .await
            .unwrap()
            .status
            .unwrap_or_default();
        let found = status.volumes_in_use.unwrap_or_default();
        if found == expected {
            return;
        }
        assert!(world.runtime.monotonic() < until, "in use: {found:?}");
        world.runtime.sleep(Duration::from_millis(500)).await;
    }
}
