//! Guarantees of the handle: scopes end what they own, a seed decides a simulation, a crash loses what was not synced.

use machinery_runtime::{Disk, OpenMode, Runtime, Simulation, TaskEnded, WorkerStep};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Says when it is dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

async fn a_stopped_scope_leaves_nothing(runtime: Runtime) {
    let dropped = Arc::new(AtomicUsize::new(0));
    let scope = runtime.child_scope();
    let below = scope.runtime().child_scope();
    for owner in [scope.runtime(), below.runtime()] {
        let held = Dropped(Arc::clone(&dropped));
        owner
            .spawn("waits for ever", async move {
                let _held = held;
                std::future::pending::<()>().await;
            })
            .detach();
    }
    let work = below.runtime().blocking(|| 7);
    assert_eq!(scope.task_count(), 2 + usize::from(!runtime.is_simulated()));
    assert_eq!(work.await, Ok(7));
    scope.stopped().await;
    assert_eq!((scope.task_count(), dropped.load(Ordering::SeqCst)), (0, 2));
    let late = below.runtime().spawn("too late", async {});
    assert_eq!(late.await, Err(TaskEnded::Cancelled));
    assert!(!runtime.is_cancelled(), "the scope above goes on");
}

#[tokio::test]
async fn scope_stopped_leaves_nothing_on_machine() {
    a_stopped_scope_leaves_nothing(Runtime::real()).await;
}

#[test]
fn scope_stopped_leaves_nothing_in_simulation() {
    let simulation = Simulation::new(1);
    simulation.run(a_stopped_scope_leaves_nothing(simulation.runtime()));
}

