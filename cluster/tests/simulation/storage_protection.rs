//! Volumes, claims, attribute classes and pods come and go: nothing goes while it is in use, and in the end all goes
//! that was deleted and is not used.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::replica_set::template;
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use serde_json::{Value, json};

/// Kinds that are protected, with their finalizers.
const PROTECTED: [(&str, &str); 3] = [
    ("PersistentVolume", "kubernetes.io/pv-protection"),
    ("PersistentVolumeClaim", "kubernetes.io/pvc-protection"),
    ("VolumeAttributesClass", "kubernetes.io/vac-protection"),
];
const NAMES: u64 = 3;

#[derive(Default)]
struct Protection {
    pods: u64,
}

impl Scenario for Protection {
    const CONTROLLERS: &'static [&'static str] = &[
        "persistentvolume-protection-controller",
        "persistentvolumeclaim-protection-controller",
        "volumeattributesclass-protection-controller",
    ];
    const STEPS: u32 = 60;

    async fn begin(&mut self, _: &World) {}

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let name = format!("x{}", world.dice(NAMES));
        let pod = world.pick(model.all("Pod").cloned().collect());
        match (world.dice(8), pod) {
            (0, _) => change_volume(world, model, &name).await,
            (1 | 2, _) => change_claim(world, model, &name).await,
            (3, _) => match model.get("VolumeAttributesClass", "", &name) {
                Some(own) => world.delete::<VolumeAttributesClass>(&own.key).await,
                None => {
                    let own = json!({"metadata": {"name": name}, "driverName": "d.example.com",
                        "parameters": {"iops": "1"}});
                    world.create::<VolumeAttributesClass>(own).await.unwrap();
                }
            },
            (4, Some(pod)) => world.pod_is(&pod, "Succeeded").await,
            (5, Some(pod)) => world.pod_has_ended(&pod).await,
            _ => self.use_claim(world, model, &name).await,
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        for (kind, finalizer) in PROTECTED {
            if let Some(made) = change.made(kind)
                && !made.finalizers.iter().any(|own| &**own == finalizer)
            {
                return Err("it is not protected".to_owned());
            }
            if let Some(gone) = change.gone(kind)
                && let Some(user) = user_of(model, gone)
            {
                return Err(format!("it went while {user} uses it"));
            }
        }
        Ok(())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        let protected = PROTECTED.iter().flat_map(|(kind, _)| model.all(kind));
        let left = protected
            .filter(|own| own.is_deleting())
            .find(|own| user_of(model, own).is_none());
        left.map_or(Ok(()), |own| Err(format!("{} {} is left", own.kind, own.name())))
    }
}

impl Protection {
    /// A pod of a claim that stays; no scheduler would give a node to one whose claim goes.
    async fn use_claim(&mut self, world: &World, model: &ReferenceModel, name: &str) {
        if model
            .get("PersistentVolumeClaim", "default", name)
            .is_none_or(|own| own.is_deleting())
        {
            return;
        }
        self.pods += 1;
        let mut pod = template(&json!({}));
        pod["metadata"]["name"] = json!(format!("p{}", self.pods));
        pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": name}}]);
        if !world.once_in(4) {
            pod["spec"]["nodeName"] = json!("n");
        }
        world.create::<Pod>(pod).await.unwrap();
    }
}

/// The user of a volume or claim.
fn user_of(model: &ReferenceModel, own: &ObjectVersion) -> Option<String> {
    match own.kind.as_str() {
        "PersistentVolume" => (own.text("/status/phase") == "Bound").then(|| "a claim".to_owned()),
        "PersistentVolumeClaim" => {
            let uses = |pod: &ObjectVersion| {
                !pod.text("/spec/nodeName").is_empty()
                    && pod.text("/spec/volumes/0/persistentVolumeClaim/claimName") == own.name()
            };
            model
                .all("Pod")
                .find(|pod| uses(pod))
                .map(|pod| pod.name().to_owned())
        }
        _ => {
            let claims = model
                .all("PersistentVolumeClaim")
                .chain(model.all("PersistentVolume"));
            let mut users = claims.filter(|user| user.text("/spec/volumeAttributesClassName") == own.name());
            users.next().map(|user| user.name().to_owned())
        }
    }
}

/// A class that stays, for a new volume or claim to speak of.
fn class(world: &World, model: &ReferenceModel, spec: &mut Value) {
    let staying = model
        .all("VolumeAttributesClass")
        .filter(|own| !own.is_deleting());
    let names: Vec<String> = staying.map(|own| own.name().to_owned()).collect();
    if let Some(name) = world.pick(names).filter(|_| world.once_in(2)) {
        spec["volumeAttributesClassName"] = json!(name);
    }
}

async fn change_volume(world: &World, model: &ReferenceModel, name: &str) {
    let Some(own) = model.get("PersistentVolume", "", name) else {
        let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "d.example.com", "volumeHandle": name}});
        class(world, model, &mut spec);
        let volume = json!({"metadata": {"name": name}, "spec": spec});
        return world.create::<PersistentVolume>(volume).await.unwrap();
    };
    match world.dice(3) {
        0 => world.delete::<PersistentVolume>(&own.key).await,
        1 if !own.is_deleting() => {
            world
                .patch_status::<PersistentVolume>(&own.key, json!({"phase": "Bound"}))
                .await;
        }
        _ => {
            world
                .patch_status::<PersistentVolume>(&own.key, json!({"phase": "Released"}))
                .await
        }
    }
}

async fn change_claim(world: &World, model: &ReferenceModel, name: &str) {
    match model.get("PersistentVolumeClaim", "default", name) {
        Some(own) => world.delete::<PersistentVolumeClaim>(&own.key).await,
        None => {
            let mut spec =
                json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
            class(world, model, &mut spec);
            let claim = json!({"metadata": {"name": name}, "spec": spec});
            world.create::<PersistentVolumeClaim>(claim).await.unwrap();
        }
    }
}

/// Claims and volumes whose finalizers a client takes away.
struct Stripped;

impl Scenario for Stripped {
    const CONTROLLERS: &'static [&'static str] = Protection::CONTROLLERS;
    const STEPS: u32 = 20;

    async fn begin(&mut self, _: &World) {}

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let name = format!("x{}", world.dice(NAMES));
        let bare = json!({"metadata": {"finalizers": null}});
        match model.get("PersistentVolumeClaim", "default", &name) {
            Some(own) => world.patch::<PersistentVolumeClaim>(&own.key, bare.clone()).await,
            None => change_claim(world, model, &name).await,
        }
        match model.get("PersistentVolume", "", &name) {
            Some(own) => world.patch::<PersistentVolume>(&own.key, bare).await,
            None => change_volume(world, model, &name).await,
        }
    }

    fn check_invariant(&mut self, _: &ReferenceModel, _: &Change) -> Result<(), String> {
        Ok(())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        for (kind, finalizer) in PROTECTED {
            let has = |own: &ObjectVersion| own.finalizers.iter().any(|found| &**found == finalizer);
            if let Some(bare) = model.all(kind).find(|own| !has(own)) {
                return Err(format!("{kind} {} is not protected", bare.name()));
            }
        }
        Ok(())
    }
}

#[test]
fn storage_protection_comes_back() {
    run_seeds(|| Stripped);
}

#[test]
fn storage_protection_scenario() {
    run_seeds(Protection::default);
}
