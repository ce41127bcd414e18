//! Tells a story once per seed.

use crate::history::History;
use crate::image::Image;
use crate::model::{Change, Model, Observer};
use crate::world::{Setting, World};
use cluster::{Rates, Request};
use controllers_manager::Config;
use machinery_runtime::{Simulation, seeds};
use std::time::Duration;

/// Seeds of a plain run.
const DEFAULT_SEEDS: u64 = 4;
/// Of so many steps, in one the components die.
const RESTART_ONE_IN: u64 = 15;
/// Of so many steps, in one the power goes.
const POWER_ONE_IN: u64 = 40;
/// How long a healed world may take to come to rest, in its own time.
const REST: Duration = Duration::from_secs(1800);
/// How long it must then stay as it is.
const QUIET: Duration = Duration::from_secs(120);
/// How often nodes do what they do at least.
const TEND_EVERY: Duration = Duration::from_secs(10);
/// How often a healing world is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// One controller's story.
pub(crate) trait Story: Send + 'static {
    /// Controllers that run.
    const CONTROLLERS: &'static [&'static str];
    /// Whether the scheduler runs.
    const SCHEDULER: bool = false;
    /// Things that happen.
    const STEPS: u32 = 20;
    /// The longest time between two of them.
    const STEP_MILLIS: u64 = 900;

    /// Settings of the controllers.
    fn configure(&self, _config: &mut Config) {}

    /// What there is in the beginning.
    fn begin(&mut self, world: &World) -> impl Future<Output = ()> + Send;

    /// One thing that a user does.
    fn act(&mut self, world: &World, model: &Model) -> impl Future<Output = ()> + Send;

    /// What nodes do, all the time, also while the world comes to rest.
    fn tend(&mut self, _world: &World, _model: &Model) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The last thing that users do.
    fn end(&mut self, _world: &World) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// What is true at every revision.
    fn holds(&mut self, model: &Model, change: &Change) -> Result<(), String>;

    /// What is true in the end.
    fn settled(&self, model: &Model) -> Result<(), String>;

    /// What is true of everything that components sent and the server answered.
    fn sent(&self, _mutations: &[Request]) -> Result<(), String> {
        Ok(())
    }
}

/// Tells the story of each seed that is asked for.
pub(crate) fn tell<S: Story>(story: impl Fn() -> S) {
    for seed in seeds(DEFAULT_SEEDS) {
        tell_one(story(), seed);
    }
}

/// Tells the story of one seed; answers the hash of everything that happened.
pub(crate) fn tell_one<S: Story>(story: S, seed: u64) -> u64 {
    // Made by a simulation of its own, so before this one runs.
    Image::get();
    let simulation = Simulation::new(seed);
    let mut config = Config::default();
    story.configure(&mut config);
    let setting = Setting {
        controllers: S::CONTROLLERS,
        scheduler: S::SCHEDULER,
        config,
    };
    let world = World::new(simulation.runtime(), simulation.disk(), setting);
    simulation.run(async move {
        let world = world.await;
        let observer = Observer::new(&*world.storage).await;
        let telling = Telling {
            story,
            world,
            observer,
            history: History::default(),
        };
        telling.run().await;
    });
    simulation.trace_hash()
}

struct Telling<S> {
    story: S,
    world: World,
    observer: Observer,
    history: History,
}

impl<S: Story> Telling<S> {
    async fn run(mut self) {
        self.story.begin(&self.world).await;
        for _ in 0..S::STEPS {
            let pause = 1 + self.world.dice(S::STEP_MILLIS);
            self.pass(Duration::from_millis(pause)).await;
            self.meet_fate().await;
            self.story.act(&self.world, &self.observer.model).await;
        }
        self.story.end(&self.world).await;
        self.world.faults.set(Rates::NONE);
        self.come_to_rest().await;
        self.stay_quiet().await;
    }

    /// Time passes, and nodes go on; whatever was written meanwhile keeps the invariant.
    async fn pass(&mut self, mut time: Duration) {
        while !time.is_zero() {
            let step = time.min(TEND_EVERY);
            time -= step;
            self.world.runtime.sleep(step).await;
            self.look().await;
            self.story.tend(&self.world, &self.observer.model).await;
            self.look().await;
        }
    }

    async fn look(&mut self) {
        let (story, history) = (&mut self.story, &mut self.history);
        let now = self.world.runtime.monotonic();
        let each = |model: &Model, change: Change| {
            let broken = story.holds(model, &change);
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
        self.look().await;
    }

    async fn come_to_rest(&mut self) {
        let start = self.world.runtime.monotonic();
        loop {
            self.pass(LOOK_EVERY).await;
            let Err(why) = self.story.settled(&self.observer.model) else {
                return;
            };
            let waited = self.world.runtime.monotonic() - start;
            assert!(waited < REST, "did not come to rest: {why}\n{}", self.history);
        }
    }

    /// A world at rest stays so, and nobody writes.
    async fn stay_quiet(&mut self) {
        self.pass(QUIET).await;
        let before = self.world.faults.mutations().len();
        self.pass(QUIET).await;
        if let Err(why) = self.story.settled(&self.observer.model) {
            panic!("was at rest, and then: {why}\n{}", self.history);
        }
        let mutations = self.world.faults.mutations();
        if let Err(why) = self.story.sent(&mutations) {
            panic!("{why}");
        }
        assert_eq!(
            &mutations[before..],
            &[],
            "somebody writes though nothing changes"
        );
    }
}
