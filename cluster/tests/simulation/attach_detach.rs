//! Pods with volumes of a CSI driver come and go on nodes that fall silent, are taken out of service and are deleted, beside
//! an attacher that is slow, fails, forgets to answer and answers too late: no volume for one node is ever on two, none is
//! taken from a node that has it mounted unless that is forced, and in the end what is attached is what pods need.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::replica_set::template;
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use machinery_client::{ApiResource, DeleteOptions};
use machinery_meta::ObjectKey;
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const NODES: u64 = 3;
const VOLUMES: u64 = 4;
/// Volumes that may be on several nodes.
const SHARED: [&str; 1] = ["v2"];
/// Volumes of a driver that does not attach.
const UNATTACHED: [&str; 1] = ["v3"];
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Upstream's time after which a volume is taken from an unhealthy node, less the time between two looks of this test.
const FORCE_AFTER: Duration = Duration::from_secs(340);
/// The controller acts on what was so this long ago at most, however late messages are.
const LATENESS: Duration = Duration::from_secs(120);

/// A volume on a node.
type Place = (String, String);

#[derive(Default)]
struct Attaching {
    runtime: Option<Runtime>,
    pods: u64,
    /// Volumes that the storage has on nodes.
    storage: BTreeSet<Place>,
    /// Volumes that nodes have mounted.
    mounted: BTreeSet<Place>,
    /// Times since which no pod of a node needs a volume.
    unneeded: BTreeMap<Place, Duration>,
    /// Times at which nodes were last seen unhealthy or out of service.
    unhealthy: BTreeMap<String, Duration>,
    out_of_service: BTreeMap<String, Duration>,
}

