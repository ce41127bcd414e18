//! Pods end well and badly, and are deleted, and the Job is suspended now and then: never more at work than allowed,
//! every success counted once, and with indexes never two at one index. Where containers start again in their pods, no
//! pod follows the one that has used up the tries.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use machinery_meta::{ObjectKey, Uid};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

const COMPLETIONS: i64 = 6;
/// Restarts of the container that end a Job of [`Restarting`].
const RESTARTS: i64 = 3;
const RESTART_COUNT: &str = "/status/containerStatuses/0/restartCount";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

#[derive(Default)]
struct Jobs {
    indexed: bool,
    /// The largest parallelism so far.
    allowed: i64,
    succeeded: BTreeSet<Uid>,
    /// Pods that a user has deleted.
    deleted: BTreeSet<Uid>,
    /// Pods that have failed, or were deleted by a user before they could, while the Job still counted them.
    failed: BTreeSet<Uid>,
    counted: i64,
}

impl Scenario for Jobs {
    const CONTROLLERS: &'static [&'static str] = &["job-controller"];
    const STEPS: u32 = 25;

    async fn begin(&mut self, world: &World) {
        let mode = if self.indexed { "Indexed" } else { "NonIndexed" };
        let job = json!({"metadata": {"name": "a"}, "spec": {
            "completions": COMPLETIONS, "parallelism": 2, "backoffLimit": 100, "completionMode": mode,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
        world.create::<Job>(job).await.unwrap();
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let pod = world.pick(active(model).cloned().collect());
        match (world.dice(8), pod) {
            (0, _) => change(world, json!({"parallelism": 1 + world.dice(3)})).await,
            (1, _) => change(world, json!({"suspend": true})).await,
            (2..4, _) => change(world, json!({"suspend": false})).await,
            (4, Some(pod)) => world.pod_is(&pod, "Failed").await,
            (5, Some(pod)) => {
                self.deleted.insert(pod.uid.clone());
                world.delete::<Pod>(&pod.key).await;
            }
            (_, Some(pod)) => world.pod_is(&pod, "Succeeded").await,
            _ => {}
        }
    }

    async fn final_step(&mut self, world: &World) {
        change(world, json!({"suspend": false})).await;
    }

    async fn run_nodes(&mut self, world: &World, model: &ReferenceModel) {
        for pod in active(model) {
            if world.once_in(5) {
                world.pod_is(pod, "Succeeded").await;
            }
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        let Some(job) = model.get("Job", "default", "a") else {
            return Ok(());
        };
        self.allowed = self.allowed.max(job.number("/spec/parallelism"));
        // A pod whose finalizer the controller has removed to delete it counts nowhere, even if it ends before.
        if let Some(pod) = &change.after
            && pod.text("/status/phase") == "Succeeded"
            && !pod.finalizers.is_empty()
        {
            self.succeeded.insert(pod.uid.clone());
        }
        let failed = |pod: &&Arc<ObjectVersion>| match pod.text("/status/phase") {
            "Failed" => true,
            "Succeeded" => false,
            _ => pod.is_deleting() && self.deleted.contains(&pod.uid),
        };
        let counts = change
            .after
            .iter()
            .filter(|pod| pod.kind == "Pod" && !pod.finalizers.is_empty());
        let failed: Vec<Uid> = counts.filter(failed).map(|pod| pod.uid.clone()).collect();
        self.failed.extend(failed);
        if change.made("Pod").is_some() {
            self.within_bounds(model)?;
        }
        let counted = job.number("/status/succeeded");
        let listed = job.list("/status/uncountedTerminatedPods/succeeded").len() as i64;
        if counted < self.counted || counted + listed > self.succeeded.len() as i64 {
            return Err(format!(
                "{counted} counted and {listed} listed of {}",
                self.succeeded.len()
            ));
        }
        self.counted = counted;
        Ok(())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        let job = model.get("Job", "default", "a").ok_or("no job")?;
        let counted = job.number("/status/succeeded");
        // An index that succeeded twice (its first pod was deleted before it was counted) counts once.
        let right = if self.indexed {
            counted == COMPLETIONS
        } else {
            counted == self.succeeded.len() as i64
        };
        if job.condition("Complete") != "True" || !right || job.number("/status/active") != 0 {
            return Err(format!(
                "{} succeeded: {:?}",
                self.succeeded.len(),
                job.at("/status")
            ));
        }
        let failed = job.number("/status/failed");
        if failed != self.failed.len() as i64 {
            return Err(format!("{failed} failures counted of {}", self.failed.len()));
        }
        let held = |pod: &&Arc<ObjectVersion>| !pod.finalizers.is_empty() || pod.is_active_pod();
        model
            .all("Pod")
            .find(held)
            .map_or(Ok(()), |pod| Err(format!("{} is left", pod.key)))
    }
}

impl Jobs {
    fn within_bounds(&self, model: &ReferenceModel) -> Result<(), String> {
        let at_work = active(model).count() as i64;
        if at_work > self.allowed {
            return Err(format!("{at_work} at work, {} allowed", self.allowed));
        }
        let mut taken = BTreeSet::new();
        for index in active(model).filter_map(|pod| pod.label(INDEX)) {
            if !taken.insert(index) {
                return Err(format!("two pods at index {index}"));
            }
        }
        Ok(())
    }
}

async fn change(world: &World, spec: serde_json::Value) {
    // A Job that is finished refuses some changes.
    let key = ObjectKey::new("default", "a");
    let patch = machinery_client::Patch::Merge;
    let job = machinery_client::ApiResource::of::<Job>();
    let _refused = world
        .client
        .patch(&job, &key, "", &patch, &json!({"spec": spec}))
        .await;
}

fn active(model: &ReferenceModel) -> impl Iterator<Item = &Arc<ObjectVersion>> {
    model.all("Pod").filter(|pod| pod.is_active_pod())
}

/// One pod, whose container ends badly and is started again in it.
#[derive(Default)]
struct Restarting {
    used_up: bool,
}

impl Scenario for Restarting {
    const CONTROLLERS: &'static [&'static str] = &["job-controller"];
    const STEPS: u32 = 12;

    async fn begin(&mut self, world: &World) {
        let job = json!({"metadata": {"name": "a"}, "spec": {"backoffLimit": RESTARTS,
            "template": {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "c", "image": "i"}]}}}});
        world.create::<Job>(job).await.unwrap();
    }

    async fn step(&mut self, _: &World, _: &ReferenceModel) {}

    // Also while the world comes to rest: where components died and the power went, the pod may come only then.
    async fn run_nodes(&mut self, world: &World, model: &ReferenceModel) {
        for pod in active(model) {
            let restarts = pod.number(RESTART_COUNT) + 1;
            let containers =
                json!([{"name": "c", "restartCount": restarts, "image": "i", "imageID": "", "ready": false}]);
            let status = json!({"phase": "Running", "containerStatuses": containers});
            world.patch_status::<Pod>(&pod.key, status).await;
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        if self.used_up && change.made("Pod").is_some() {
            return Err("made after the tries were used up".to_owned());
        }
        self.used_up |= model.all("Pod").any(|pod| pod.number(RESTART_COUNT) >= RESTARTS);
        Ok(())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        let job = model.get("Job", "default", "a").ok_or("no job")?;
        let counted = (job.number("/status/failed"), job.number("/status/active"));
        if job.condition("Failed") != "True" || counted != (1, 0) || model.all("Pod").next().is_some() {
            return Err(format!("{:?}", job.at("/status")));
        }
        Ok(())
    }
}

