//! Sizes change, pods vanish, fail, are given away and found, while messages are lost: two sets of one selector never
//! make more pods than were requested, and in the end have as many as they request.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::runner::{run_seed, run_seeds};
use crate::simulated_cluster::World;
use cluster::Request;
use k8s_openapi::Resource;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use machinery_meta::ObjectKey;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::Arc;

const LARGEST: u64 = 8;

/// A kind that keeps a number of pods.
pub(crate) trait SetKind: Resource<Scope: 'static> + Send + Sync + 'static {
    const CONTROLLERS: &'static [&'static str];

    /// The selector of pods with these labels.
    fn selector(labels: &Value) -> Value;
}

impl SetKind for ReplicaSet {
    const CONTROLLERS: &'static [&'static str] = &["replicaset-controller"];

    fn selector(labels: &Value) -> Value {
        json!({"matchLabels": labels})
    }
}

pub(crate) struct Sets<K> {
    kind: PhantomData<K>,
    /// Sizes by generation that were requested of a set since the generation that its controller has observed.
    sizes: BTreeMap<ObjectKey, BTreeMap<i64, i64>>,
}

impl<K> Default for Sets<K> {
    fn default() -> Self {
        Self {
            kind: PhantomData,
            sizes: BTreeMap::new(),
        }
    }
}

impl<K> Sets<K> {
    fn note_size(&mut self, set: &ObjectVersion) {
        let sizes = self.sizes.entry(set.key.clone()).or_default();
        sizes.insert(set.generation, set.number("/spec/replicas"));
        let observed = set.number("/status/observedGeneration");
        sizes.retain(|generation, _| *generation >= observed);
    }
}

pub(crate) fn template(labels: &Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

impl<K: SetKind> Scenario for Sets<K> {
    const CONTROLLERS: &'static [&'static str] = K::CONTROLLERS;

    async fn begin(&mut self, world: &World) {
        for name in ["a", "b"] {
            let labels = json!({"app": "a"});
            let set = json!({"metadata": {"name": name}, "spec": {
                "replicas": 3, "selector": K::selector(&labels), "template": template(&labels)}});
            world.create::<K>(set).await.unwrap();
        }
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let Some(pod) = world.pick(model.all("Pod").cloned().collect()) else {
            return scale::<K>(world).await;
        };
        match world.dice(6) {
            0 => scale::<K>(world).await,
            1 => world.delete::<Pod>(&pod.key).await,
            2 => world.pod_is(&pod, "Failed").await,
            3 => world.pod_is_ready(&pod).await,
            4 => {
                let labels = json!({"metadata": {"labels": {"app": "other"}}});
                world.patch::<Pod>(&pod.key, labels).await;
            }
            _ => {
                let mut orphan = template(&json!({"app": "a"}));
                orphan["metadata"]["name"] = json!(format!("orphan-{}", world.dice(u64::MAX)));
                world.create::<Pod>(orphan).await.unwrap();
            }
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        if let Some(set) = change.after.as_ref().filter(|own| own.kind == K::KIND) {
            self.note_size(set);
        }
        let Some(pod) = change.made("Pod") else {
            return Ok(());
        };
        for set in model.all(K::KIND).filter(|set| pod.is_controlled_by(set)) {
            let (active, sizes) = (active(model, set), self.sizes.get(&set.key));
            if !sizes.is_some_and(|sizes| sizes.values().any(|size| active <= *size)) {
                return Err(format!("{active} pods of {}, asked for {sizes:?}", set.key));
            }
        }
        Ok(())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        for set in model.all(K::KIND) {
            let (wanted, active) = (set.number("/spec/replicas"), active(model, set));
            let ready = model.pods_of(set).filter(|pod| pod.is_ready_pod()).count() as i64;
            let said = (
                set.number("/status/replicas"),
                set.number("/status/readyReplicas"),
            );
            let seen = set.number("/status/observedGeneration") == set.generation;
            if active != wanted || said != (wanted, ready) || !seen {
                let key = &set.key;
                return Err(format!(
                    "{key}: {active} active, {ready} ready, {wanted} wanted, {said:?} in status"
                ));
            }
        }
        let astray = |pod: &&Arc<ObjectVersion>| {
            pod.is_active_pod() && (pod.label("app") == Some("a")) != pod.controller().is_some()
        };
        model
            .all("Pod")
            .find(astray)
            .map_or(Ok(()), |pod| Err(format!("{} is astray", pod.key)))
    }

    fn sent(&self, mutations: &[Request]) -> Result<(), String> {
        deleted_once(mutations)
    }
}

async fn scale<K: SetKind>(world: &World) {
    let name = if world.once_in(2) { "a" } else { "b" };
    let replicas = world.dice(LARGEST + 1);
    world.scale::<K>(&ObjectKey::new("default", name), replicas).await;
}

fn active(model: &ReferenceModel, owner: &ObjectVersion) -> i64 {
    model.pods_of(owner).filter(|pod| pod.is_active_pod()).count() as i64
}

/// No pod's deletion was requested again after the server had done it.
pub(crate) fn deleted_once(mutations: &[Request]) -> Result<(), String> {
    let mut deleted = BTreeSet::new();
    let done = |request: &&Request| request.method == "DELETE" && request.code == 200;
    for request in mutations.iter().filter(done) {
        if !deleted.insert(&request.path) {
            return Err(format!("{} was deleted twice", request.path));
        }
    }
    Ok(())
}

#[test]
fn replica_set_scenario() {
    run_seeds(Sets::<ReplicaSet>::default);
}

/// A seed decides everything: run twice, everything happens in the same order at the same time.
#[test]
fn simulation_seed_is_deterministic() {
    let sets = Sets::<ReplicaSet>::default;
    assert_eq!(run_seed(sets(), 7), run_seed(sets(), 7));
    assert_ne!(run_seed(sets(), 7), run_seed(sets(), 8));
}

/// A run that two processes are compared by.
const COMPARED: u64 = 7;
const HASH: &str = "hash of the run: ";

/// A seed decides everything, whichever process runs it.
#[test]
fn simulation_seed_is_the_same_in_another_process() {
    let own = run_seed(Sets::<ReplicaSet>::default(), COMPARED);
    let program = std::env::current_exe().unwrap();
    let arguments = [
        "--exact",
        "replica_set::run_for_another_process",
        "--ignored",
        "--nocapture",
    ];
    #[expect(
        clippy::disallowed_methods,
        reason = "the same test once more, not a command of a node"
    )]
    let other = std::process::Command::new(program)
        .args(arguments)
        .output()
        .unwrap();
    let other = String::from_utf8(other.stdout).unwrap();
    assert!(other.contains(&format!("{HASH}{own:x}")), "{own:x} here: {other}");
}

#[test]
#[ignore = "a part of simulation_seed_is_the_same_in_another_process"]
fn run_for_another_process() {
    let hash = run_seed(Sets::<ReplicaSet>::default(), COMPARED);
    println!("{HASH}{hash:x}");
}