#[tokio::test]
async fn draining_waits_for_tasks_to_finish() {
    let scope = Runtime::real().child_scope();
    let done = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&done);
    let runtime = scope.runtime().clone();
    scope
        .runtime()
        .spawn("finishes", async move {
            runtime.sleep(Duration::from_millis(1)).await;
            count.fetch_add(1, Ordering::SeqCst);
        })
        .detach();
    scope.drained().await;
    assert_eq!(done.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn panic_stays_in_its_task() {
    let runtime = Runtime::real();
    let ended = runtime.spawn("panics", async { panic!("as told") }).await;
    assert_eq!(ended, Err(TaskEnded::Panicked("as told".to_owned())));
}

#[tokio::test]
async fn worker_panic_reaches_its_owner() {
    let scope = Runtime::real().child_scope();
    let (told, hears) = tokio::sync::oneshot::channel();
    let step = || -> WorkerStep { panic!("as told") };
    scope.runtime().worker("flush", step, move |message| {
        told.send(message.to_owned()).unwrap();
    });
    assert_eq!(hears.await.unwrap(), "the task panicked: as told");
    scope.panicked().await;
    assert_eq!(scope.runtime().components().panics(), [("flush", 1)]);
    let work = scope.runtime().blocking(|| panic!("again"));
    assert_eq!(work.await, Err::<(), _>(TaskEnded::Panicked("again".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn component_that_panics_begins_again_and_is_down_meanwhile() {
    let runtime = Runtime::real();
    let (begun, own) = (Arc::new(AtomicUsize::new(0)), runtime.clone());
    let count = Arc::clone(&begun);
    let handle = runtime.supervise("reconciler", move || {
        let (turn, own) = (count.fetch_add(1, Ordering::SeqCst), own.clone());
        async move {
            own.sleep(Duration::from_secs(1)).await;
            assert!(turn > 0, "turn {turn}");
            if turn == 1 {
                return Err("turn 1".to_owned());
            }
            Ok(())
        }
    });
    let state = || runtime.components().all();
    assert_eq!(state(), [("reconciler", None)]);
    runtime.sleep(Duration::from_millis(1500)).await;
    let down = |why: &str| [("reconciler", Some(why.to_owned()))];
    assert_eq!(state(), down("the task panicked: turn 0"));
    runtime.sleep(Duration::from_secs(1)).await;
    assert_eq!(state(), [("reconciler", None)]);
    runtime.sleep(Duration::from_secs(1)).await;
    assert_eq!(state(), down("turn 1"));
    handle.await.unwrap();
    assert_eq!((state(), begun.load(Ordering::SeqCst)), (vec![], 3));
    assert_eq!(runtime.components().panics(), [("reconciler", 1)]);
}

#[test]
#[should_panic(expected = "as told")]
fn simulation_panic_fails_the_run() {
    let simulation = Simulation::new(3);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let _ = runtime.spawn("panics", async { panic!("as told") }).await;
    });
}

/// Ten tasks sleep, draw numbers and append to a shared list: the order is the outcome.
fn outcome(seed: u64) -> (Vec<u64>, u64) {
    let simulation = Simulation::new(seed);
    let runtime = simulation.runtime();
    let order = simulation.run(async move {
        let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let scope = runtime.child_scope();
        for task in 0..10_u64 {
            let (own, order) = (scope.runtime().clone(), Arc::clone(&order));
            scope
                .runtime()
                .spawn("racer", async move {
                    own.sleep(Duration::from_millis(own.random_u64() % 3)).await;
                    order.lock().push(task);
                })
                .detach();
        }
        let order_of_steps = Arc::clone(&order);
        let mut steps = 0;
        let step = move || {
            steps += 1;
            order_of_steps.lock().push(100 + steps);
            if steps < 5 {
                WorkerStep::More
            } else {
                WorkerStep::Done
            }
        };
        scope
            .runtime()
            .worker("worker", step, |message| panic!("{message}"));
        scope.drained().await;
        order.lock().clone()
    });
    (order, simulation.trace_hash())
}

#[test]
fn simulation_seed_decides_everything() {
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let first = outcome(seed);
        assert_eq!(
            first,
            outcome(seed),
            "seed {seed} ran differently the second time"
        );
        orders.insert(first.0);
    }
    assert!(
        orders.len() > 10,
        "seeds explore different orders, found {}",
        orders.len()
    );
}

#[test]
fn time_stands_still_until_all_wait() {
    let simulation = Simulation::new(5);
    let runtime = simulation.runtime();
    let (before, after) = simulation.run(async move {
        let before = runtime.now();
        runtime.sleep(Duration::from_secs(3600)).await;
        assert!(
            runtime
                .timeout(Duration::from_secs(1), std::future::pending::<()>())
                .await
                .is_err()
        );
        (before, runtime.now())
    });
    assert_eq!(after.duration_since(before).as_secs(), 3601);
}

#[test]
fn disk_crash_keeps_synced_bytes_and_any_prefix_of_the_rest() {
    let (dir, path) = (Path::new("/d"), Path::new("/d/file"));
    let mut kept_all = 0;
    let mut kept_none = 0;
    for seed in 0..200 {
        let disk = machinery_runtime::SimDisk::new(seed);
        let file = disk.open(path, OpenMode::CreateNew).unwrap();
        file.write_at(0, &[1; 1024]).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(dir).unwrap();
        file.write_at(1000, &[2; 1000]).unwrap();
        disk.crash();
        assert!(
            file.write_at(0, b"x").is_err(),
            "a handle from before the crash is dead"
        );
        let content = disk.read(path).unwrap();
        assert!(
            content[..1000].iter().all(|byte| *byte == 1),
            "what was synced stays"
        );
        for sector in content[1024..].chunks(512) {
            assert!(sector.iter().all(|byte| *byte == 2) || sector.iter().all(|byte| *byte == 0));
        }
        kept_all += usize::from(content.len() == 2000 && content[1000..].iter().all(|byte| *byte == 2));
        kept_none += usize::from(content[1000..].iter().all(|byte| *byte != 2));
    }
    assert!(
        kept_all > 0 && kept_none > 0,
        "both extremes happen: {kept_all}, {kept_none}"
    );
}

#[test]
fn disk_crash_may_lose_unsynced_names() {
    let mut found = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let disk = machinery_runtime::SimDisk::new(seed);
        disk.open(Path::new("/d/a"), OpenMode::CreateNew)
            .unwrap()
            .sync_data()
            .unwrap();
        disk.rename(Path::new("/d/a"), Path::new("/d/b")).unwrap();
        disk.crash();
        found.insert(disk.list(Path::new("/d")).unwrap());
    }
    assert!(
        found.contains(&vec![]) && found.contains(&vec!["b".to_owned()]),
        "{found:?}"
    );
    assert!(found.contains(&vec!["a".to_owned()]), "{found:?}");
}

#[test]
fn full_disk_takes_a_part_of_a_write_and_removing_makes_room() {
    let (dir, mut parts) = (Path::new("/d"), std::collections::BTreeSet::new());
    for seed in 0..50 {
        let disk = machinery_runtime::SimDisk::new(seed);
        let file = disk.open(&dir.join("a"), OpenMode::CreateNew).unwrap();
        file.allocate(1000).unwrap();
        disk.fill_after(5000);
        assert_eq!(disk.space(dir).unwrap().available, 5000);
        file.write_at(0, &[1; 1000]).unwrap();
        let refused = file.write_at(1000, &[2; 8000]).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);
        parts.insert(file.len().unwrap() - 1000);
        disk.remove(&dir.join("a")).unwrap();
        let other = disk.open(&dir.join("b"), OpenMode::CreateNew).unwrap();
        other.write_at(0, &[3; 6000]).unwrap();
        assert!(other.write_at(6000, &[3]).is_err());
    }
    assert!(parts.len() > 3, "{parts:?}");
    let ends = |part: &u64| *part == 0 || (1000 + part).is_multiple_of(512);
    assert!(parts.iter().all(|part| *part <= 5000 && ends(part)), "{parts:?}");
}