/// Pods that never end; a client takes their owner or their labels away.
struct Claiming;

const PARALLELISM: i64 = 2;
const JOB_NAME: &str = "job-name";

impl Scenario for Claiming {
    const CONTROLLERS: &'static [&'static str] = &["job-controller"];
    const STEPS: u32 = 15;

    async fn begin(&mut self, world: &World) {
        let job = json!({"metadata": {"name": "a"}, "spec": {"parallelism": PARALLELISM, "completions": 100,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
        world.create::<Job>(job).await.unwrap();
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let Some(pod) = world.pick(active(model).cloned().collect()) else {
            return;
        };
        let metadata = match world.dice(3) {
            0 => json!({"labels": null}),
            _ => json!({"ownerReferences": null}),
        };
        world.patch::<Pod>(&pod.key, json!({"metadata": metadata})).await;
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        let at_work = selected(model).count() as i64;
        if change.made("Pod").is_some() && at_work > PARALLELISM {
            return Err(format!("{at_work} pods that the job selects"));
        }
        Ok(())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        let at_work = selected(model).filter(|pod| pod.controller().is_some()).count() as i64;
        let astray = |pod: &&Arc<ObjectVersion>| {
            let is_selected = pod.label(JOB_NAME).is_some();
            is_selected != pod.controller().is_some() || is_selected == pod.finalizers.is_empty()
        };
        match model.all("Pod").find(astray) {
            Some(pod) => Err(format!("{} is astray", pod.key)),
            None if at_work != PARALLELISM => Err(format!("{at_work} at work")),
            None => Ok(()),
        }
    }
}

/// Active pods that the Job's selector selects.
fn selected(model: &ReferenceModel) -> impl Iterator<Item = &Arc<ObjectVersion>> {
    active(model).filter(|pod| pod.label(JOB_NAME).is_some())
}

#[test]
fn jobs_take_pods_back_and_let_others_go() {
    run_seeds(|| Claiming);
}

#[test]
fn restarted_containers_use_up_the_tries() {
    run_seeds(Restarting::default);
}

#[test]
fn jobs_count_every_pod_once() {
    run_seeds(Jobs::default);
}

#[test]
fn indexed_jobs_have_one_pod_at_an_index() {
    run_seeds(|| Jobs {
        indexed: true,
        ..Jobs::default()
    });
}
