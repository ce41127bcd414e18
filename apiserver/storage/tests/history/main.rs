//! The proof: whatever a disk may do to what was not synced, nothing acknowledged is lost, nothing shown is taken back,
//! groups are whole, and every read and watch is one of the one order of changes.
//!
//! Two stories: the log on a simulated disk, which crashes; and etcd, a model of it, whose connections break and whose
//! members are behind. The clients and what must follow are the same.
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
mod etcd;
mod flips;
mod instance;

use apiserver_storage::Storage;
use checker::{Checker, Counts};
use clients::Place;
use instance::{Ending, Instance};
use machinery_runtime::{Runtime, SimDisk, Simulation, seeds};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// How often a seed starts the store anew.
const LIVES: u64 = 4;
const DEFAULT_SEEDS: u64 = 60;

/// One world from first start to last crash; what the checker counted.
fn live_through(seed: u64) -> (u64, Counts) {
    let simulation = Simulation::new(seed);
    let (runtime, disk) = (simulation.runtime(), simulation.disk());
    let counts = simulation.run(lives(runtime, disk));
    (simulation.trace_hash(), counts)
}

async fn lives(runtime: Runtime, disk: Arc<SimDisk>) -> Counts {
    let checker = Arc::new(Mutex::new(Checker::default()));
    for _ in 0..LIVES {
        let instance = Instance::start(&runtime, &disk).await;
        checker::recovered(&checker, &instance.storage).await;
        let ending = Ending::draw(&runtime);
        ending.prepare(&runtime, &disk);
        let storage: Arc<dyn Storage> = instance.storage.clone();
        clients::start(instance.scope.runtime(), &storage, Place::Here, &checker);
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

/// Tells the story of every seed that was asked for; a failing one is named. Where there are as many as usual, together
/// they must have met everything that `met` lists.
fn tell(default: u64, live: fn(u64) -> (u64, Counts), met: fn(&Counts) -> Vec<u64>) {
    let mut total = Counts::default();
    let range = seeds(default);
    let runs = range.end - range.start;
    for seed in range {
        let run = std::panic::catch_unwind(|| live(seed));
        let (_, counts) = run.unwrap_or_else(|_| panic!("seed {seed} failed"));
        total.add(&counts);
    }
    println!("{runs} seeds: {total:?}");
    assert!(runs < default || !met(&total).contains(&0), "{total:?}");
}

#[test]
fn nothing_acknowledged_or_shown_is_lost() {
    tell(DEFAULT_SEEDS, live_through, |total| {
        let writes = [total.acknowledged, total.uncertain_kept, total.uncertain_lost];
        let reads = [total.reads, total.told, total.catching_up, total.compacted];
        [&writes[..], &reads].concat()
    });
}

#[test]
fn nothing_is_missed_or_told_twice_over_etcd() {
    tell(etcd::DEFAULT_SEEDS, etcd::live_through, |total| {
        let writes = [total.acknowledged, total.uncertain_kept, total.uncertain_lost];
        let reads = [total.reads, total.compacted, total.too_late];
        let watches = [total.told, total.marks, total.resumed, total.catching_up];
        [&writes[..], &reads, &watches].concat()
    });
}

#[test]
fn a_seed_runs_the_same_twice() {
    for seed in 0..4 {
        assert_eq!(live_through(seed).0, live_through(seed).0, "seed {seed}");
        assert_eq!(
            etcd::live_through(seed).0,
            etcd::live_through(seed).0,
            "seed {seed}"
        );
    }
}