impl Scenario for Attaching {
    const CONTROLLERS: &'static [&'static str] = &[
        "persistentvolume-attach-detach-controller",
        "persistentvolume-binder-controller",
    ];
    const STEPS: u32 = 60;
    const STEP_MILLIS: u64 = 15_000;

    async fn begin(&mut self, world: &World) {
        self.runtime = Some(world.runtime.clone());
        let driver = json!({"metadata": {"name": "e"}, "spec": {"attachRequired": false}});
        world.create::<CSIDriver>(driver).await.unwrap();
        for number in 0..NODES {
            make_node(world, &format!("n{number}")).await;
        }
        for number in 0..VOLUMES {
            make_volume(world, &format!("v{number}")).await;
        }
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let node = format!("n{}", world.dice(NODES));
        let pod = world.pick(model.all("Pod").cloned().collect());
        match (world.dice(12), model.get("Node", "", &node), pod) {
            (0, Some(found), _) => self.set_ready(world, found, false).await,
            (1 | 2, Some(found), _) => self.set_ready(world, found, true).await,
            (3, Some(found), _) => {
                let taint = json!({"key": OUT_OF_SERVICE, "value": "x", "effect": "NoExecute"});
                let taints = if world.once_in(2) {
                    json!([taint])
                } else {
                    Value::Null
                };
                world
                    .patch::<Node>(&found.key, json!({"spec": {"taints": taints}}))
                    .await;
            }
            (4, Some(found), _) if world.once_in(2) => {
                world.delete::<Node>(&found.key).await;
                self.mounted.retain(|(own, _)| *own != node);
            }
            (_, None, _) => make_node(world, &node).await,
            (5 | 6, _, Some(pod)) => world.delete::<Pod>(&pod.key).await,
            (7, _, Some(pod)) => world.pod_has_ended(&pod).await,
            (8, _, Some(pod)) if !pod.is_deleting() => world.pod_is(&pod, "Succeeded").await,
            _ => self.make_pod(world, &node).await,
        }
    }

    async fn final_step(&mut self, world: &World) {
        let nodes: k8s_openapi::List<Node> = world
            .client
            .list_as(&ApiResource::of::<Node>(), "", &[])
            .await
            .unwrap();
        let there: BTreeSet<_> = nodes
            .items
            .iter()
            .filter_map(|node| node.metadata.name.clone())
            .collect();
        for name in (0..NODES).map(|number| format!("n{number}")) {
            let key = ObjectKey::cluster(&*name);
            if !there.contains(&name) {
                make_node(world, &name).await;
            }
            world.patch::<Node>(&key, json!({"spec": {"taints": null}})).await;
            let ready = json!({"conditions": [world.condition("Ready", true)]});
            world.patch_status::<Node>(&key, ready).await;
        }
        if world.once_in(2) {
            let options = DeleteOptions::default();
            let pods = ApiResource::of::<Pod>();
            world
                .client
                .delete_collection(&pods, "default", &[], &options)
                .await
                .unwrap();
        }
    }

    async fn run_nodes(&mut self, world: &World, model: &ReferenceModel) {
        for attachment in model.all("VolumeAttachment") {
            self.run_attacher(world, model, attachment).await;
        }
        for node in model.all("Node").filter(|node| node.condition("Ready") == "True") {
            self.run_node(world, model, node).await;
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        let now = self.runtime.as_ref().unwrap().monotonic();
        self.note(model, now);
        if !change.is_of("VolumeAttachment") {
            return Ok(());
        }
        let own = change.latest();
        let (node, volume) = place(own);
        if UNATTACHED.contains(&&*volume) {
            return Err("its driver does not attach".to_owned());
        }
        let others = model.all("VolumeAttachment");
        let mut others = others.filter(|other| other.uid != own.uid && place(other).1 == volume);
        if change.after.is_some()
            && !SHARED.contains(&&*volume)
            && let Some(other) = others.next()
        {
            return Err(format!("{volume} is attached to {} as well", place(other).0));
        }
        let begins_to_go = change.before.as_ref().is_some_and(|before| !before.is_deleting())
            && change.after.as_ref().is_none_or(|after| after.is_deleting());
        if begins_to_go && self.mounted.contains(&(node.clone(), volume.clone())) {
            self.may_be_forced(model, (node, volume), now)?;
        }
        Ok(())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        for own in model.all("VolumeAttachment") {
            let (node, volume) = place(own);
            if own.is_deleting() || own.at("/status/attached") != Some(&json!(true)) {
                return Err(format!("{volume} is on its way to or from {node}"));
            }
            if !needs(model, &node, &volume) {
                return Err(format!("{volume} is still on {node}"));
            }
            if !is_reported(model, &node, &volume) {
                return Err(format!("{node} does not know that it has {volume}"));
            }
        }
        let places: BTreeSet<Place> = model.all("VolumeAttachment").map(|own| place(own)).collect();
        for node in model.all("Node") {
            for own in node.list("/status/volumesAttached") {
                let volume = own["name"].as_str().unwrap().rsplit('^').next().unwrap();
                if !places.contains(&(node.name().to_owned(), volume.to_owned())) {
                    return Err(format!("{} believes that it has {volume}", node.name()));
                }
            }
            for volume in (0..VOLUMES).map(|number| format!("v{number}")) {
                let there = |node: &str| places.contains(&(node.to_owned(), volume.clone()));
                let taken = !SHARED.contains(&&*volume) && model.all("Node").any(|node| there(node.name()));
                if needs(model, node.name(), &volume)
                    && !there(node.name())
                    && !taken
                    && !UNATTACHED.contains(&&*volume)
                {
                    return Err(format!("{} waits for {volume}", node.name()));
                }
            }
        }
        let going = model.all("Pod").find(|pod| pod.is_deleting());
        going.map_or(Ok(()), |pod| Err(format!("pod {} is going", pod.name())))
    }
}

impl Attaching {
    async fn make_pod(&mut self, world: &World, node: &str) {
        self.pods += 1;
        let mut pod = template(&json!({}));
        pod["metadata"]["name"] = json!(format!("p{}", self.pods));
        let claim = format!("v{}", world.dice(VOLUMES));
        pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
        pod["spec"]["nodeName"] = json!(node);
        world.create::<Pod>(pod).await.unwrap();
    }

    async fn set_ready(&self, world: &World, node: &ObjectVersion, ready: bool) {
        let status = json!({"conditions": [world.condition("Ready", ready)]});
        world.patch_status::<Node>(&node.key, status).await;
    }

