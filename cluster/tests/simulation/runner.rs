//! Runs a scenario once per seed.

use crate::disk_snapshot::Image;
use crate::history::Trace;
use crate::model::{Change, Observer, ReferenceModel};
use crate::simulated_cluster::{Setting, World};
use cluster::{Rates, Request};
use controllers_manager::Config;
use machinery_runtime::{Simulation, seeds};
use std::time::Duration;

/// Seeds of a plain run.
const DEFAULT_SEEDS: u64 = 4;
/// Number of steps of which in one the components die.
const RESTART_ONE_IN: u64 = 15;
/// Number of steps of which in one the power goes.
const POWER_ONE_IN: u64 = 40;
/// Number of steps of which in one a manager becomes slow, or as fast as the other again.
const SLOW_ONE_IN: u64 = 8;
const LONGEST_JUMP_SECONDS: u64 = 900;
/// Time that a healed world may take to come to rest, by its own clock.
const REST: Duration = Duration::from_secs(1800);
/// Time that it must then stay as it is.
const QUIET: Duration = Duration::from_secs(120);
/// Longest interval at which nodes act.
const TEND_EVERY: Duration = Duration::from_secs(10);
/// Interval at which a healing world is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A controller's scenario.
pub(crate) trait Scenario: Send + 'static {
    /// Controllers that run.
    const CONTROLLERS: &'static [&'static str];
    /// True if the scheduler runs.
    const SCHEDULER: bool = false;
    /// True if a second manager and scheduler stand for election beside the first, and each is slow now and then.
    const TWO_MANAGERS: bool = false;
    /// Faults of the transport.
    const RATES: Rates = Rates::SOME;
    /// Number of steps of which in one the wall clock jumps; zero: it never does.
    const CLOCK_JUMPS_ONE_IN: u64 = 0;
    /// Things that happen.
    const STEPS: u32 = 20;
    /// The longest time between two of them.
    const STEP_MILLIS: u64 = 900;

    /// Settings of the controllers.
    fn configure(&self, _config: &mut Config) {}

    /// Makes the first objects.
    fn begin(&mut self, world: &World) -> impl Future<Output = ()> + Send;

    /// One thing that a user does.
    fn step(&mut self, world: &World, model: &ReferenceModel) -> impl Future<Output = ()> + Send;

    /// Acts for the nodes, all the time, also while the world comes to rest.
    fn run_nodes(&mut self, _world: &World, _model: &ReferenceModel) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The last thing that users do.
    fn final_step(&mut self, _world: &World) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Checks what is true at every revision.
    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String>;

    /// Checks what is true in the end.
    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String>;

    /// Checks everything that components sent and the server answered.
    fn sent(&self, _mutations: &[Request]) -> Result<(), String> {
        Ok(())
    }
}

/// Runs the scenario for each requested seed.
pub(crate) fn run_seeds<S: Scenario>(scenario: impl Fn() -> S) {
    for seed in seeds(DEFAULT_SEEDS) {
        run_seed(scenario(), seed);
    }
}

/// Runs the scenario with one seed; returns the hash of everything that happened.
pub(crate) fn run_seed<S: Scenario>(scenario: S, seed: u64) -> u64 {
    // Made by a simulation of its own, so before this one runs.
    Image::get();
    let simulation = Simulation::new(seed);
    let mut config = Config::default();
    scenario.configure(&mut config);
    let setting = Setting {
        controllers: S::CONTROLLERS,
        scheduler: S::SCHEDULER,
        two_managers: S::TWO_MANAGERS,
        rates: S::RATES,
        config,
    };
    let world = World::new(simulation.runtime(), simulation.disk(), setting);
    simulation.run(async move {
        let world = world.await;
        let observer = Observer::new(&*world.storage).await;
        let telling = Run {
            scenario,
            world,
            observer,
            history: Trace::default(),
            clock: Clock::default(),
        };
        telling.run().await;
    });
    simulation.trace_hash()
}

struct Run<S> {
    scenario: S,
    world: World,
    observer: Observer,
    history: Trace,
    clock: Clock,
}

