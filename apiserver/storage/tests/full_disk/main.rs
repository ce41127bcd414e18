//! A full disk is a state: deletions, reads and watches go on, other writes are refused, it starts, and it recovers.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod crowded;
mod machine;
mod power;

use apiserver_storage::{
    Expect, Key, LogOptions, LogStorage, ObjectHeader, Op, Prefix, RangeOptions, ReadAt, Record, Revision,
    Storage, StorageError, WatchFilter, WatchRequest, Write,
};
use bytes::Bytes;
use machinery_runtime::{Runtime, SimDisk, Simulation};
use std::sync::Arc;
use std::time::Duration;

const RETRY: Duration = Duration::from_secs(5);
const RESERVE: u64 = 256 << 10;

fn options() -> LogOptions {
    LogOptions {
        reserve_bytes: RESERVE,
        segment_bytes: 64 << 10,
        checkpoint_bytes: 32 << 10,
        // Nothing is compacted but for room, and no share of the past is spent.
        retention: Duration::ZERO,
        on_fatal: Arc::new(|error| panic!("{error}")),
        ..LogOptions::new("/var/lib/knarr/storage")
    }
}

fn key(name: u32) -> Key {
    Key::parse(&format!("/registry/pods/a/{name}")).unwrap()
}

fn put(name: u32, bytes: usize, deleted: bool) -> Write {
    let header = ObjectHeader {
        deletion_timestamp: deleted.then(|| "2026-01-01T00:00:00Z".into()),
        ..ObjectHeader::default()
    };
    let record = Record {
        parts: [Bytes::new(), Bytes::new(), Bytes::from("x".repeat(bytes))],
        fingerprint: 7,
        header: Arc::new(header),
    };
    Write {
        key: key(name),
        expect: Expect::Any,
        op: Op::Put { record, ttl: None },
    }
}

fn delete(name: u32) -> Write {
    Write {
        key: key(name),
        expect: Expect::Any,
        op: Op::Delete,
    }
}

async fn open(runtime: &Runtime) -> LogStorage {
    LogStorage::open(runtime, options()).await.unwrap().0
}

async fn names(storage: &LogStorage) -> usize {
    let all = Prefix::parse("/").unwrap();
    let page = storage.range(&all, &RangeOptions::default()).await.unwrap();
    page.entries.len()
}

/// Writes until the disk refuses; how many were written.
async fn fill(runtime: &Runtime, storage: &LogStorage, disk: &SimDisk, room: u64) -> u32 {
    // The reserve is laid out in the background.
    runtime.sleep(RETRY).await;
    assert_eq!(storage.statistics().unwrap().reserve_bytes, RESERVE);
    disk.fill_after(room);
    let mut written = 0;
    loop {
        match storage.commit(vec![put(written, 3000, false)]).await {
            Ok(_) => written += 1,
            Err(StorageError::NoSpace) => return written,
            Err(error) => panic!("{error}"),
        }
        assert!(
            u64::from(written) * 3000 < room + (1 << 20),
            "the disk is never full"
        );
    }
}

/// Reports whether a write was refused for want of room; no other error is right.
fn is_refused<T>(written: Result<T, StorageError>) -> bool {
    match written {
        Ok(_) => false,
        Err(StorageError::NoSpace) => true,
        Err(error) => panic!("{error}"),
    }
}

fn story<F>(tell: impl Fn(Runtime, Arc<SimDisk>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    for seed in 0..20 {
        let simulation = Simulation::new(seed);
        let story = tell(simulation.runtime(), simulation.disk());
        simulation.run(story);
    }
}

#[test]
fn full_disk_refuses_writes_and_goes_on_with_deletions_reads_and_watches() {
    story(|runtime, disk| async move {
        let storage = open(&runtime).await;
        let written = fill(&runtime, &storage, &disk, 100_000).await;
        assert!(written > 5, "{written}");
        let refused = storage.commit(vec![put(0, 10, false)]).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "etcdserver: mvcc: database space exceeded (the disk of the data directory is full)"
        );
        assert_eq!(names(&storage).await, written as usize);
        let after = storage.current_revision().await.unwrap();
        let interests = vec![WatchFilter::prefix(Prefix::parse("/").unwrap())];
        let mut cursor = storage.watch(WatchRequest { interests, after }).await.unwrap();
        // What is about to go may be marked, and what lets go of something may write that down.
        storage.commit(vec![put(1, 3000, true)]).await.unwrap();
        storage
            .commit(vec![put(1000, 10, false), delete(1)])
            .await
            .unwrap();
        storage.commit(vec![delete(0)]).await.unwrap();
        let mut told = Vec::new();
        while told.len() < 4 {
            told.extend(cursor.next_batch(10).await.unwrap());
        }
        let revisions: Vec<u64> = told.iter().map(|event| event.revision.0 - after.0).collect();
        assert_eq!(revisions, [1, 2, 3, 4], "what was refused has no revision");
        assert_eq!(names(&storage).await, written as usize - 1);
        let statistics = storage.statistics().unwrap();
        assert!(statistics.full && statistics.refused_writes > 1, "{statistics:?}");
        storage.close().await;
    });
}

