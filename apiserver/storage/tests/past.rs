//! Watches that begin in the past: they deliver what writers were answered, and read little more of the log than that.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test, helpers included, which prints a figure"
)]

use apiserver_storage::{
    Claim, Event, Expect, Key, LogOptions, LogStorage, ObjectHeader, ObjectKey, Op, Prefix, RangeOptions,
    ReadAt, Record, Revision, Storage, StorageError, WatchFilter, WatchRequest, Write,
};
use bytes::Bytes;
use futures::FutureExt;
use machinery_fuzz::Random;
use machinery_runtime::{DiskCall, MemDisk, ObservedDisk, OpenMode, Runtime, Simulation};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn options() -> LogOptions {
    LogOptions {
        reserve_bytes: 0,
        // Nothing of the past is in memory.
        history_bytes: 1,
        retention: Duration::ZERO,
        scrub_interval: Duration::ZERO,
        segment_bytes: 256 << 10,
        checkpoint_bytes: 512 << 10,
        on_fatal: Arc::new(|_| {}),
        ..LogOptions::new("/data")
    }
}

fn record(node: &str, bytes: usize) -> Record {
    let header = ObjectHeader {
        fields: machinery_meta::Fields::from([("spec.nodeName", node)]),
        ..ObjectHeader::default()
    };
    Record {
        parts: [Bytes::new(), Bytes::new(), vec![b'x'; bytes].into()],
        fingerprint: 7,
        header: Arc::new(header),
    }
}

fn key(name: usize) -> Key {
    Key::parse(&format!("/registry/pods/a/{name:05}")).unwrap()
}

fn write(name: usize, op: Op) -> Write {
    Write {
        key: key(name),
        expect: Expect::Any,
        op,
    }
}

fn put(name: usize, node: &str, bytes: usize) -> Write {
    let record = record(node, bytes);
    write(name, Op::Put { record, ttl: None })
}

fn pods() -> WatchFilter {
    WatchFilter::prefix(Prefix::parse("/registry/pods/").unwrap())
}

/// Written last: a watch that delivers it has delivered everything.
fn end() -> Key {
    Key::parse("/registry/end").unwrap()
}

async fn write_end(storage: &LogStorage) {
    let op = put(0, "", 0).op;
    let end = Write {
        key: end(),
        expect: Expect::Any,
        op,
    };
    storage.commit(vec![end]).await.unwrap();
}

/// Everything that a watch delivers up to the end.
async fn told(storage: &LogStorage, interest: &WatchFilter, after: Revision, most: usize) -> Vec<Arc<Event>> {
    let interests = vec![interest.clone(), WatchFilter::key(end())];
    let mut cursor = storage.watch(WatchRequest { interests, after }).await.unwrap();
    let mut told = Vec::new();
    loop {
        let batch = cursor.next_batch(most).await.unwrap();
        assert!(batch.len() <= most);
        told.extend(batch);
        if told.last().is_some_and(|event| event.key == end()) {
            told.pop();
            return told;
        }
    }
}

/// One to four writes, each of another object.
fn group(random: &mut Random) -> Vec<Write> {
    let first = random.below(40);
    let write = |at: usize, random: &mut Random| {
        let name = first + at * 40;
        if random.below(5) == 0 {
            return write(name, Op::Delete);
        }
        let bytes = [20, 900, 9_000][random.below(3)];
        put(name, ["n1", "n2", "n3"][random.below(3)], bytes)
    };
    (0..=random.below(4)).map(|at| write(at, random)).collect()
}

/// The model is what the writers were answered.
#[test]
fn past_watch_delivers_what_writers_acknowledged() {
    for seed in 0..8 {
        let simulation = Simulation::new(seed);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let mut random = Random::new(seed);
            let mut storage = LogStorage::open(&runtime, options()).await.unwrap().0;
            let mut model: Vec<Arc<Event>> = Vec::new();
            for step in 0..400 {
                if let Ok(events) = storage.commit(group(&mut random)).await {
                    model.extend(events);
                }
                if step % 150 == 149 {
                    storage.close().await;
                    drop(storage);
                    storage = LogStorage::open(&runtime, options()).await.unwrap().0;
                }
            }
            write_end(&storage).await;
            for _ in 0..12 {
                let after = Revision(random.below(model.len()) as u64);
                let interest = match random.below(3) {
                    0 => pods(),
                    1 => pods().with_field("spec.nodeName", "n2"),
                    _ => WatchFilter::key(key(random.below(160))),
                };
                let most = [1, 7, 64, 1_000][random.below(4)];
                let expected = model.iter().filter(|own| own.revision > after);
                let expected: Vec<_> = expected.filter(|own| interest.matches(own)).collect();
                let told = told(&storage, &interest, after, most).await;
                assert_eq!(told.iter().collect::<Vec<_>>(), expected, "seed {seed}");
            }
            storage.close().await;
        });
    }
}

