//! Templates change, pods vanish and fail, nodes come, go and change their labels, while messages are lost: no set ever
//! has two pods on a node (one that surges: three), a rolling update leaves no more nodes without a ready pod than its
//! bound, and in the end each node that should have one has one pod of the newest template.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::replica_set::{deleted_once, template};
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use cluster::Request;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use machinery_meta::ObjectKey;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const NODES: u64 = 5;
/// Nodes below this one stay as they are.
const STEADY_NODES: u64 = 3;
const HISTORY_LIMIT: i64 = 2;
const SETS: [&str; 2] = ["one", "two"];
const TARGET: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";

/// A pod that became ready so shortly before was not ready yet when the controller looked: upstream deletes such an old pod
/// too, whatever its bound.
const LAG: Duration = Duration::from_secs(3);

#[derive(Default)]
struct DaemonSets {
    images: u64,
    /// Sets and nodes that have had a ready pod which no user took away.
    steady: BTreeSet<(String, String)>,
    /// Pods by the moment at which they became ready, and the now of the last look.
    ready: BTreeMap<String, Duration>,
    now: Duration,
}

/// Number of nodes of a set that may be without a ready pod.
fn may_be_missing(set: &str) -> usize {
    usize::from(set == "one")
}

/// Number of pods of a set that a node may have.
fn pods_on_a_node(set: &str) -> usize {
    if set == "one" { 1 } else { 2 }
}