#[test]
fn full_disk_recovers_by_itself_when_there_is_room() {
    story(|runtime, disk| async move {
        let storage = open(&runtime).await;
        let written = fill(&runtime, &storage, &disk, 50_000).await;
        runtime.sleep(RETRY * 10).await;
        assert!(storage.statistics().unwrap().full, "nobody has made room");
        disk.make_room();
        runtime.sleep(RETRY * 2).await;
        let statistics = storage.statistics().unwrap();
        assert!(
            !statistics.full && statistics.reserve_bytes == RESERVE,
            "{statistics:?}"
        );
        storage.commit(vec![put(written, 3000, false)]).await.unwrap();
        assert_eq!(names(&storage).await, written as usize + 1);
        storage.close().await;
    });
}

/// The storage alone is on the disk. A power loss may come at any time meanwhile.
#[test]
fn full_disk_of_own_records_has_room_again_once_they_are_deleted() {
    story(|runtime, disk| async move {
        let mut storage = open(&runtime).await;
        let room = 600_000;
        let mut written = fill(&runtime, &storage, &disk, room).await;
        for round in 0..4 {
            assert!(written > 20, "{written}");
            let before = storage.current_revision().await.unwrap();
            for name in 0..written {
                storage.commit(vec![delete(name)]).await.unwrap();
            }
            if round % 2 == 1 {
                runtime
                    .sleep(Duration::from_millis(runtime.random_u64() % 6000))
                    .await;
                drop(storage);
                disk.crash();
                storage = open(&runtime).await;
                assert_eq!(names(&storage).await, 0);
            }
            runtime.sleep(RETRY * 4).await;
            let statistics = storage.statistics().unwrap();
            assert!(!statistics.full, "round {round}: {statistics:?}");
            let files = disk.files().into_iter().map(|(path, _)| path);
            let pieces = files.filter(|path| path.extension().is_some_and(|end| end == "room"));
            assert_eq!(pieces.count(), 4, "round {round}");
            assert_eq!(
                storage.current_revision().await.unwrap().0,
                before.0 + u64::from(written)
            );
            let interests = vec![WatchFilter::prefix(Prefix::parse("/").unwrap())];
            let after = Revision(1);
            let late = storage.watch(WatchRequest { interests, after }).await;
            assert!(matches!(late, Err(StorageError::Compacted { .. })));
            let mut again = 0;
            while !is_refused(storage.commit(vec![put(again, 3000, false)]).await) {
                again += 1;
                assert!(again < 1000, "the disk is never full");
            }
            written = again;
        }
        storage.close().await;
    });
}

/// Starts and power losses on a disk without a byte of room, with deletions in between.
#[test]
fn full_disk_does_not_keep_the_store_from_starting() {
    story(|runtime, disk| async move {
        let storage = open(&runtime).await;
        let mut left = fill(&runtime, &storage, &disk, 60_000).await;
        assert!(left > 6, "{left}");
        drop(storage);
        disk.fill_after(0);
        for _ in 0..6 {
            disk.crash();
            let storage = open(&runtime).await;
            assert_eq!(names(&storage).await, left as usize);
            // What the ended segments gave back beyond the reserve is used up first.
            let mut tries = 0;
            while !is_refused(storage.commit(vec![put(0, 3000, false)]).await) {
                tries += 1;
                assert!(tries < 100, "the disk is not full");
            }
            left -= 1;
            storage.commit(vec![delete(left)]).await.unwrap();
            runtime.sleep(RETRY * 2).await;
            storage.close().await;
        }
        disk.make_room();
        let storage = open(&runtime).await;
        storage.commit(vec![put(0, 3000, false)]).await.unwrap();
        storage.close().await;
    });
}

/// Thirty writers while the disk fills: each is answered, and what was acknowledged is what is there.
#[test]
fn full_disk_answers_every_writer_and_keeps_what_it_acknowledged() {
    story(|runtime, disk| async move {
        let storage = Arc::new(open(&runtime).await);
        runtime.sleep(RETRY).await;
        disk.fill_after(60_000);
        let writers: Vec<_> = (0..30)
            .map(|writer| {
                let (own, storage) = (runtime.clone(), Arc::clone(&storage));
                runtime.spawn("writer", async move {
                    own.sleep(Duration::from_millis(own.random_u64() % 20)).await;
                    let written = storage.commit(vec![put(writer, 4000, false)]).await;
                    let gone = storage.commit(vec![delete(writer)]).await;
                    match (&written, &gone) {
                        (Ok(_), Ok(_)) => 1,
                        (Err(StorageError::NoSpace), Err(StorageError::Conflict { .. })) => 0,
                        other => panic!("{other:?}"),
                    }
                })
            })
            .collect();
        let mut written = 0_u64;
        for writer in writers {
            written += writer.await.unwrap();
        }
        assert_eq!(storage.current_revision().await.unwrap().0, written * 2);
        assert_eq!(names(&storage).await, 0);
        storage.close().await;
        drop(storage);
        disk.crash();
        let storage = open(&runtime).await;
        assert_eq!(storage.current_revision().await.unwrap().0, written * 2);
        let lookup = storage.get(&key(0), ReadAt::Latest).await.unwrap();
        assert_eq!(lookup.entry, None);
        storage.close().await;
    });
}
