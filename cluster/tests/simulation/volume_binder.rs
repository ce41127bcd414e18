//! Volumes and claims come and go, some made for each other: a claim that says it is bound is its volume's own, at every
//! revision, and in the end no claim waits beside a volume that suits it.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

const NAMES: u64 = 4;
const GIB: [&str; 3] = ["1Gi", "2Gi", "3Gi"];

#[derive(Default)]
struct Binding;

impl Scenario for Binding {
    const CONTROLLERS: &'static [&'static str] = &[
        "persistentvolume-binder-controller",
        "persistentvolume-protection-controller",
        "persistentvolumeclaim-protection-controller",
    ];
    const STEPS: u32 = 60;

    async fn begin(&mut self, _: &World) {}

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let name = format!("x{}", world.dice(NAMES));
        let volume = model.get("PersistentVolume", "", &name);
        let claim = model.get("PersistentVolumeClaim", "default", &name);
        match (world.dice(5), volume, claim) {
            (0 | 1, None, _) => make_volume(world, &name).await,
            (0, Some(volume), _) => world.delete::<PersistentVolume>(&volume.key).await,
            // Its administrator gives it to the next one.
            (1, Some(volume), _) if volume.text("/status/phase") == "Released" => {
                let free = json!({"spec": {"claimRef": null}});
                world.patch::<PersistentVolume>(&volume.key, free).await;
            }
            (2 | 3, _, None) => make_claim(world, &name).await,
            (2, _, Some(claim)) => world.delete::<PersistentVolumeClaim>(&claim.key).await,
            _ => {}
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        let claim = change.latest();
        if !change.is_of("PersistentVolumeClaim")
            || change.gone("PersistentVolumeClaim").is_some()
            || claim.text("/status/phase") != "Bound"
        {
            return Ok(());
        }
        let volume = model.get("PersistentVolume", "", claim.text("/spec/volumeName"));
        match volume {
            Some(volume) if volume.text("/spec/claimRef/uid") == claim.text("/metadata/uid") => Ok(()),
            _ => Err("it is bound to a volume that is not its own".to_owned()),
        }
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        let free = |volume: &&ObjectVersion| {
            volume.at("/spec/claimRef").is_none_or(Value::is_null) && !volume.is_deleting()
        };
        for volume in model.all("PersistentVolume") {
            let (phase, expected) = (volume.text("/status/phase"), phase_of(model, volume));
            if phase != expected {
                return Err(format!("volume {} is {phase:?}, not {expected}", volume.name()));
            }
        }
        let waits = |claim: &&ObjectVersion| {
            claim.text("/status/phase") != "Bound"
                && claim.text("/spec/volumeName").is_empty()
                && !claim.is_deleting()
        };
        let claims = model.all("PersistentVolumeClaim").map(|own| &**own);
        for claim in claims.filter(waits) {
            let asked = claim.text("/spec/resources/requests/storage");
            let mut volumes = model.all("PersistentVolume").map(|own| &**own).filter(free);
            if let Some(volume) = volumes.find(|volume| volume.text("/spec/capacity/storage") >= asked) {
                return Err(format!("claim {} waits beside {}", claim.name(), volume.name()));
            }
        }
        Ok(())
    }
}

fn phase_of(model: &ReferenceModel, volume: &ObjectVersion) -> &'static str {
    let uid = volume.text("/spec/claimRef/uid");
    let name = volume.text("/spec/claimRef/name");
    match model.get("PersistentVolumeClaim", "default", name) {
        _ if uid.is_empty() => "Available",
        Some(claim) if claim.text("/metadata/uid") == uid => "Bound",
        _ => "Released",
    }
}

async fn make_volume(world: &World, name: &str) {
    let size = world.pick(GIB.to_vec());
    let mut spec = json!({"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/data"}});
    if world.once_in(4) {
        let claim = format!("x{}", world.dice(NAMES));
        spec["claimRef"] = json!({"namespace": "default", "name": claim});
    }
    let volume = json!({"metadata": {"name": name}, "spec": spec});
    world.create::<PersistentVolume>(volume).await.unwrap();
}

async fn make_claim(world: &World, name: &str) {
    let size = world.pick(GIB.to_vec());
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "resources": {"requests": {"storage": size}}});
    if world.once_in(5) {
        spec["volumeName"] = json!(format!("x{}", world.dice(NAMES)));
    }
    let claim = json!({"metadata": {"name": name}, "spec": spec});
    world.create::<PersistentVolumeClaim>(claim).await.unwrap();
}

#[test]
fn volume_binder_scenario() {
    run_seeds(Binding::default);
}