fn daemon_set(name: &str) -> Value {
    let labels = json!({"app": name});
    let mut template = template(&labels);
    template["spec"]["nodeSelector"] = json!({"daemons": "yes"});
    let bounds = if name == "one" {
        json!({"maxUnavailable": 1})
    } else {
        json!({"maxUnavailable": 0, "maxSurge": 1})
    };
    json!({"metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": labels}, "template": template, "revisionHistoryLimit": HISTORY_LIMIT,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": bounds}}})
}

impl DaemonSets {
    async fn new_template(&mut self, world: &World) {
        self.images += 1;
        // Now and then an old one comes back.
        let image = format!("i{}", self.images - world.dice(2));
        let body = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
        let name = SETS[usize::try_from(world.dice(2)).unwrap()];
        world
            .patch::<DaemonSet>(&ObjectKey::new("default", name), body)
            .await;
    }

    /// A pod that has just become ready goes.
    fn note_end(&mut self, change: &Change) {
        let before = change.before.as_ref().filter(|before| before.is_ready_pod());
        let goes = change.after.as_ref().is_none_or(|after| !after.is_ready_pod());
        let Some(pod) = before.filter(|_| goes) else {
            return;
        };
        let since = self.ready.get(&*pod.uid.0).copied().unwrap_or_default();
        if self.now.saturating_sub(since) < LAG {
            self.disturb(pod);
        }
    }

    /// A user is about to take a pod away.
    fn disturb(&mut self, pod: &ObjectVersion) {
        let place = (
            pod.label("app").unwrap_or("").to_owned(),
            pod.text(TARGET).to_owned(),
        );
        self.steady.remove(&place);
    }
}

impl Scenario for DaemonSets {
    const CONTROLLERS: &'static [&'static str] = &["daemonset-controller"];
    const STEPS: u32 = 40;

    async fn begin(&mut self, world: &World) {
        for number in 0..NODES {
            let name = format!("n{number}");
            world.create_node(&name, 1000, 10).await;
            let there = json!({"metadata": {"labels": {"daemons": "yes"}}, "spec": {"taints": null}});
            world.patch::<Node>(&ObjectKey::cluster(name), there).await;
        }
        for name in SETS {
            world.create::<DaemonSet>(daemon_set(name)).await.unwrap();
        }
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let pod = world.pick(model.all("Pod").cloned().collect());
        match (world.dice(20), pod) {
            (0..3, _) => self.new_template(world).await,
            (3, Some(pod)) => {
                self.disturb(&pod);
                world.delete::<Pod>(&pod.key).await;
            }
            (4, Some(pod)) => {
                self.disturb(&pod);
                world.pod_is(&pod, "Failed").await;
            }
            (5, _) => {
                let name = format!("n{}", STEADY_NODES + world.dice(NODES - STEADY_NODES));
                let says = if world.once_in(2) { "yes" } else { "no" };
                let body = json!({"metadata": {"labels": {"daemons": says}}});
                world.patch::<Node>(&ObjectKey::cluster(name), body).await;
            }
            _ => {}
        }
    }

    async fn run_nodes(&mut self, world: &World, model: &ReferenceModel) {
        self.now = world.runtime.monotonic();
        for pod in model.all("Pod") {
            if !pod.is_ready_pod() && world.once_in(3) {
                world.pod_is_ready(pod).await;
            }
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        let now = change.after.as_ref().filter(|after| after.kind == "Pod");
        if let Some(pod) = now.filter(|pod| pod.is_ready_pod()) {
            let was = change.before.as_ref().is_some_and(|before| before.is_ready_pod());
            if !was {
                self.ready.insert(pod.uid.0.to_string(), self.now);
            }
            let node = pod.text(TARGET);
            if !was && steady_nodes().any(|own| own == node) {
                let set = pod.label("app").unwrap_or("").to_owned();
                self.steady.insert((set, node.to_owned()));
            }
        }
        self.note_end(change);
        for set in model.all("DaemonSet") {
            for node in (0..NODES).map(|number| format!("n{number}")) {
                let pods = model
                    .pods_of(set)
                    .filter(|pod| pod.text(TARGET) == node && pod.is_active_pod());
                let count = pods.count();
                if count > pods_on_a_node(set.name()) {
                    return Err(format!("{count} pods of {} on {node}", set.key));
                }
            }
            let of_set = self.steady.iter().filter(|(name, _)| name == set.name());
            let is_ready = |node: &str| {
                model
                    .pods_of(set)
                    .any(|pod| pod.text(TARGET) == node && pod.is_ready_pod())
            };
            let missing = of_set.filter(|(_, node)| !is_ready(node)).count();
            if missing > may_be_missing(set.name()) {
                return Err(format!("{missing} nodes without a ready pod of {}", set.key));
            }
        }
        Ok(())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        for set in model.all("DaemonSet") {
            let revisions = model
                .all("ControllerRevision")
                .filter(|own| own.is_controlled_by(set));
            let revisions: Vec<_> = revisions.collect();
            let newest = revisions.iter().max_by_key(|own| own.number("/revision"));
            let newest = newest.ok_or_else(|| format!("{} has no revision", set.key))?;
            let (own, kept) = (
                set.at("/spec/template/spec/containers/0/image"),
                newest.at("/data/spec/template/spec/containers/0/image"),
            );
            if own != kept || revisions.len() as i64 > HISTORY_LIMIT + 1 {
                return Err(format!(
                    "{}: {own:?}, {kept:?}, {} revisions",
                    set.key,
                    revisions.len()
                ));
            }
            let hash = newest.label("controller-revision-hash");
            let mut wanted = 0;
            for node in model.all("Node") {
                let pods = model.pods_of(set).filter(|pod| pod.text(TARGET) == node.name());
                let hashes: Vec<_> = pods.map(|pod| pod.label("controller-revision-hash")).collect();
                let expected = if node.label("daemons") == Some("yes") {
                    vec![hash]
                } else {
                    vec![]
                };
                wanted += expected.len() as i64;
                if hashes != expected {
                    return Err(format!(
                        "{} on {}: {hashes:?}, not {expected:?}",
                        set.key,
                        node.name()
                    ));
                }
            }
            let numbers = [
                "desiredNumberScheduled",
                "currentNumberScheduled",
                "updatedNumberScheduled",
                "numberReady",
                "numberAvailable",
            ];
            let said = numbers.map(|name| set.number(&format!("/status/{name}")));
            let misplaced = set.number("/status/numberMisscheduled");
            if said != [wanted; 5]
                || misplaced != 0
                || set.number("/status/observedGeneration") != set.generation
            {
                return Err(format!("{}: {wanted} wanted, {said:?} in status", set.key));
            }
        }
        Ok(())
    }

    fn sent(&self, mutations: &[Request]) -> Result<(), String> {
        deleted_once(mutations)
    }
}

fn steady_nodes() -> impl Iterator<Item = String> {
    (0..STEADY_NODES).map(|number| format!("n{number}"))
}

#[test]
fn daemon_set_scenario() {
    run_seeds(DaemonSets::default);
}
