//! Owner references are what the author of an object says they are. Objects of another namespace that name the uid of a
//! workload as their controller, and stay since they have a finalizer, are none of its own: every workload has what it
//! requests of its own namespace, and the objects of others are left as they are.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::replica_set::template;
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Namespace, Pod, ReplicationController, ServiceAccount};
use serde_json::{Value, json};

const STRANGE: &str = "other";
const REPLICAS: i64 = 3;
const OWNERS: [&str; 6] = [
    "ReplicaSet",
    "ReplicationController",
    "StatefulSet",
    "Deployment",
    "Job",
    "CronJob",
];

#[derive(Default)]
struct Strangers;

/// A workload whose name is `w` and whose pods carry `app: KIND`.
fn workload(kind: &str) -> Value {
    let labels = json!({"app": kind});
    let mut template = template(&labels);
    let mut spec = json!({"replicas": REPLICAS, "selector": {"matchLabels": labels}});
    match kind {
        "ReplicationController" => spec["selector"] = labels,
        "StatefulSet" => {
            spec["serviceName"] = json!("s");
            spec["podManagementPolicy"] = json!("Parallel");
        }
        "Job" | "CronJob" => {
            template["spec"]["restartPolicy"] = json!("Never");
            spec = json!({"completions": REPLICAS, "parallelism": REPLICAS});
        }
        _ => {}
    }
    spec["template"] = template;
    if kind == "CronJob" {
        spec = json!({"schedule": "0 0 1 1 *", "successfulJobsHistoryLimit": 0, "failedJobsHistoryLimit": 0,
            "jobTemplate": {"spec": spec}});
    }
    json!({"metadata": {"name": "w"}, "spec": spec})
}

/// An object of the strange namespace that says that the owner controls it.
fn stranger(world: &World, owner: &ObjectVersion, fields: &Value) -> Value {
    let mut object = fields.clone();
    let api_version = match owner.kind.as_str() {
        "ReplicationController" => "v1",
        "Job" | "CronJob" => "batch/v1",
        _ => "apps/v1",
    };
    let labels = json!({"app": owner.kind, "pod-template-hash": "x", "controller-revision-hash": "x"});
    object["metadata"] = json!({
        "namespace": STRANGE, "labels": labels, "finalizers": ["strange.example/stays"],
        // A StatefulSet's first pods, and names of their own.
        "name": format!("w-{}", world.dice(1_000)),
        "ownerReferences": [{"apiVersion": api_version, "kind": owner.kind, "name": "w", "uid": owner.uid.0,
            "controller": true, "blockOwnerDeletion": true}]});
    object
}

async fn make_stranger(world: &World, owner: &ObjectVersion) {
    let of = |fields: &Value| stranger(world, owner, fields);
    let made = match owner.kind.as_str() {
        "Deployment" => {
            let mut set = workload("Deployment");
            set["spec"]["template"]["metadata"]["labels"] = json!({"app": "Deployment"});
            world.create::<ReplicaSet>(of(&set)).await
        }
        "CronJob" => world.create::<Job>(of(&workload("Job"))).await,
        "StatefulSet" if world.once_in(2) => {
            let revision = json!({"revision": 1_000, "data": {"spec": {"template": {"spec": {}}}}});
            world.create::<ControllerRevision>(of(&revision)).await
        }
        kind => {
            let mut pod = template(&json!({"app": kind}));
            pod["spec"]["restartPolicy"] = json!("Never");
            world.create::<Pod>(of(&pod)).await
        }
    };
    // The name may be taken by an earlier one.
    drop(made);
}

impl Scenario for Strangers {
    const CONTROLLERS: &'static [&'static str] = &[
        "replicaset-controller",
        "replicationcontroller-controller",
        "statefulset-controller",
        "deployment-controller",
        "job-controller",
        "cronjob-controller",
    ];
    const STEPS: u32 = 30;

    async fn begin(&mut self, world: &World) {
        let namespace = json!({"metadata": {"name": STRANGE}});
        world.create::<Namespace>(namespace).await.unwrap();
        let account = json!({"metadata": {"name": "default", "namespace": STRANGE}});
        world.create::<ServiceAccount>(account).await.unwrap();
        world.create::<ReplicaSet>(workload("ReplicaSet")).await.unwrap();
        let controller = workload("ReplicationController");
        world.create::<ReplicationController>(controller).await.unwrap();
        world
            .create::<StatefulSet>(workload("StatefulSet"))
            .await
            .unwrap();
        world.create::<Deployment>(workload("Deployment")).await.unwrap();
        world.create::<Job>(workload("Job")).await.unwrap();
        world.create::<CronJob>(workload("CronJob")).await.unwrap();
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let owners = OWNERS.iter().filter_map(|kind| model.get(kind, "default", "w"));
        let Some(owner) = world.pick(owners.cloned().collect()) else {
            return;
        };
        make_stranger(world, &owner).await;
        let strange = model.all("Pod").filter(|pod| pod.namespace() == STRANGE);
        if let Some(pod) = world.pick(strange.cloned().collect()) {
            world.pod_is(&pod, "Succeeded").await;
        }
        let own = model.all("Pod").filter(|pod| pod.namespace() == "default");
        if let Some(pod) = world.pick(own.cloned().collect()).filter(|_| world.once_in(4)) {
            world.delete::<Pod>(&pod.key).await;
        }
    }

    fn check_invariant(&mut self, _: &ReferenceModel, change: &Change) -> Result<(), String> {
        let (Some(before), Some(after)) = (&change.before, &change.after) else {
            let gone = change.latest();
            let strange = gone.namespace() == STRANGE && change.after.is_none();
            return if strange {
                Err("a stranger was deleted".to_owned())
            } else {
                Ok(())
            };
        };
        let same = before.generation == after.generation
            && !after.is_deleting()
            && before.controller() == after.controller();
        match after.namespace() == STRANGE && after.kind != "Namespace" && !same {
            true => Err("a stranger was changed".to_owned()),
            false => Ok(()),
        }
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        let active = |kind: &str| {
            let own = |pod: &&std::sync::Arc<ObjectVersion>| {
                pod.namespace() == "default" && pod.is_active_pod() && pod.label("app") == Some(kind)
            };
            model.all("Pod").filter(own).count() as i64
        };
        for kind in ["ReplicaSet", "ReplicationController", "StatefulSet", "Job"] {
            if active(kind) != REPLICAS {
                return Err(format!("{kind} has {} pods", active(kind)));
            }
        }
        if active("Deployment") != REPLICAS {
            return Err(format!("the Deployment has {} pods", active("Deployment")));
        }
        let job = model.get("Job", "default", "w").ok_or("no Job")?;
        if job.number("/status/succeeded") != 0 {
            return Err("a stranger's success counted".to_owned());
        }
        let set = model.get("StatefulSet", "default", "w").ok_or("no StatefulSet")?;
        match set.number("/status/replicas") == REPLICAS {
            true => Ok(()),
            false => Err(format!("the StatefulSet says {}", set.number("/status/replicas"))),
        }
    }
}

#[test]
fn strangers_of_another_namespace_are_nobodys() {
    run_seeds(Strangers::default);
}