#[test]
fn crowded_disk_gives_nobody_what_was_given_back() {
    let dir = Path::new("/d");
    let disk = machinery_runtime::SimDisk::new(1);
    for name in ["a", "b"] {
        let file = disk.open(&dir.join(name), OpenMode::CreateNew).unwrap();
        file.allocate(1000).unwrap();
    }
    disk.crowd();
    disk.remove(&dir.join("b")).unwrap();
    assert_eq!(disk.space(dir).unwrap().available, 0);
    let file = disk.open(&dir.join("a"), OpenMode::ReadWrite).unwrap();
    file.write_at(500, &[1; 500]).unwrap();
    assert!(file.write_at(1000, &[1]).is_err());
    file.truncate(600).unwrap();
    assert!(file.write_at(600, &[1]).is_err(), "others have it now");
    disk.make_room();
    file.write_at(600, &[1]).unwrap();
}

#[test]
fn crash_may_lose_directories_with_all_that_is_in_them() {
    let (dir, path) = (Path::new("/var/lib/knarr"), Path::new("/var/lib/knarr/file"));
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..50 {
        let disk = machinery_runtime::SimDisk::new(seed);
        assert!(
            disk.open(path, OpenMode::CreateNew).is_ok(),
            "nobody made it, so it is there"
        );
        let disk = machinery_runtime::SimDisk::new(seed);
        disk.create_dir_all(dir).unwrap();
        disk.open(path, OpenMode::CreateNew).unwrap().sync_data().unwrap();
        disk.sync_dir(dir).unwrap();
        if seed % 2 == 0 {
            for above in dir.ancestors().skip(1) {
                disk.sync_dir(above).unwrap();
            }
        }
        disk.crash();
        let found = disk.list(dir).is_ok_and(|names| names == ["file"]);
        assert!(found || seed % 2 == 1, "every directory was synced");
        kept += u32::from(found && seed % 2 == 1);
        lost += u32::from(!found);
        assert_eq!(disk.open(path, OpenMode::Read).is_ok(), found);
        disk.create_dir_all(dir).unwrap();
        disk.list(dir).unwrap();
    }
    assert!(lost > 0 && kept > 0, "{lost} {kept}");
}

