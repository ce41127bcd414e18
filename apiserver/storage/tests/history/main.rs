//! The proof: whatever a disk may do to what was not synced, nothing acknowledged is lost, nothing shown is taken back,
//! groups are whole, and every read and watch is one of the one order of changes.
//!
//! A seed decides everything: the clients, the order of tasks, the crashes and what they keep. `KNARR_SEEDS` says how
//! many seeds are run (and from which: `1000` or `5000..6000`); a failing seed is named.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test, helpers included"
)]

mod checker;
mod clients;
mod flips;
mod instance;

use checker::Checker;
use instance::{Ending, Instance};
use machinery_runtime::{Runtime, SimDisk, Simulation, seeds};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// How often a seed starts the store anew.
const LIVES: u64 = 4;
const DEFAULT_SEEDS: u64 = 60;

/// One world from first start to last crash; what the checker counted.
fn live_through(seed: u64) -> (u64, checker::Counts) {
    let simulation = Simulation::new(seed);
    let (runtime, disk) = (simulation.runtime(), simulation.disk());
    let counts = simulation.run(lives(runtime, disk));
    (simulation.trace_hash(), counts)
}

async fn lives(runtime: Runtime, disk: Arc<SimDisk>) -> checker::Counts {
    let checker = Arc::new(Mutex::new(Checker::default()));
    for _ in 0..LIVES {
        let instance = Instance::start(&runtime, &disk).await;
        checker::recovered(&checker, &instance.storage).await;
        let ending = Ending::draw(&runtime);
        ending.prepare(&runtime, &disk);
        clients::start(&runtime, &instance, &checker);
        runtime
            .sleep(Duration::from_micros(5_000 + runtime.random_u64() % 60_000))
            .await;
        instance.end(ending, &runtime, &disk).await;
    }
    let instance = Instance::start(&runtime, &disk).await;
    checker::recovered(&checker, &instance.storage).await;
    checker::fully_verified(&instance).await;
    let counts = checker.lock().finish();
    instance.end(Ending::Close, &runtime, &disk).await;
    counts
}

#[test]
fn nothing_acknowledged_or_shown_is_lost() {
    let mut total = checker::Counts::default();
    let range = seeds(DEFAULT_SEEDS);
    let runs = range.end - range.start;
    for seed in range {
        let run = std::panic::catch_unwind(|| live_through(seed));
        let (_, counts) = run.unwrap_or_else(|_| panic!("seed {seed} failed"));
        total.add(&counts);
    }
    println!("{runs} seeds: {total:?}");
    assert!(
        total.acknowledged > 0 && total.uncertain_kept > 0 && total.uncertain_lost > 0,
        "{total:?}"
    );
    assert!(
        total.reads > 0 && total.told > 0 && total.from_log > 0 && total.compacted > 0,
        "{total:?}"
    );
}

#[test]
fn a_seed_runs_the_same_twice() {
    for seed in 0..4 {
        assert_eq!(live_through(seed).0, live_through(seed).0, "seed {seed}");
    }
}