/// Seconds by which the wall clock is wrong, and the furthest that it has been ahead.
#[derive(Default)]
struct Clock {
    wrong: i64,
    furthest: i64,
}

impl Clock {
    fn jump(&mut self, world: &World, seconds: i64) {
        self.wrong += seconds;
        self.furthest = self.furthest.max(self.wrong);
        world.runtime.jump_clock(seconds);
    }

    /// Goes on from the latest time that it has shown: a status with a time of the future is refused until then, as upstream's.
    fn settle(&mut self, world: &World) {
        let behind = self.furthest - self.wrong;
        if behind > 0 {
            self.jump(world, behind);
        }
    }
}

impl<S: Scenario> Run<S> {
    async fn run(mut self) {
        self.scenario.begin(&self.world).await;
        for _ in 0..S::STEPS {
            let pause = 1 + self.world.dice(S::STEP_MILLIS);
            self.pass(Duration::from_millis(pause)).await;
            self.meet_fate().await;
            self.scenario.step(&self.world, &self.observer.model).await;
        }
        self.scenario.final_step(&self.world).await;
        self.world.heal();
        self.clock.settle(&self.world);
        self.come_to_rest().await;
        self.check_quiescent().await;
    }

    /// Time passes, and nodes go on; whatever was written meanwhile keeps the invariant.
    async fn pass(&mut self, mut time: Duration) {
        while !time.is_zero() {
            let step = time.min(TEND_EVERY);
            time -= step;
            self.world.runtime.sleep(step).await;
            self.look().await;
            self.scenario.run_nodes(&self.world, &self.observer.model).await;
            self.look().await;
        }
    }

    async fn look(&mut self) {
        let (scenario, history) = (&mut self.scenario, &mut self.history);
        let now = self.world.runtime.monotonic();
        let runtime = self.world.runtime.clone();
        let each = |model: &ReferenceModel, change: Change| {
            runtime.trace(&change.bytes());
            let broken = scenario.check_invariant(model, &change);
            let (kind, key) = (change.latest().kind.clone(), change.latest().key.clone());
            history.add(now, change);
            if let Err(broken) = broken {
                panic!("{kind} {key}: {broken}\n{history}");
            }
        };
        self.observer.catch_up(each).await;
    }

    async fn meet_fate(&mut self) {
        if self.world.once_in(RESTART_ONE_IN) {
            self.world.restart().await;
        }
        if self.world.once_in(POWER_ONE_IN) {
            self.world.lose_power().await;
            self.observer.reopen(&*self.world.storage).await;
        }
        if S::TWO_MANAGERS && self.world.once_in(SLOW_ONE_IN) {
            self.world.slow_down();
        }
        if S::CLOCK_JUMPS_ONE_IN > 0 && self.world.once_in(S::CLOCK_JUMPS_ONE_IN) {
            let seconds = self.world.dice(2 * LONGEST_JUMP_SECONDS) as i64;
            self.clock
                .jump(&self.world, seconds - LONGEST_JUMP_SECONDS as i64);
        }
        self.look().await;
    }

    async fn come_to_rest(&mut self) {
        let start = self.world.runtime.monotonic();
        loop {
            self.pass(LOOK_EVERY).await;
            let Err(why) = self.scenario.check_converged(&self.observer.model) else {
                return;
            };
            let waited = self.world.runtime.monotonic() - start;
            assert!(waited < REST, "did not come to rest: {why}\n{}", self.history);
        }
    }

    /// A world at rest stays so, and no controller writes.
    async fn check_quiescent(&mut self) {
        self.pass(QUIET).await;
        let before = self.world.mutations().len();
        self.pass(QUIET).await;
        if let Err(why) = self.scenario.check_converged(&self.observer.model) {
            panic!("was at rest, and then: {why}\n{}", self.history);
        }
        let mutations = self.world.mutations();
        if let Err(why) = self.scenario.sent(&mutations) {
            panic!("{why}");
        }
        assert_eq!(
            &mutations[before..],
            &[],
            "somebody writes though nothing changes"
        );
    }
}
