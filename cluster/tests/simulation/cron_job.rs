//! Jobs of two schedules end well and badly and are deleted, the schedules are suspended and changed, while messages are
//! lost. No time of a schedule has two Jobs, none is made beside one that is listed where that is forbidden, and in the end
//! status and history say what there is.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use machinery_meta::ObjectKey;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const HISTORY: usize = 2;

#[derive(Default)]
struct CronJobs {
    /// Names of Jobs that were made, and of those that users deleted.
    made: BTreeSet<String>,
    deleted: BTreeSet<String>,
    now: Option<jiff::Timestamp>,
}

fn cron_job(name: &str, schedule: &str, policy: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "schedule": schedule, "concurrencyPolicy": policy,
        "successfulJobsHistoryLimit": HISTORY, "failedJobsHistoryLimit": HISTORY,
        "jobTemplate": {"spec": {"backoffLimit": 0, "template": {"spec":
            {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}})
}

async fn change(world: &World, name: &str, spec: Value) {
    let key = ObjectKey::new("default", name);
    world.patch::<CronJob>(&key, json!({"spec": spec})).await;
}

fn is_finished(job: &ObjectVersion) -> bool {
    job.condition("Complete") == "True" || job.condition("Failed") == "True"
}

impl Scenario for CronJobs {
    const CONTROLLERS: &'static [&'static str] = &[
        "cronjob-controller",
        "job-controller",
        "garbage-collector-controller",
    ];
    const STEPS: u32 = 30;
    const STEP_MILLIS: u64 = 40_000;

    async fn begin(&mut self, world: &World) {
        for (name, schedule, policy) in [("a", "* * * * *", "Forbid"), ("b", "*/2 * * * *", "Replace")] {
            world
                .create::<CronJob>(cron_job(name, schedule, policy))
                .await
                .unwrap();
        }
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let name = if world.once_in(2) { "a" } else { "b" };
        let job = world.pick(model.all("Job").cloned().collect());
        match (world.dice(10), job) {
            (0, _) => change(world, name, json!({"suspend": true})).await,
            (1..3, _) => change(world, name, json!({"suspend": false})).await,
            (3, _) => {
                let minutes = 1 + world.dice(3);
                change(world, name, json!({"schedule": format!("*/{minutes} * * * *")})).await;
            }
            (4, Some(job)) => {
                self.deleted.insert(job.name().to_owned());
                world.delete::<Job>(&job.key).await;
            }
            _ => {}
        }
    }

    async fn final_step(&mut self, world: &World) {
        for name in ["a", "b"] {
            change(world, name, json!({"suspend": true})).await;
        }
    }

    async fn run_nodes(&mut self, world: &World, model: &ReferenceModel) {
        self.now = Some(world.runtime.now());
        for pod in model.all("Pod") {
            if pod.is_deleting() {
                world.pod_has_ended(pod).await;
            } else if pod.is_active_pod() && world.once_in(3) {
                let end = if world.once_in(4) { "Failed" } else { "Succeeded" };
                world.pod_is(pod, end).await;
            }
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        let Some(job) = change.made("Job") else {
            return Ok(());
        };
        let name = job.name().to_owned();
        if !self.made.insert(name.clone()) && !self.deleted.contains(&name) {
            return Err("made twice".to_owned());
        }
        let (owner, minutes) = name.rsplit_once('-').ok_or("not named for a time")?;
        let at = jiff::Timestamp::from_second(minutes.parse::<i64>().unwrap() * 60).unwrap();
        let now = self.now.unwrap_or(jiff::Timestamp::MAX);
        if at.duration_since(now) > jiff::SignedDuration::from_secs(60) {
            return Err(format!("made before {at}"));
        }
        let cron_job = model.get("CronJob", "default", owner).ok_or("no CronJob")?;
        let is_working = |own: &Value| {
            let job = model.get("Job", "default", own["name"].as_str().unwrap());
            job.is_some_and(|job| !is_finished(job))
        };
        if owner == "a" && cron_job.list("/status/active").iter().any(is_working) {
            return Err("made beside one that is at work".to_owned());
        }
        Ok(())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        for cron_job in model.all("CronJob") {
            let own = || model.all("Job").filter(|job| job.is_controlled_by(cron_job));
            if let Some(job) = own().find(|job| !is_finished(job) || job.is_deleting()) {
                return Err(format!("{} is not done", job.key));
            }
            for end in ["Complete", "Failed"] {
                let kept = own().filter(|job| job.condition(end) == "True").count();
                if kept > HISTORY {
                    return Err(format!("{kept} Jobs of {} are {end}", cron_job.key));
                }
            }
            if !cron_job.list("/status/active").is_empty() {
                return Err(format!("{:?}", cron_job.at("/status")));
            }
            let made = self
                .made
                .iter()
                .any(|job| job.starts_with(&format!("{}-", cron_job.name())));
            if made && cron_job.text("/status/lastScheduleTime").is_empty() {
                return Err("no lastScheduleTime".to_owned());
            }
            let last = own().map(|job| job.text("/status/completionTime")).max();
            if last.is_some_and(|last| last > cron_job.text("/status/lastSuccessfulTime")) {
                return Err(format!("last success is {last:?}: {:?}", cron_job.at("/status")));
            }
        }
        Ok(())
    }
}

#[test]
fn cron_job_scenario() {
    run_seeds(CronJobs::default);
}
