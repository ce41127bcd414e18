//! The user of the whole cluster: makes, scales, rolls, pauses and deletes what there is, drains and loses nodes.

use super::workloads::{self, DEPLOYMENTS, STATEFUL_SETS, TEAM};
use crate::kubelets::Kubelets;
use crate::model::{ObjectVersion, ReferenceModel};
use crate::simulated_cluster::World;
use k8s_openapi::Resource;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ResourceQuota, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use machinery_client::{ApiResource, DeleteOptions, Patch, Propagation};
use machinery_meta::{ObjectKey, Uid};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Nodes; the first is never lost for long.
pub(super) const NODES: u64 = 4;
/// The longest time for which a node is dead.
const DEAD_SECONDS: u64 = 700;
const LARGEST: u64 = 6;
const IMAGES: u64 = 4;
/// Jobs that are there at a time.
const MAX_JOBS: usize = 4;
/// Room for everything that the team may have.
const PLENTY: u64 = 40;

#[derive(Default)]
pub(super) struct User {
    jobs: u64,
    urgent: u64,
    /// Objects that the user deleted.
    pub(super) deleted: BTreeSet<Uid>,
}

pub(super) fn nodes() -> impl Iterator<Item = String> {
    (0..NODES).map(|number| format!("n{number}"))
}

/// Beginning of the name of the urgent pod.
const URGENT: &str = "urgent-";

/// Reports whether the pod is the one that others have to go for.
pub(super) fn is_urgent(pod: &ObjectVersion) -> bool {
    pod.name().starts_with(URGENT)
}