    /// The external attacher: a finalizer first, then the storage, then the answer, each when it likes.
    async fn run_attacher(&mut self, world: &World, model: &ReferenceModel, own: &ObjectVersion) {
        let (node, volume) = place(own);
        let attached = own.at("/status/attached") == Some(&json!(true));
        let finalized = !own.finalizers.is_empty();
        match (own.is_deleting(), finalized, world.dice(4)) {
            (_, _, 0) => {}
            (true, true, 1) if !attached => {
                // Too late: it is to be detached by now.
                world
                    .patch_status::<VolumeAttachment>(&own.key, json!({"attached": true}))
                    .await;
            }
            (true, true, _) => {
                self.storage.remove(&(node, volume));
                let bare = json!({"metadata": {"finalizers": null}});
                world.patch::<VolumeAttachment>(&own.key, bare).await;
            }
            (false, false, _) => {
                let own_finalizer = json!({"metadata": {"finalizers": ["external-attacher/d"]}});
                world.patch::<VolumeAttachment>(&own.key, own_finalizer).await;
            }
            (false, true, 1) if !attached => {
                let error = json!({"attachError": {"time": world.now(), "message": "no room"}});
                world.patch_status::<VolumeAttachment>(&own.key, error).await;
            }
            (false, true, dice) if !attached => {
                let elsewhere = self
                    .storage
                    .iter()
                    .any(|(own, other)| *other == volume && *own != node);
                assert!(
                    SHARED.contains(&&*volume) || !elsewhere,
                    "the storage has {volume} on two nodes: {:?}",
                    model
                        .all("VolumeAttachment")
                        .map(|own| place(own))
                        .collect::<Vec<_>>()
                );
                self.storage.insert((node, volume));
                if dice == 2 {
                    let done = json!({"attached": true, "attachError": null});
                    world.patch_status::<VolumeAttachment>(&own.key, done).await;
                }
            }
            _ => {}
        }
    }

    /// The node agent: says that it uses a volume, mounts it once the node's status names it, and the other way back.
    async fn run_node(&mut self, world: &World, model: &ReferenceModel, node: &ObjectVersion) {
        let mut in_use: BTreeSet<String> = in_use(node);
        for volume in (0..VOLUMES).map(|number| format!("v{number}")) {
            let here = (node.name().to_owned(), volume.clone());
            match (needs(model, node.name(), &volume), self.mounted.contains(&here)) {
                _ if world.once_in(3) => {}
                (true, false) if !in_use.contains(&volume) => drop(in_use.insert(volume)),
                (true, false) => {
                    let live: Node = world
                        .client
                        .get_as(&ApiResource::of::<Node>(), &node.key)
                        .await
                        .unwrap();
                    let status = live.status.unwrap();
                    let named = |name: &String| name.ends_with(&format!("^{volume}"));
                    let reported = status
                        .volumes_attached
                        .into_iter()
                        .flatten()
                        .any(|own| named(&own.name));
                    let says = status.volumes_in_use.iter().flatten().any(named);
                    if reported && says {
                        self.mounted.insert(here);
                    }
                }
                (false, true) => drop(self.mounted.remove(&here)),
                (false, false) => drop(in_use.remove(&volume)),
                (true, true) => {}
            }
        }
        if in_use != self::in_use(node) {
            let names: Vec<String> = in_use.iter().map(|volume| unique(volume)).collect();
            world
                .patch_status::<Node>(&node.key, json!({"volumesInUse": names}))
                .await;
        }
        for pod in model
            .all("Pod")
            .filter(|pod| pod.is_deleting() && is_on(pod, node.name()))
        {
            let here = (node.name().to_owned(), volume_of(pod).to_owned());
            // What is mounted may be another pod's.
            if !self.mounted.contains(&here) || needs(model, &here.0, &here.1) {
                world.pod_has_ended(pod).await;
            }
        }
    }

