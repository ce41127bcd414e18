//! The power goes, or the process is killed, at every single step of a story on a full disk.
//!
//! Acknowledged writes are there, objects that a reader saw stay, the store starts though nothing is free, and the reserve is blank.

use super::crowded::{CROWD, Life, crowded, pieces};
use super::{RESERVE, RETRY, delete, names};
use apiserver_storage::{Storage, StorageError};
use machinery_runtime::{Runtime, SimDisk, Simulation};
use std::sync::Arc;

/// Steps of the disk in which a scenario has done everything, and seeds for each: a power loss keeps half of what it may lose.
struct Thoroughness {
    steps: u32,
    seeds: u32,
}

/// Objects that a life deletes.
const AT_ONCE: u32 = 12;
/// Objects that fit into a piece of the reserve.
const OF_A_PIECE: u32 = 16;

/// The fault at the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mishap {
    PowerLoss,
    /// kill -9: what was written is there, and is not on the disk.
    Kill,
}

impl Mishap {
    fn happen(self, disk: &SimDisk) {
        match self {
            Self::PowerLoss => disk.crash(),
            Self::Kill => disk.kill_where_power_went(),
        }
    }
}

/// Runs a scenario for each step; every third mishap is a kill.
fn at_every_step<F>(all: &Thoroughness, tell: impl Fn(Runtime, Arc<SimDisk>, u32, Mishap) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    for step in 0..all.steps {
        for seed in 0..all.seeds {
            let mishap = if seed % 3 == 1 {
                Mishap::Kill
            } else {
                Mishap::PowerLoss
            };
            let simulation = Simulation::new(u64::from(step * all.seeds + seed));
            let story = tell(simulation.runtime(), simulation.disk(), step, mishap);
            simulation.run(story);
        }
    }
}

/// Deletes objects from `first` on until the disk stops; how many deletions were acknowledged.
async fn delete_some(runtime: &Runtime, life: &Life, disk: &SimDisk, first: u32) -> u32 {
    let count = AT_ONCE.min(CROWD - first);
    for name in first..first + count {
        match life.storage.commit(vec![delete(name)]).await {
            Ok(_) => {}
            Err(StorageError::NoSpace) if !disk.is_off() => panic!("{name}: a deletion needs no room"),
            Err(error) => {
                assert!(disk.is_off(), "{name}: {error}");
                return name - first;
            }
        }
        if name % 6 == 0 {
            runtime.sleep(RETRY).await;
        }
    }
    count
}

async fn stop(life: Life, disk: &SimDisk, mishap: Mishap) {
    drop(life.storage);
    life.scope.stopped().await;
    mishap.happen(disk);
}

/// Objects that are there after a start; the one whose deletion was cut off is there or not, from then on for good.
async fn left_after(runtime: &Runtime, disk: &SimDisk, told: &str, expected: u32) -> (Life, u32) {
    let life = match Life::begin(runtime).await {
        Ok(life) => life,
        Err(error) => panic!("{told}: {error}"),
    };
    let left = u32::try_from(names(&life.storage).await).unwrap();
    assert!(
        left == expected || left + 1 == expected,
        "{told}: {left} of {expected}"
    );
    pieces(disk);
    (life, left)
}

#[test]
fn full_disk_keeps_what_was_acknowledged_and_seen_wherever_a_life_ends() {
    let all = Thoroughness { steps: 80, seeds: 3 };
    at_every_step(&all, |runtime, disk, step, mishap| async move {
        let told = format!("step {step}, {mishap:?}");
        let life = crowded(&runtime, &disk).await;
        disk.power_off_after(step);
        let gone = delete_some(&runtime, &life, &disk, 0).await;
        stop(life, &disk, mishap).await;
        let (life, left) = left_after(&runtime, &disk, &told, CROWD - gone).await;
        // What this life shows must not be taken back, though nothing more is written.
        life.lose_power(&disk).await;
        let (life, again) = left_after(&runtime, &disk, &told, left).await;
        assert_eq!(again, left, "{told}");
        let first = CROWD - left;
        let gone = delete_some(&runtime, &life, &disk, first).await;
        assert!(pieces(&disk) >= 1, "{told}");
        life.lose_power(&disk).await;
        let (life, last) = left_after(&runtime, &disk, &told, left - gone).await;
        assert_eq!(last, left - gone, "{told}");
        stop(life, &disk, Mishap::PowerLoss).await;
    });
}

