//! Objects own each other in every shape, cycles too, and are deleted in all three ways: nothing goes that an object
//! still owns, a foreground deletion waits for what blocks it, an orphaned object stays, and nothing unowned is left.
//! Some references are wrong: of a uid long gone, of another name, or of a cluster-scoped object, which always stays.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRole;
use machinery_client::Propagation;
use machinery_meta::{OwnerRef, Uid};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// References this young may not have reached the collector's graph; upstream's has the same gap.
const KNOWN_AFTER: Duration = Duration::from_secs(90);

#[derive(Default)]
struct Collected {
    deleted: BTreeSet<Uid>,
    /// Time at which an object's references were last written.
    changed: BTreeMap<Uid, Duration>,
}

impl Scenario for Collected {
    const CONTROLLERS: &'static [&'static str] = &["garbage-collector-controller"];
    const STEPS: u32 = 40;
    const STEP_MILLIS: u64 = 8_000;

    async fn begin(&mut self, world: &World) {
        for _ in 0..4 {
            make(world, Vec::new()).await;
        }
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let staying: Vec<_> = objects(model).filter(|own| !own.is_deleting()).cloned().collect();
        let now = world.runtime.monotonic();
        for own in objects(model) {
            self.changed.entry(own.uid.clone()).or_insert(now);
        }
        let Some(one) = world.pick(staying.clone()) else {
            return make(world, Vec::new()).await;
        };
        match world.dice(8) {
            0..4 => {
                let other = world.pick(staying.clone()).unwrap();
                let mut owners = vec![reference(world, &one)];
                if world.once_in(2) && other.uid != one.uid {
                    owners.push(reference(world, &other));
                }
                make(world, owners).await;
            }
            4 => {
                // An owner may come later, and may be an object that it owns.
                let owner = world.pick(staying).unwrap();
                let body = json!({"metadata": {"ownerReferences": [reference(world, &owner)]}});
                self.changed.insert(one.uid.clone(), now);
                world.patch::<ConfigMap>(&one.key, body).await;
            }
            way => self.delete(world, model, &one, way).await,
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        if change.gone("ClusterRole").is_some_and(|own| is_told(own)) {
            return Err("an object went whose owner cannot be asked for".to_owned());
        }
        let Some(own) = change.gone("ConfigMap") else {
            return Ok(());
        };
        let blocking = |other: &&Arc<ObjectVersion>| {
            other
                .owners
                .iter()
                .any(|owner| owner.uid == own.uid && owner.block_owner_deletion)
        };
        if waits(own)
            && let Some(left) = objects(model).find(blocking)
        {
            return Err(format!("{} was in the way", left.key));
        }
        let holds_on = |owner: &&OwnerRef| owner_of(model, owner).is_some_and(|owner| !waits(owner));
        match own.owners.iter().find(holds_on) {
            Some(owner) if !self.deleted.contains(&own.uid) => Err(format!("{} still owns it", owner.name)),
            _ if own.owners.is_empty() && !self.deleted.contains(&own.uid) => {
                Err("nobody asked for it to go".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        for own in objects(model) {
            let lives = |owner: &OwnerRef| owner_of(model, owner).is_some();
            if own.is_deleting() || !(own.owners.is_empty() || own.owners.iter().any(lives)) {
                return Err(format!("{:?} is left", own.at("/metadata")));
            }
        }
        Ok(())
    }
}

impl Collected {
    async fn delete(&mut self, world: &World, model: &ReferenceModel, own: &ObjectVersion, way: u64) {
        let now = world.runtime.monotonic();
        let known = |other: &ObjectVersion| {
            self.changed
                .get(&other.uid)
                .is_some_and(|at| now - *at > KNOWN_AFTER)
        };
        let mut dependents = objects(model).filter(|other| is_owned(other, own));
        let how = match way {
            5 => Propagation::Background,
            6 => Propagation::Foreground,
            _ if dependents.all(|other| known(other)) => Propagation::Orphan,
            _ => return,
        };
        self.deleted.insert(own.uid.clone());
        world.delete_by::<ConfigMap>(&own.key, how).await;
    }
}

fn objects(model: &ReferenceModel) -> impl Iterator<Item = &Arc<ObjectVersion>> {
    model
        .all("ConfigMap")
        .filter(|own| own.namespace() == "default" && is_told(own))
}

fn is_told(own: &ObjectVersion) -> bool {
    own.label("told") == Some("yes")
}

/// The object that a reference means, by all that it says.
fn owner_of<'a>(model: &'a ReferenceModel, owner: &OwnerRef) -> Option<&'a Arc<ObjectVersion>> {
    let found = model.by_uid(&owner.uid.0);
    found.filter(|own| own.name() == &*owner.name)
}

fn is_owned(own: &ObjectVersion, by: &ObjectVersion) -> bool {
    own.owners.iter().any(|owner| owner.uid == by.uid)
}

/// Its deletion waits for its dependents.
fn waits(own: &ObjectVersion) -> bool {
    own.is_deleting() && own.finalizers.iter().any(|name| &**name == "foregroundDeletion")
}

/// Owned by this object; now and then by one of its name that is long gone, or by none of the name.
fn reference(world: &World, owner: &ObjectVersion) -> Value {
    let uid = if world.once_in(8) {
        world.runtime.uuid().to_string()
    } else {
        owner.uid.0.clone()
    };
    let name = if world.once_in(8) { "another" } else { owner.name() };
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid,
        "blockOwnerDeletion": world.once_in(2)})
}

async fn make(world: &World, owners: Vec<Value>) {
    let name = format!("o{}", world.dice(u64::MAX));
    let metadata = json!({"name": name, "labels": {"told": "yes"}, "ownerReferences": owners});
    if !owners.is_empty() && world.once_in(6) {
        let role = json!({"metadata": metadata, "rules": []});
        return world.create::<ClusterRole>(role).await.unwrap();
    }
    world
        .create::<ConfigMap>(json!({"metadata": metadata}))
        .await
        .unwrap();
}

#[test]
fn garbage_collector_scenario() {
    run_seeds(Collected::default);
}