#[test]
fn reads_fail_when_told_to() {
    let disk = machinery_runtime::SimDisk::new(4);
    let file = disk.open(Path::new("/d/file"), OpenMode::CreateNew).unwrap();
    file.write_at(0, b"text").unwrap();
    disk.fail_reads(2);
    let failed = (0..100).filter(|_| file.read_at(0, &mut [0; 4]).is_err()).count();
    assert!((20..80).contains(&failed), "{failed}");
    disk.fail_reads(0);
    assert_eq!(file.read_at(0, &mut [0; 4]).unwrap(), 4);
}

/// A failure says nothing of whether the name has changed.
#[test]
fn names_fail_when_told_to() {
    let disk = machinery_runtime::SimDisk::new(4);
    let (from, to) = (Path::new("/d/from"), Path::new("/d/to"));
    disk.create_dir_all(Path::new("/d")).unwrap();
    disk.fail_names(1);
    let [mut done, mut not_done] = [0, 0];
    for _ in 0..50 {
        drop(disk.open(from, OpenMode::CreateNew).unwrap());
        disk.rename(from, to).unwrap_err();
        let renamed = disk.open(to, OpenMode::Read).is_ok();
        done += u32::from(renamed);
        not_done += u32::from(!renamed);
        while disk.remove(if renamed { to } else { from }).unwrap_err().kind() != ErrorKind::NotFound {}
    }
    assert!(done > 10 && not_done > 10, "{done} {not_done}");
    assert!(disk.failed_names() >= 100, "{}", disk.failed_names());
    disk.fail_names(0);
    drop(disk.open(from, OpenMode::CreateNew).unwrap());
    disk.rename(from, to).unwrap();
    disk.remove(to).unwrap();
}

#[test]
fn real_disk_gives_blocks_and_tells_its_room() {
    let (dir, disk) = (tempfile::tempdir().unwrap(), machinery_runtime::RealDisk::new());
    let file = disk.open(&dir.path().join("a"), OpenMode::CreateNew).unwrap();
    file.allocate(100_000).unwrap();
    let mut read = vec![1; 100_000];
    assert_eq!(file.read_at(0, &mut read).unwrap(), 100_000);
    assert!(read.iter().all(|byte| *byte == 0));
    let space = disk.space(dir.path()).unwrap();
    assert!(space.available <= space.total && space.total > 0, "{space:?}");
}

#[test]
fn wall_clock_of_a_simulation_jumps_and_the_monotonic_one_does_not() {
    let simulation = Simulation::new(5);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let (now, begun) = (runtime.now(), runtime.monotonic());
        runtime.jump_clock(-100);
        assert_eq!(runtime.now().duration_since(now).as_secs(), -100);
        runtime.jump_clock(200);
        assert_eq!(runtime.now().duration_since(now).as_secs(), 100);
        assert_eq!(runtime.monotonic(), begun);
    });
}

#[test]
fn disk_failed_sync_is_not_repaired_by_the_next() {
    let path = Path::new("/d/file");
    let disk = machinery_runtime::SimDisk::new(9);
    let file = disk.open(path, OpenMode::CreateNew).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    file.write_at(0, b"lost").unwrap();
    disk.fail_next_sync();
    assert!(file.sync_data().is_err());
    assert!(file.sync_data().is_ok());
    assert_eq!(disk.read(path).unwrap(), b"lost");
    disk.crash();
    assert_eq!(disk.read(path).unwrap(), b"");
}

#[test]
fn locks_exclude_each_other_on_every_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let disks: [Box<dyn Disk>; 3] = [
        Box::new(machinery_runtime::RealDisk::new()),
        Box::new(machinery_runtime::MemDisk::new()),
        Box::new(machinery_runtime::SimDisk::new(1)),
    ];
    for disk in disks {
        let held = disk.lock(&path).unwrap();
        assert_eq!(
            disk.lock(&path).unwrap_err().kind(),
            std::io::ErrorKind::WouldBlock,
            "{disk:?}"
        );
        drop(held);
        drop(disk.lock(&path).unwrap());
    }
}