/// Twelve megabytes stand before twelve changes of some bytes.
#[tokio::test]
async fn past_watch_is_told_deletions_of_large_objects() {
    let runtime = Runtime::real().with_disk(Arc::new(MemDisk::default()));
    let storage = LogStorage::open(&runtime, options()).await.unwrap().0;
    let mut expected = Vec::new();
    for name in 0..12 {
        let node = ["n1", "n2"][name % 2];
        storage.commit(vec![put(name, node, 1 << 20)]).await.unwrap();
    }
    let after = storage.current_revision().await.unwrap();
    for name in (0..12).rev() {
        expected.extend(storage.commit(vec![write(name, Op::Delete)]).await.unwrap());
    }
    write_end(&storage).await;
    for interest in [pods(), pods().with_field("spec.nodeName", "n1")] {
        let expected: Vec<_> = expected.iter().filter(|own| interest.matches(own)).collect();
        let told = told(&storage, &interest, after, 64).await;
        assert!(told.iter().eq(expected), "{interest:?}");
    }
    storage.close().await;
}

/// Four thousand objects on a hundred nodes, each changed twice; what watches of all of it read of the disk, by bytes delivered.
#[tokio::test]
async fn past_watch_reads_little_more_than_it_delivers() {
    const OBJECTS: usize = 4_000;
    const BYTES: usize = 1_000;
    let read = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&read);
    let disk = ObservedDisk::new(MemDisk::default(), move |_, call| {
        if let DiskCall::Read(bytes) = call {
            counted.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    });
    let runtime = Runtime::real().with_disk(Arc::new(disk));
    let in_one_segment = LogOptions {
        segment_bytes: 64 << 20,
        checkpoint_bytes: 64 << 20,
        ..options()
    };
    let storage = LogStorage::open(&runtime, in_one_segment).await.unwrap().0;
    for round in 0..3 {
        for name in 0..OBJECTS {
            // Each in another order.
            let name = name * [1, 7, 1_009][round] % OBJECTS;
            let node = format!("n{}", name % 100);
            storage.commit(vec![put(name, &node, BYTES)]).await.unwrap();
        }
    }
    write_end(&storage).await;
    let after = Revision(OBJECTS as u64);
    for (interest, events) in [
        (pods(), 2 * OBJECTS),
        (pods().with_field("spec.nodeName", "n7"), 2 * OBJECTS / 100),
    ] {
        let before = read.load(Ordering::Relaxed);
        let told = told(&storage, &interest, after, 64).await;
        assert_eq!(told.len(), events);
        let tenths = (read.load(Ordering::Relaxed) - before) * 10 / (2 * OBJECTS * BYTES) as u64;
        println!("{tenths} bytes read for ten bytes of changes: {interest:?}");
        // Each change is read, and the version before it, and heads between them.
        assert!(tenths < 40, "{tenths}: {interest:?}");
    }
    storage.close().await;
}

/// A revision can be read for the retention time after the next change, and not for much longer.
#[test]
fn past_is_kept_for_the_retention_time() {
    let simulation = Simulation::new(3);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let retention = Duration::from_secs(10);
        let options = LogOptions {
            retention,
            ..options()
        };
        let (storage, _) = LogStorage::open(&runtime, options).await.unwrap();
        storage.commit(vec![put(1, "n1", 10)]).await.unwrap();
        runtime.sleep(retention / 2).await;
        storage.commit(vec![put(1, "n1", 10)]).await.unwrap();
        runtime.sleep(retention * 9 / 10).await;
        assert_eq!(storage.compacted_revision().await.unwrap(), Revision(1));
        runtime.sleep(retention * 2).await;
        assert_eq!(storage.compacted_revision().await.unwrap(), Revision(2));
        storage.close().await;
    });
}

/// Puts an object of a namespace.
fn put_in(namespace: &str, bytes: usize) -> Vec<Write> {
    let header = ObjectHeader {
        key: ObjectKey::new(namespace, "x"),
        ..ObjectHeader::default()
    };
    let record = Record {
        header: Arc::new(header),
        ..record("n1", bytes)
    };
    vec![Write {
        key: Key::parse(&format!("/registry/pods/{namespace}/x")).unwrap(),
        expect: Expect::Any,
        op: Op::Put { record, ttl: None },
    }]
}

