//! The whole cluster: every controller, the scheduler, kubelets, and a user who makes, scales, rolls and deletes workloads
//! and loses nodes, behind everything that a transport can do ([`Rates::HARSH`]), with two managers of which one may be slow
//! and a wall clock that jumps.
//!
//! [`bounds`], [`accounts`], [`evictions`] and [`preemptions`] hold at every revision; [`rest`] is true in the end.

mod accounts;
mod bounds;
mod evictions;
mod preemptions;
mod rest;
mod user;
mod workloads;

use crate::Scenario;
use crate::kubelets::Kubelets;
use crate::model::{Change, ReferenceModel};
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use cluster::Rates;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time by which a controller may be behind: what a watch lags ([`Rates::HARSH`]), the frames behind that, and one request.
const LAG: Duration = Duration::from_secs(420);

struct Whole {
    user: user::User,
    kubelets: Kubelets,
    bounds: bounds::Bounds,
    accounts: accounts::Accounts,
    evictions: evictions::Evictions,
    preemptions: preemptions::Preemptions,
    /// Jobs of CronJobs that were made, by name, and the last uid of each.
    cron_jobs: BTreeMap<String, machinery_meta::Uid>,
    now: Duration,
}

impl Default for Whole {
    fn default() -> Self {
        Self {
            user: user::User::default(),
            kubelets: Kubelets::new(user::nodes(), bounds::NODE_PODS as u64),
            bounds: bounds::Bounds::default(),
            accounts: accounts::Accounts::default(),
            evictions: evictions::Evictions::default(),
            preemptions: preemptions::Preemptions::default(),
            cron_jobs: BTreeMap::new(),
            now: Duration::ZERO,
        }
    }
}

impl Scenario for Whole {
    const CONTROLLERS: &'static [&'static str] = &["*"];
    const SCHEDULER: bool = true;
    const TWO_MANAGERS: bool = true;
    const RATES: Rates = Rates::HARSH;
    const CLOCK_JUMPS_ONE_IN: u64 = 12;
    const STEPS: u32 = 120;
    const STEP_MILLIS: u64 = 15_000;

    async fn begin(&mut self, world: &World) {
        self.user.begin(world).await;
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        self.user.step(world, model, &mut self.kubelets).await;
    }

    async fn run_nodes(&mut self, world: &World, model: &ReferenceModel) {
        self.now = world.runtime.monotonic();
        self.kubelets.run(world, model).await;
        self.evictions.begun(world.started);
        if let Err(broken) = self.evictions.check_late(model, self.now) {
            panic!("{broken}");
        }
    }

    async fn final_step(&mut self, world: &World) {
        self.kubelets.heal();
        self.user.end(world).await;
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        self.bounds.check(model, change, self.now)?;
        self.accounts.check(change)?;
        self.evictions.check(change, self.now)?;
        self.preemptions.check(model, change, self.now)?;
        self.check_schedule(change)
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        rest::check(model)?;
        self.accounts.check_all(model)
    }
}

impl Whole {
    /// No time of a schedule has two Jobs, unless the user took the first.
    fn check_schedule(&mut self, change: &Change) -> Result<(), String> {
        let made = change.made("Job");
        let Some(job) = made.filter(|job| job.controller().is_some_and(|own| &*own.kind == "CronJob")) else {
            return Ok(());
        };
        let name = format!("{} {}", job.controller().map_or("", |own| &own.uid.0), job.key);
        match self.cron_jobs.insert(name, job.uid.clone()) {
            Some(first) if !self.user.deleted.contains(&first) => Err("made twice".to_owned()),
            _ => Ok(()),
        }
    }
}

#[test]
fn whole_cluster_scenario() {
    run_seeds(Whole::default);
}
