//! Controllers under a seeded world: one thread, paused time, late, lost and broken messages, the production server.
//!
//! Each story runs once per seed and ends in its controller's invariant. `KNARR_SEEDS=1000` runs as many seeds; a
//! failing run names its seed, and `KNARR_SEED=<seed>` runs that one alone.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "a test, helpers included; its numbers are small"
)]

use cluster::{Cluster, Faults, Rates, Selection};
use k8s_openapi::List;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use machinery_client::{ApiResource, Client, DeleteOptions, Patch};
use machinery_meta::ObjectKey;
use machinery_runtime::{Runtime, Simulation};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Seeds of a plain run.
const DEFAULT_SEEDS: u64 = 3;
/// Things that happen in a story.
const STEPS: usize = 12;
/// How long a healed world may take to come to rest, in its own time.
const REST: Duration = Duration::from_secs(900);

#[expect(
    clippy::disallowed_methods,
    reason = "how many seeds to run is asked of whoever runs the tests"
)]
fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("KNARR_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("KNARR_SEEDS").unwrap_or(DEFAULT_SEEDS)).collect(),
    }
}

/// A world: a cluster behind faults, and a client that is not.
struct World {
    runtime: Runtime,
    cluster: Cluster,
    client: Client,
    faults: Faults,
}

fn story<F: Future<Output = ()> + Send + 'static>(controllers: &[&str], tell: impl Fn(World) -> F) {
    for seed in seeds() {
        println!("seed {seed}");
        let simulation = Simulation::new(seed);
        let runtime = simulation.runtime();
        let names: Vec<String> = controllers.iter().map(|name| (*name).to_owned()).collect();
        let world = simulation.run(async move {
            let faults = Faults::new(Rates::SOME);
            let builder = Cluster::builder()
                .runtime(runtime.clone())
                .controllers(Selection::Only(names));
            let cluster = builder.faults(faults.clone()).start().await.unwrap();
            let client = cluster.admin();
            let account =
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
            let accounts = ApiResource::of::<ServiceAccount>();
            client.create(&accounts, "default", &account).await.unwrap();
            World {
                runtime,
                client,
                cluster,
                faults,
            }
        });
        simulation.run(tell(world));
    }
}

impl World {
    fn dice(&self, sides: u64) -> u64 {
        self.runtime.random_u64() % sides
    }

    async fn wait(&self, longest_millis: u64) {
        self.runtime
            .sleep(Duration::from_millis(1 + self.dice(longest_millis)))
            .await;
    }

    async fn pods(&self) -> Vec<Pod> {
        let list: List<Pod> = self
            .client
            .list_as(&ApiResource::of::<Pod>(), "default", &[])
            .await
            .unwrap();
        list.items
    }

    /// What a node agent would say of a pod.
    async fn say(&self, pod: &Pod, status: Value) {
        let key = ObjectKey::new("default", pod.metadata.name.clone().unwrap());
        let body = json!({"status": status});
        let _gone = self
            .client
            .patch(&ApiResource::of::<Pod>(), &key, "status", &Patch::Merge, &body)
            .await;
    }

    async fn ready(&self, pod: &Pod) {
        let now = self.runtime.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": now});
        self.say(pod, json!({"phase": "Running", "conditions": [ready]}))
            .await;
    }

    async fn delete_pod(&self, pod: &Pod) {
        let key = ObjectKey::new("default", pod.metadata.name.clone().unwrap());
        let _gone = self
            .client
            .delete(&ApiResource::of::<Pod>(), &key, &DeleteOptions::default())
            .await;
    }

    async fn patch(&self, resource: &ApiResource, name: &str, body: Value) {
        let key = ObjectKey::new("default", name);
        self.client
            .patch(resource, &key, "", &Patch::Merge, &body)
            .await
            .unwrap();
    }

    /// Heals the world and waits until `settled`.
    async fn rest<F: Future<Output = Result<(), String>>>(&self, settled: impl Fn() -> F) {
        self.faults.set(Rates::NONE);
        let start = self.runtime.monotonic();
        loop {
            match settled().await {
                Ok(()) => return,
                Err(why) => assert!(
                    self.runtime.monotonic() - start < REST,
                    "the world did not come to rest: {why}"
                ),
            }
            self.runtime.sleep(Duration::from_millis(500)).await;
        }
    }

    /// No pod was deleted twice by a controller.
    fn no_pod_was_deleted_twice(&self) {
        let mut deletes: BTreeMap<String, usize> = BTreeMap::new();
        for request in self.faults.mutations() {
            if request.method == "DELETE" && request.path.contains("/pods/") && request.code < 300 {
                *deletes.entry(request.path).or_default() += 1;
            }
        }
        let twice: Vec<_> = deletes.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "deleted more than once: {twice:?}");
    }
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    is_active(pod)
        && conditions.is_some_and(|all| all.iter().any(|own| own.type_ == "Ready" && own.status == "True"))
}

