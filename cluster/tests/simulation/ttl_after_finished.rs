//! Jobs finish, and their time to live is changed now and then: none goes before its time, and in the end none is left
//! whose time has come.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::batch::v1::Job;
use machinery_meta::ObjectKey;
use serde_json::json;
use std::collections::BTreeSet;

const JOBS: u64 = 4;
/// Times to live, in seconds; one lives for ever.
const TTLS: [Option<i64>; 4] = [Some(0), Some(20), Some(90), None];

#[derive(Default)]
struct Finished {
    /// Jobs that users deleted, and the now of the last look.
    deleted: BTreeSet<String>,
    now: Option<jiff::Timestamp>,
}

impl Scenario for Finished {
    const CONTROLLERS: &'static [&'static str] = &[
        "job-controller",
        "ttl-after-finished-controller",
        "garbage-collector-controller",
    ];
    const STEPS: u32 = 30;
    const STEP_MILLIS: u64 = 20_000;

    async fn begin(&mut self, _: &World) {}

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let name = format!("j{}", world.dice(JOBS));
        let ttl = TTLS[usize::try_from(world.dice(4)).unwrap()];
        let key = ObjectKey::new("default", &*name);
        match (world.dice(5), model.get("Job", "default", &name)) {
            (_, None) => {
                let mut job = json!({"metadata": {"name": name}, "spec": {"template": {"spec":
                    {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
                if let Some(seconds) = ttl {
                    job["spec"]["ttlSecondsAfterFinished"] = json!(seconds);
                }
                // Its predecessor may still be on its way out.
                drop(world.create::<Job>(job).await);
            }
            (0, Some(own)) => {
                self.deleted.insert(own.uid.0.to_string());
                world.delete::<Job>(&key).await;
            }
            (1 | 2, Some(own)) if !own.is_deleting() => {
                world
                    .patch::<Job>(&key, json!({"spec": {"ttlSecondsAfterFinished": ttl}}))
                    .await;
            }
            _ => {}
        }
    }

    async fn run_nodes(&mut self, world: &World, model: &ReferenceModel) {
        self.now = Some(world.runtime.now());
        for pod in model.all("Pod") {
            if pod.is_deleting() {
                world.pod_has_ended(pod).await;
            } else if pod.is_active_pod() && world.once_in(2) {
                world.pod_is(pod, "Succeeded").await;
            }
        }
    }

    fn check_invariant(&mut self, _: &ReferenceModel, change: &Change) -> Result<(), String> {
        let Some(before) = change
            .before
            .as_ref()
            .filter(|own| own.kind == "Job" && !own.is_deleting())
        else {
            return Ok(());
        };
        let goes = change.after.as_ref().is_none_or(|after| after.is_deleting());
        if !goes || self.deleted.contains(&*before.uid.0) {
            return Ok(());
        }
        let marked = change
            .after
            .as_ref()
            .and_then(|own| own.deletion_timestamp.as_deref());
        let Some(due) = due(before) else {
            return Err("it goes and has no time to live".to_owned());
        };
        match marked.map(|at| at.parse::<jiff::Timestamp>().unwrap()) {
            Some(at) if at < due => Err(format!("it goes at {at}, {due} is its time")),
            _ => Ok(()),
        }
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        let late =
            |job: &ObjectVersion| job.is_deleting() || due(job).is_some_and(|due| Some(due) < self.now);
        if let Some(job) = model.all("Job").find(|job| late(job)) {
            return Err(format!("{} is left", job.name()));
        }
        let waiting = model
            .all("Job")
            .find(|job| job.condition("Complete") != "True" || due(job).is_some());
        waiting.map_or(Ok(()), |job| Err(format!("{} is still to go", job.name())))
    }
}

/// Time at which a finished Job is to go.
fn due(job: &ObjectVersion) -> Option<jiff::Timestamp> {
    let ttl = job.at("/spec/ttlSecondsAfterFinished")?.as_i64()?;
    let conditions = job.list("/status/conditions").iter();
    let mut ends = conditions
        .filter(|own| own["status"] == "True" && (own["type"] == "Complete" || own["type"] == "Failed"));
    let at = ends.next()?["lastTransitionTime"]
        .as_str()?
        .parse::<jiff::Timestamp>()
        .ok()?;
    at.checked_add(jiff::SignedDuration::from_secs(ttl)).ok()
}

#[test]
fn finished_jobs_go_at_their_time() {
    run_seeds(Finished::default);
}