    /// Remembers what lets volumes be taken by force.
    fn note(&mut self, model: &ReferenceModel, now: Duration) {
        for node in model.all("Node") {
            let name = node.name().to_owned();
            if node.condition("Ready") != "True" {
                self.unhealthy.insert(name.clone(), now);
            }
            if node
                .list("/spec/taints")
                .iter()
                .any(|taint| taint["key"] == OUT_OF_SERVICE)
            {
                self.out_of_service.insert(name, now);
            }
        }
        for place in places() {
            if needs(model, &place.0, &place.1) {
                self.unneeded.remove(&place);
            } else {
                self.unneeded.entry(place).or_insert(now);
            }
        }
    }

    fn may_be_forced(&self, model: &ReferenceModel, place: Place, now: Duration) -> Result<(), String> {
        let recent = |times: &BTreeMap<String, Duration>| {
            times
                .get(&place.0)
                .is_some_and(|at| now.saturating_sub(*at) < LATENESS)
        };
        let unneeded = self.unneeded.get(&place).map(|since| now.saturating_sub(*since));
        let late = unneeded.is_some_and(|time| time >= FORCE_AFTER);
        let gone = model.get("Node", "", &place.0).is_none();
        if gone || recent(&self.out_of_service) || recent(&self.unhealthy) && late {
            return Ok(());
        }
        Err(format!("{} has it mounted, unneeded for {unneeded:?}", place.0))
    }
}

/// Every volume on every node.
fn places() -> impl Iterator<Item = Place> {
    let nodes = (0..NODES).map(|number| format!("n{number}"));
    nodes.flat_map(|node| (0..VOLUMES).map(move |number| (node.clone(), format!("v{number}"))))
}

fn unique(volume: &str) -> String {
    format!("kubernetes.io/csi/{}^{volume}", driver_of(volume))
}

fn driver_of(volume: &str) -> &'static str {
    if UNATTACHED.contains(&volume) { "e" } else { "d" }
}

/// Node and volume of an attachment.
fn place(own: &ObjectVersion) -> Place {
    let volume = own.text("/spec/source/persistentVolumeName");
    (own.text("/spec/nodeName").to_owned(), volume.to_owned())
}

fn volume_of(pod: &ObjectVersion) -> &str {
    pod.text("/spec/volumes/0/persistentVolumeClaim/claimName")
}

fn is_on(pod: &ObjectVersion, node: &str) -> bool {
    pod.text("/spec/nodeName") == node
}

fn in_use(node: &ObjectVersion) -> BTreeSet<String> {
    let names = node.list("/status/volumesInUse").iter();
    let volume = |name: &Value| name.as_str().unwrap().rsplit('^').next().unwrap().to_owned();
    names.map(volume).collect()
}

fn needs(model: &ReferenceModel, node: &str, volume: &str) -> bool {
    let mut pods = model
        .all("Pod")
        .filter(|pod| is_on(pod, node) && volume_of(pod) == volume);
    pods.any(|pod| pod.is_active_pod())
}

fn is_reported(model: &ReferenceModel, node: &str, volume: &str) -> bool {
    let node = model.get("Node", "", node);
    let mut reported = node.iter().flat_map(|node| node.list("/status/volumesAttached"));
    reported.any(|own| own["name"] == *unique(volume))
}

async fn make_node(world: &World, name: &str) {
    let node = json!({"metadata": {"name": name,
        "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}});
    if world.create::<Node>(node).await.is_ok() {
        let ready = json!({"conditions": [world.condition("Ready", true)]});
        world.patch_status::<Node>(&ObjectKey::cluster(name), ready).await;
    }
}

/// A volume, and the claim of its name.
async fn make_volume(world: &World, name: &str) {
    let mode = if SHARED.contains(&name) {
        "ReadWriteMany"
    } else {
        "ReadWriteOnce"
    };
    let volume = json!({"metadata": {"name": name}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": [mode], "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": "default", "name": name},
        "csi": {"driver": driver_of(name), "volumeHandle": name}}});
    world.create::<PersistentVolume>(volume).await.unwrap();
    let claim = json!({"metadata": {"name": name}, "spec": {
        "accessModes": [mode], "storageClassName": "", "volumeName": name,
        "resources": {"requests": {"storage": "1Gi"}}}});
    world.create::<PersistentVolumeClaim>(claim).await.unwrap();
}

#[test]
fn attach_detach_scenario() {
    run_seeds(Attaching::default);
}