fn own(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn image(world: &World) -> Value {
    let image = format!("i{}", world.dice(IMAGES));
    json!({"template": {"spec": {"containers": [{"name": "c", "image": image}]}}})
}

fn way(world: &World) -> Propagation {
    match world.dice(6) {
        0 => Propagation::Orphan,
        1 | 2 => Propagation::Foreground,
        _ => Propagation::Background,
    }
}

impl User {
    pub(super) async fn begin(&mut self, world: &World) {
        for name in ["kube-node-lease", TEAM] {
            // The server makes the first at its start, most of the time.
            drop(
                world
                    .create::<Namespace>(json!({"metadata": {"name": name}}))
                    .await,
            );
        }
        make::<PriorityClass>(world, workloads::urgency()).await;
        make::<ResourceQuota>(world, workloads::quota(4)).await;
        make::<Service>(world, workloads::service()).await;
        make::<PodDisruptionBudget>(world, workloads::budget(world)).await;
    }

    /// Makes one of what is missing, or changes something.
    pub(super) async fn step(&mut self, world: &World, model: &ReferenceModel, kubelets: &mut Kubelets) {
        match world.dice(14) {
            0 | 1 => self.deployments(world, model).await,
            2 => self.stateful_sets(world, model).await,
            3 => self.daemon_set(world, model).await,
            4 | 5 => self.jobs(world, model).await,
            6 => self.cron_job(world, model).await,
            7 => self.guards(world, model).await,
            8 | 9 => self.pods(world, model).await,
            12 | 13 => self.urgent(world, model).await,
            _ => self.nodes(world, model, kubelets).await,
        }
    }

    /// Makes the one urgent pod, or takes it away again.
    async fn urgent(&mut self, world: &World, model: &ReferenceModel) {
        match model.all("Pod").find(|pod| is_urgent(pod)).cloned() {
            None => {
                self.urgent += 1;
                make::<Pod>(world, workloads::urgent(&format!("{URGENT}{}", self.urgent))).await;
            }
            Some(pod) if !pod.text("/spec/nodeName").is_empty() && !pod.is_deleting() => {
                self.deleted.insert(pod.uid.clone());
                world.delete::<Pod>(&pod.key).await;
            }
            Some(_) => {}
        }
    }

    /// The last words: all is to run, and nothing new comes.
    pub(super) async fn end(&mut self, world: &World) {
        change::<ResourceQuota>(
            world,
            &ObjectKey::new(TEAM, "q"),
            json!({"hard": {"pods": PLENTY.to_string()}}),
        )
        .await;
        change::<CronJob>(world, &own("cron"), json!({"suspend": true})).await;
        // Without metrics it says so again and again.
        world
            .delete::<HorizontalPodAutoscaler>(&ObjectKey::new(TEAM, "c"))
            .await;
        for (name, namespace) in DEPLOYMENTS {
            change::<Deployment>(world, &ObjectKey::new(namespace, name), json!({"paused": false})).await;
        }
        for job in 0..=self.jobs {
            change::<Job>(world, &own(&format!("j{job}")), json!({"suspend": false})).await;
        }
        for node in nodes() {
            change::<Node>(world, &ObjectKey::cluster(node), json!({"unschedulable": false})).await;
        }
        for number in 0..=self.urgent {
            world.delete::<Pod>(&own(&format!("{URGENT}{number}"))).await;
        }
    }

    async fn deployments(&mut self, world: &World, model: &ReferenceModel) {
        let (name, namespace) = world.pick(DEPLOYMENTS.to_vec()).unwrap();
        let key = ObjectKey::new(namespace, name);
        let Some(there) = model.get("Deployment", namespace, name) else {
            return make::<Deployment>(world, workloads::deployment(name, namespace)).await;
        };
        match world.dice(8) {
            0 => self.delete::<Deployment>(world, there).await,
            1 => change::<Deployment>(world, &key, json!({"paused": world.once_in(3)})).await,
            2..5 => world.scale::<Deployment>(&key, world.dice(LARGEST + 1)).await,
            _ => change::<Deployment>(world, &key, image(world)).await,
        }
    }

    async fn stateful_sets(&mut self, world: &World, model: &ReferenceModel) {
        let name = world.pick(STATEFUL_SETS.to_vec()).unwrap();
        let Some(there) = model.get("StatefulSet", "default", name) else {
            return make::<StatefulSet>(world, workloads::stateful_set(name)).await;
        };
        match world.dice(6) {
            0 => self.delete::<StatefulSet>(world, there).await,
            1..4 => world.scale::<StatefulSet>(&there.key, world.dice(4)).await,
            _ => change::<StatefulSet>(world, &there.key, image(world)).await,
        }
    }

    async fn daemon_set(&mut self, world: &World, model: &ReferenceModel) {
        match model.get("DaemonSet", "default", "d") {
            None => make::<DaemonSet>(world, workloads::daemon_set()).await,
            Some(there) if world.once_in(5) => self.delete::<DaemonSet>(world, there).await,
            Some(there) => change::<DaemonSet>(world, &there.key, image(world)).await,
        }
    }

    async fn jobs(&mut self, world: &World, model: &ReferenceModel) {
        let jobs: Vec<_> = model
            .all("Job")
            .filter(|job| job.owners.is_empty())
            .cloned()
            .collect();
        let count = jobs.len();
        let Some(job) = world.pick(jobs).filter(|_| count >= MAX_JOBS || world.once_in(2)) else {
            self.jobs += 1;
            let name = format!("j{}", self.jobs);
            return make::<Job>(world, workloads::job(world, &name)).await;
        };
        match world.dice(6) {
            0 | 1 => self.delete::<Job>(world, &job).await,
            2 => change::<Job>(world, &job.key, json!({"parallelism": world.dice(4)})).await,
            3 => change::<Job>(world, &job.key, json!({"suspend": true})).await,
            _ => {
                change::<Job>(
                    world,
                    &job.key,
                    json!({"suspend": false, "parallelism": 1 + world.dice(3)}),
                )
                .await
            }
        }
    }

    async fn cron_job(&mut self, world: &World, model: &ReferenceModel) {
        match (model.get("CronJob", "default", "cron"), world.dice(6)) {
            (None, _) => make::<CronJob>(world, workloads::cron_job(world)).await,
            (Some(there), 0) => self.delete::<CronJob>(world, there).await,
            (Some(there), 1) => change::<CronJob>(world, &there.key, json!({"suspend": true})).await,
            (Some(there), 2) => {
                let schedule = format!("*/{} * * * *", 1 + world.dice(3));
                change::<CronJob>(world, &there.key, json!({"schedule": schedule})).await;
            }
            (Some(there), _) => change::<CronJob>(world, &there.key, json!({"suspend": false})).await,
        }
    }

    async fn guards(&mut self, world: &World, model: &ReferenceModel) {
        let (least, span) = (1 + world.dice(3), world.dice(3));
        match (world.dice(4), model.get("HorizontalPodAutoscaler", TEAM, "c")) {
            (0, _) => {
                let pods = json!({"hard": {"pods": (1 + world.dice(8)).to_string()}});
                change::<ResourceQuota>(world, &ObjectKey::new(TEAM, "q"), pods).await;
            }
            (1, _) => {
                let spec = workloads::budget(world)["spec"].clone();
                change::<PodDisruptionBudget>(world, &own("a"), spec).await;
            }
            (_, Some(there)) => self.delete::<HorizontalPodAutoscaler>(world, there).await,
            (_, None) => make::<HorizontalPodAutoscaler>(world, workloads::autoscaler(least, span)).await,
        }
    }

    async fn pods(&mut self, world: &World, model: &ReferenceModel) {
        let Some(pod) = world.pick(model.all("Pod").cloned().collect()) else {
            return;
        };
        if world.once_in(2) {
            return evict(world, &pod).await;
        }
        self.deleted.insert(pod.uid.clone());
        world.delete::<Pod>(&pod.key).await;
    }

    async fn nodes(&mut self, world: &World, model: &ReferenceModel, kubelets: &mut Kubelets) {
        let name = format!("n{}", world.dice(NODES));
        let key = ObjectKey::cluster(name.clone());
        match world.dice(6) {
            0 => change::<Node>(world, &key, json!({"unschedulable": true})).await,
            1 => change::<Node>(world, &key, json!({"unschedulable": false})).await,
            2 if name != "n0" && model.get("Node", "", &name).is_some() => world.delete::<Node>(&key).await,
            _ if name != "n0" => {
                let until = world.runtime.monotonic() + Duration::from_secs(world.dice(DEAD_SECONDS));
                kubelets.kill(&name, until);
            }
            _ => {}
        }
    }

    async fn delete<K: Resource<Scope: 'static>>(&mut self, world: &World, own: &ObjectVersion) {
        self.deleted.insert(own.uid.clone());
        let options = DeleteOptions {
            propagation: Some(way(world)),
            ..DeleteOptions::uid(&own.uid)
        };
        world.delete_with::<K>(&own.key, options).await;
    }
}

/// Creates an object, unless its name is taken or admission refuses it.
async fn make<K: Resource<Scope: 'static>>(world: &World, object: Value) {
    if let Err(error) = world.create::<K>(object.clone()).await {
        assert!(
            error.is_already_exists() || error.is_forbidden(),
            "creating {object}: {error}"
        );
    }
}

/// Changes a spec, where the object is there and takes the change.
async fn change<K: Resource<Scope: 'static>>(world: &World, key: &ObjectKey, spec: Value) {
    let (resource, body) = (ApiResource::of::<K>(), json!({"spec": spec}));
    let sent = world.client.patch(&resource, key, "", &Patch::Merge, &body).await;
    if let Err(error) = sent {
        assert!(
            error.is_not_found() || error.is_invalid(),
            "changing {key} by {body}: {error}"
        );
    }
}

/// Evicts as `kubectl drain` does; the eviction may be refused.
async fn evict(world: &World, pod: &ObjectVersion) {
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod.name(), "namespace": pod.namespace()}});
    let pods = ApiResource::of::<Pod>();
    drop(
        world
            .client
            .create_subresource(&pods, &pod.key, "eviction", &body)
            .await,
    );
}