/// Sizes change, pods vanish, fail and become ready while messages are lost: in the end there are as many as asked for.
#[test]
fn replica_sets_have_the_pods_they_ask_for() {
    story(&["replicaset-controller"], |world| async move {
        let sets = ApiResource::of::<ReplicaSet>();
        let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "a"}, "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "a"}}, "template": template()}});
        world.client.create(&sets, "default", &set).await.unwrap();
        let mut wanted = 3;
        for _ in 0..STEPS {
            world.wait(900).await;
            let pods = world.pods().await;
            let victim = (!pods.is_empty()).then(|| &pods[world.dice(pods.len() as u64) as usize]);
            match (world.dice(4), victim) {
                (0, _) | (_, None) => {
                    wanted = world.dice(9);
                    world
                        .patch(&sets, "a", json!({"spec": {"replicas": wanted}}))
                        .await;
                }
                (1, Some(pod)) => world.delete_pod(pod).await,
                (2, Some(pod)) => world.say(pod, json!({"phase": "Failed"})).await,
                (_, Some(pod)) => world.ready(pod).await,
            }
        }
        let key = ObjectKey::new("default", "a");
        world
            .rest(|| async {
                let active = world.pods().await.iter().filter(|pod| is_active(pod)).count() as u64;
                let set: ReplicaSet = world.client.get_as(&sets, &key).await.unwrap();
                let said = set.status.map_or(0, |status| status.replicas);
                let right = active == wanted && u64::try_from(said) == Ok(wanted);
                if right {
                    Ok(())
                } else {
                    Err(format!("{active} active, {said} in status, {wanted} wanted"))
                }
            })
            .await;
        world.no_pod_was_deleted_twice();
        drop(world.cluster);
    });
}

/// Templates change while pods come up in their own time: never fewer available, nor more pods, than allowed.
#[test]
fn deployments_keep_their_bounds() {
    story(
        &["deployment-controller", "replicaset-controller"],
        |world| async move {
            let (deployments, replicas, surge) = (ApiResource::of::<Deployment>(), 4, 1);
            let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "a"}}, "template": template(),
            "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1}}}});
            world
                .client
                .create(&deployments, "default", &deployment)
                .await
                .unwrap();
            let mut was_available = false;
            let mut image = 0;
            for step in 0..STEPS * 12 {
                world.wait(250).await;
                let pods = world.pods().await;
                for pod in pods.iter().filter(|pod| is_active(pod) && !is_ready(pod)) {
                    if world.dice(4) == 0 {
                        world.ready(pod).await;
                    }
                }
                let pods = world.pods().await;
                let available = pods.iter().filter(|pod| is_ready(pod)).count();
                let active = pods.iter().filter(|pod| is_active(pod)).count();
                was_available |= available >= replicas;
                assert!(active <= replicas + surge, "{active} pods");
                assert!(
                    !was_available || available >= replicas - 1,
                    "{available} available"
                );
                if was_available && step % 24 == 0 {
                    image += 1;
                    let container = json!([{"name": "c", "image": format!("i{image}")}]);
                    let body = json!({"spec": {"template": {"spec": {"containers": container}}}});
                    world.patch(&deployments, "a", body).await;
                }
            }
            let key = ObjectKey::new("default", "a");
            world
                .rest(|| async {
                    for pod in world
                        .pods()
                        .await
                        .iter()
                        .filter(|pod| is_active(pod) && !is_ready(pod))
                    {
                        world.ready(pod).await;
                    }
                    let own: Deployment = world.client.get_as(&deployments, &key).await.unwrap();
                    let status = own.status.unwrap_or_default();
                    let of = |number: Option<i32>| number.unwrap_or(0) as usize;
                    let done = of(status.updated_replicas) == replicas
                        && of(status.replicas) == replicas
                        && of(status.available_replicas) == replicas
                        && status.observed_generation == own.metadata.generation;
                    if done { Ok(()) } else { Err(format!("{status:?}")) }
                })
                .await;
            world.no_pod_was_deleted_twice();
            drop(world.cluster);
        },
    );
}

/// Pods end well and badly, and are deleted: never more at work than allowed, every success counted once.
#[test]
fn jobs_count_every_pod_once() {
    story(&["job-controller"], |world| async move {
        let (jobs, completions, parallelism) = (ApiResource::of::<Job>(), 6, 2);
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {
            "completions": completions, "parallelism": parallelism, "backoffLimit": 100,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
        world.client.create(&jobs, "default", &job).await.unwrap();
        let key = ObjectKey::new("default", "a");
        let mut succeeded = std::collections::BTreeSet::new();
        let start = world.runtime.monotonic();
        loop {
            world.wait(600).await;
            let pods = world.pods().await;
            let active: Vec<&Pod> = pods.iter().filter(|pod| is_active(pod)).collect();
            assert!(active.len() <= parallelism, "{} at work", active.len());
            if let Some(pod) = active.first() {
                match world.dice(8) {
                    0 => world.say(pod, json!({"phase": "Failed"})).await,
                    1 => world.delete_pod(pod).await,
                    2..=5 => {
                        world.say(pod, json!({"phase": "Succeeded"})).await;
                        succeeded.insert(pod.metadata.uid.clone().unwrap());
                    }
                    _ => {}
                }
            }
            if succeeded.len() >= completions {
                break;
            }
            // Failures back off for up to ten minutes each.
            assert!(
                world.runtime.monotonic() - start < Duration::from_secs(50_000),
                "the job never got there"
            );
        }
        world
            .rest(|| async {
                let own: Job = world.client.get_as(&jobs, &key).await.unwrap();
                let status = own.status.unwrap_or_default();
                let complete = status
                    .conditions
                    .iter()
                    .flatten()
                    .any(|own| own.type_ == "Complete");
                let counted = status.succeeded.unwrap_or(0) as usize;
                if complete && counted == succeeded.len() {
                    Ok(())
                } else {
                    Err(format!("{counted} counted of {}: {status:?}", succeeded.len()))
                }
            })
            .await;
        let held = world
            .pods()
            .await
            .iter()
            .filter(|pod| pod.metadata.finalizers.iter().flatten().next().is_some())
            .count();
        assert_eq!(held, 0, "pods still held by the finalizer");
        drop(world.cluster);
    });
}