#[test]
fn full_disk_is_started_on_wherever_a_start_ends() {
    let all = Thoroughness { steps: 60, seeds: 3 };
    at_every_step(&all, |runtime, disk, step, mishap| async move {
        let told = format!("step {step}, {mishap:?}");
        let life = crowded(&runtime, &disk).await;
        let gone = delete_some(&runtime, &life, &disk, 0).await;
        // The last batch is readable and is not on the disk, and no later sync brings it there.
        disk.fail_next_sync();
        let failed = life.storage.commit(vec![delete(gone)]).await;
        assert!(failed.is_err(), "{told}: the sync failed");
        drop(life.storage);
        life.scope.stopped().await;
        disk.kill();
        disk.power_off_after(step);
        let cut = Life::begin(&runtime).await;
        let seen = match cut {
            Ok(life) => {
                let seen = names(&life.storage).await;
                disk.keep_power();
                stop(life, &disk, Mishap::PowerLoss).await;
                Some(u32::try_from(seen).unwrap())
            }
            Err(error) => {
                assert!(disk.is_off(), "{told}: {error}");
                mishap.happen(&disk);
                None
            }
        };
        let (life, left) = left_after(&runtime, &disk, &told, CROWD - gone).await;
        assert!(seen.is_none_or(|seen| seen == left), "{told}: {left} of {seen:?}");
        let gone = delete_some(&runtime, &life, &disk, CROWD - left).await;
        life.lose_power(&disk).await;
        let (life, last) = left_after(&runtime, &disk, &told, left - gone).await;
        assert_eq!(last, left - gone, "{told}");
        assert!(pieces(&disk) >= 1, "{told}");
        stop(life, &disk, Mishap::PowerLoss).await;
    });
}

/// Most objects are deleted before: a checkpoint is written in the room of a piece, and the files before it become pieces.
#[test]
fn full_disk_room_is_reclaimed_wherever_the_power_goes() {
    let all = Thoroughness { steps: 40, seeds: 9 };
    at_every_step(&all, |runtime, disk, step, mishap| async move {
        let told = format!("step {step}, {mishap:?}");
        let life = crowded(&runtime, &disk).await;
        let most = CROWD - OF_A_PIECE;
        for name in 0..most {
            life.storage.commit(vec![delete(name)]).await.unwrap();
        }
        disk.power_off_after(step);
        runtime.sleep(RETRY * 2).await;
        let gone = most + delete_some(&runtime, &life, &disk, most).await;
        stop(life, &disk, mishap).await;
        let (life, left) = left_after(&runtime, &disk, &told, CROWD - gone).await;
        assert!(pieces(&disk) >= 1, "{told}");
        let gone = delete_some(&runtime, &life, &disk, CROWD - left).await;
        life.lose_power(&disk).await;
        let (life, last) = left_after(&runtime, &disk, &told, left - gone).await;
        assert_eq!(last, left - gone, "{told}");
        stop(life, &disk, Mishap::PowerLoss).await;
    });
}

/// A reserve in the statistics is there after a power loss, and a full disk is started on with it.
#[test]
fn full_disk_reserve_that_is_told_of_outlives_the_power() {
    for seed in 0..40 {
        let simulation = Simulation::new(seed);
        let (runtime, disk) = (simulation.runtime(), simulation.disk());
        simulation.run(async move {
            let life = Life::begin(&runtime).await.unwrap();
            while life.storage.statistics().unwrap().reserve_bytes < RESERVE {
                runtime.sleep(RETRY / 1_000).await;
            }
            disk.crowd();
            life.lose_power(&disk).await;
            assert_eq!(pieces(&disk), 4, "seed {seed}");
        });
    }
}