/// A tenant that writes without end is refused before others lose the changes that their watches need.
#[test]
fn past_of_others_is_not_shortened_by_a_tenant() {
    let simulation = Simulation::new(6);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let retention = Duration::from_secs(300);
        let options = LogOptions {
            retention,
            kept_log_bytes: 8 << 20,
            ..options()
        };
        let (mut storage, _) = LogStorage::open(&runtime, options.clone()).await.unwrap();
        let quiet = async |storage: &LogStorage| storage.commit_for(Claim::User, put_in("quiet", 100)).await;
        let before = quiet(&storage).await.unwrap()[0].revision;
        let mut refused = 0;
        for round in 0..600 {
            match storage.commit_for(Claim::User, put_in("loud", 50_000)).await {
                Ok(_) => {}
                Err(StorageError::PastShareExceeded {
                    namespace,
                    retry_seconds,
                }) => {
                    assert_eq!((&*namespace, retry_seconds), ("loud", 30));
                    refused += 1;
                }
                Err(error) => panic!("{error}"),
            }
            quiet(&storage).await.unwrap();
            runtime.sleep(Duration::from_millis(1)).await;
            if round == 200 || round == 400 {
                // What was written before a start counts.
                storage.close().await;
                drop(storage);
                storage = LogStorage::open(&runtime, options.clone()).await.unwrap().0;
            }
        }
        assert!(storage.compacted_revision().await.unwrap() <= before);
        assert!(refused > 300, "{refused}");
        let statistics = storage.statistics().unwrap();
        assert!(statistics.refused_for_past > 0, "{statistics:?}");
        let room = storage.has_room_for(Claim::User, &put_in("loud", 50_000));
        assert!(matches!(room, Err(StorageError::PastShareExceeded { .. })));
        let interests = vec![pods()];
        let after = before;
        let mut watch = storage.watch(WatchRequest { interests, after }).await.unwrap();
        assert!(!watch.next_batch(10).await.unwrap().is_empty());
        // The writers of what was there at the start are unknown: no user is refused for it, and it leaves by age.
        runtime.sleep(retention * 3).await;
        quiet(&storage).await.unwrap();
        runtime.sleep(retention * 2).await;
        storage
            .commit_for(Claim::User, put_in("loud", 50_000))
            .await
            .unwrap();
        storage.close().await;
    });
}

/// A writer of the same few objects takes no more of the disk than is kept of the past. So many namespaces write here
/// that their shares add up to more.
#[test]
fn past_is_kept_up_to_its_bytes() {
    const KEPT: u64 = 4 << 20;
    let simulation = Simulation::new(5);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let options = LogOptions {
            retention: Duration::from_secs(300),
            kept_log_bytes: KEPT,
            ..options()
        };
        let (storage, _) = LogStorage::open(&runtime, options.clone()).await.unwrap();
        let mut written = 0;
        for round in 0..2_000 {
            let group = put_in(&format!("n{}", round % 150), 5_000);
            match storage.commit(group).await {
                Ok(_) => written += 1,
                Err(error) => assert!(matches!(error, StorageError::PastShareExceeded { .. }), "{error}"),
            }
            // Checkpoints are written meanwhile.
            runtime.sleep(Duration::from_millis(1)).await;
        }
        let floor = storage.compacted_revision().await.unwrap();
        assert!(written > 1_000 && floor > Revision(500), "{written} {floor:?}");
        let disk = runtime.disk();
        let length = |name: &String| {
            let file = disk.open(&options.dir.join(name), OpenMode::Read).unwrap();
            file.len().unwrap()
        };
        let names = disk.list(&options.dir).unwrap();
        let bytes: u64 = names.iter().map(length).sum();
        assert!(bytes < KEPT * 2, "{bytes}");
        storage.close().await;
    });
}

/// The past is put together on a thread of its own, also where memory has the changes since.
#[test]
fn past_is_not_put_together_on_the_thread_of_a_request() {
    let simulation = Simulation::new(4);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let options = LogOptions {
            history_bytes: 64 << 20,
            ..options()
        };
        let (storage, _) = LogStorage::open(&runtime, options).await.unwrap();
        for _ in 0..600 {
            storage.commit(vec![put(1, "n1", 10)]).await.unwrap();
        }
        // The last change is undone as well.
        storage.commit(vec![put(2, "n1", 10)]).await.unwrap();
        let (all, at) = (Prefix::parse("/").unwrap(), ReadAt::Exact(Revision(1)));
        let options = RangeOptions {
            at,
            ..RangeOptions::default()
        };
        assert!(storage.range(&all, &options).now_or_never().is_none());
        let found = storage.range(&all, &options).await.unwrap().entries;
        assert_eq!(
            found.iter().map(|entry| entry.revision).collect::<Vec<_>>(),
            [Revision(1)]
        );
        storage.close().await;
    });
}
