//! A run that a seed decides.

use crate::disk::SimDisk;
use crate::runtime::Runtime;
use crate::scope::TaskEnded;
use crate::trace::Trace;
use parking_lot::Mutex;
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// One thread, paused time, seeded randomness and order of tasks, a [`SimDisk`].
///
/// Time moves only when every task waits, straight to the next timer. A ready task is now and then put back behind
/// the others, so that seeds explore different orders of the same program.
pub struct Simulation {
    seed: u64,
    world: Arc<SimulationState>,
    disk: Arc<SimDisk>,
    tokio: tokio::runtime::Runtime,
}

/// State behind a simulated [`Runtime`].
#[derive(Debug)]
pub(crate) struct SimulationState {
    pub(crate) trace: Trace,
    random: Mutex<ChaCha8Rng>,
    tasks: AtomicU64,
    started: Instant,
    /// Seconds by which the wall clock was set forward or back.
    jumped: AtomicI64,
}

/// Start of simulated time, in seconds since 1970: 2026-01-01T00:00:00Z.
const EPOCH_SECONDS: i64 = 1_767_225_600;
/// One poll in this many is put off.
const DEFER_ONE_IN: u32 = 4;
/// A run that takes longer than this, in its own time, waits for what will never come.
const LONGEST_RUN: Duration = Duration::from_secs(365 * 24 * 3600);
/// The longest pause between two steps of a worker, in microseconds.
const LONGEST_PAUSE_MICROS: u64 = 3_000;

/// Seeds of a test run: `KNARR_SEEDS` says how many (`1000`) or which (`5000..6000`),
/// `KNARR_SEED` names one; without either there are `default` many.
///
/// # Panics
/// When a variable says something else.
#[expect(
    clippy::disallowed_methods,
    reason = "the knobs of simulated tests, which have no config"
)]
pub fn seeds(default: u64) -> Range<u64> {
    let number = |text: &str| {
        text.parse::<u64>()
            .unwrap_or_else(|_| panic!("{text:?} is no seed"))
    };
    if let Ok(one) = std::env::var("KNARR_SEED") {
        let one = number(&one);
        return one..one + 1;
    }
    match std::env::var("KNARR_SEEDS") {
        Ok(text) => match text.split_once("..") {
            Some((from, to)) => number(from)..number(to),
            None => 0..number(&text),
        },
        Err(_) => 0..default,
    }
}

impl Simulation {
    /// A world that this seed decides.
    ///
    /// # Panics
    /// When the operating system refuses what a single-threaded tokio runtime needs.
    pub fn new(seed: u64) -> Self {
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a current-thread runtime needs only a few descriptors");
        let started = tokio.block_on(async { Instant::now() });
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let disk = Arc::new(SimDisk::new(random.next_u64()));
        let world = SimulationState {
            trace: Trace::new(seed),
            random: Mutex::new(random),
            tasks: AtomicU64::new(0),
            started,
            jumped: AtomicI64::new(0),
        };
        Self {
            seed,
            world: Arc::new(world),
            disk,
            tokio,
        }
    }

    /// The handle components are given; its disk is [`Simulation::disk`].
    pub fn runtime(&self) -> Runtime {
        Runtime::simulated(
            Arc::clone(&self.world),
            self.tokio.handle().clone(),
            self.disk.clone(),
        )
    }

    /// The disk, to crash it and to make it fail.
    pub fn disk(&self) -> Arc<SimDisk> {
        Arc::clone(&self.disk)
    }

    /// Runs a future as a task to its end, and with it whatever else is ready meanwhile.
    ///
    /// # Panics
    /// With the seed, when any task panicked or the main one never ends.
    pub fn run<F>(&self, main: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let runtime = self.runtime();
        let handle = runtime.spawn("main", main);
        let ended = self.tokio.block_on(runtime.timeout(LONGEST_RUN, handle));
        if let Some(panics) = self.world.trace.panics() {
            panic!(
                "in the simulation of seed {} tasks panicked:\n{panics}",
                self.seed
            );
        }
        match ended {
            Err(_) => panic!("seed {}: everyone waits for ever", self.seed),
            Ok(ended) => self.result(ended),
        }
    }

    fn result<T>(&self, ended: Result<T, TaskEnded>) -> T {
        match ended {
            Ok(output) => output,
            Err(TaskEnded::Cancelled) => panic!("seed {}: the main task was cancelled", self.seed),
            Err(TaskEnded::Panicked(message)) => panic!("seed {}: {message}", self.seed),
        }
    }

    /// Everything that happened so far, as one number: equal for equal seeds and programs.
    pub fn trace_hash(&self) -> u64 {
        self.world.trace.hash() ^ self.disk.activity()
    }

    /// Number of entries of the trace.
    pub fn steps(&self) -> u64 {
        self.world.trace.steps()
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("seed", &self.seed)
            .field("steps", &self.steps())
            .finish_non_exhaustive()
    }
}

impl SimulationState {
    pub(crate) fn monotonic(&self) -> Duration {
        Instant::now().duration_since(self.started)
    }

    pub(crate) fn now(&self) -> jiff::Timestamp {
        let seconds = EPOCH_SECONDS.saturating_add(self.jumped.load(Ordering::Relaxed));
        let epoch = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        epoch
            .checked_add(self.monotonic())
            .unwrap_or(jiff::Timestamp::MAX)
    }

    pub(crate) fn jump(&self, seconds: i64) {
        self.jumped.fetch_add(seconds, Ordering::Relaxed);
    }

    pub(crate) fn fill(&self, bytes: &mut [u8]) {
        self.random.lock().fill_bytes(bytes);
        self.trace.bytes(bytes);
    }

    /// A number for a new task, traced with its name.
    pub(crate) fn next_task(&self, name: &str) -> u64 {
        self.trace.bytes(name.as_bytes());
        self.tasks.fetch_add(1, Ordering::Relaxed)
    }

    /// Traces that a task may run now, and decides whether it must let others go first.
    pub(crate) fn defer(&self, task: u64) -> bool {
        let defer = self.random.lock().random_ratio(1, DEFER_ONE_IN);
        let elapsed = u64::try_from(self.monotonic().as_micros()).unwrap_or(u64::MAX);
        self.trace.number((task << 1) | u64::from(defer));
        self.trace.number(elapsed);
        defer
    }

    /// Pause of a worker before its next step.
    pub(crate) fn pause(&self) -> Duration {
        Duration::from_micros(self.random.lock().random_range(0..LONGEST_PAUSE_MICROS))
    }

    pub(crate) async fn yield_sometimes(&self) {
        let turns = self.random.lock().random_range(0..3_u32);
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }
}
