//! Threads that race: what a simulation, whose steps are whole, cannot show.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_storage::{
    Expect, Key, LogOptions, LogStorage, ObjectHeader, Op, Prefix, RangeOptions, ReadAt, Record, Revision,
    Storage, Write,
};
use bytes::Bytes;
use machinery_runtime::{Disk, MemDisk, ObservedDisk, OpenMode, Runtime};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const DIR: &str = "/data";

fn write(key: &str, value: &str) -> Vec<Write> {
    let record = Record {
        parts: [
            Bytes::new(),
            Bytes::new(),
            Bytes::copy_from_slice(value.as_bytes()),
        ],
        fingerprint: 7,
        header: Arc::new(ObjectHeader::default()),
    };
    vec![Write {
        key: Key::parse(key).unwrap(),
        expect: Expect::Any,
        op: Op::Put { record, ttl: None },
    }]
}

fn options(dir: &Path) -> LogOptions {
    LogOptions {
        reserve_bytes: 0,
        segment_bytes: 64 << 10,
        checkpoint_bytes: u64::MAX,
        on_fatal: Arc::new(|error| panic!("{error}")),
        ..LogOptions::new(dir)
    }
}

/// Floor and batch of every checkpoint that is there.
fn checkpoints(disk: &dyn Disk) -> Vec<(u64, u64)> {
    let names = disk.list(Path::new(DIR)).unwrap().into_iter();
    let names = names.filter(|name| name.ends_with(".ckpt"));
    let read = |name: String| {
        // One that is pruned meanwhile is passed over.
        let file = disk.open(&Path::new(DIR).join(name), OpenMode::Read).ok()?;
        let mut header = [0; 44];
        file.read_at(0, &mut header).unwrap();
        let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
        Some((number(28), number(36)))
    };
    names.filter_map(read).collect()
}

/// A checkpoint that names a batch holds the floor of that batch: recovery does not read the batch again. Batches are
/// written one at a time here: each write is followed by a floor of its revision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoint_has_the_floor_of_its_batch() {
    const ROUNDS: u64 = 3_000;
    let disk = Arc::new(ObservedDisk::new(MemDisk::new(), |_, _| {}));
    let runtime = Runtime::real().with_disk(disk.clone());
    let (storage, _) = LogStorage::open(&runtime, options(Path::new(DIR))).await.unwrap();
    let (storage, ends) = (Arc::new(storage), Arc::new(AtomicBool::new(false)));
    let (own, ended) = (Arc::clone(&storage), Arc::clone(&ends));
    let writing = runtime.blocking(move || {
        while !ended.load(Ordering::Acquire) {
            own.checkpoint();
            std::thread::yield_now();
        }
    });
    let writing = runtime.spawn("checkpoints", writing);
    let mut seen = BTreeMap::new();
    for round in 1..=ROUNDS {
        let value = round.to_string();
        let events = storage.commit(write("/registry/pods/a/x", &value)).await.unwrap();
        assert_eq!(events[0].revision, Revision(round));
        storage.compact(Revision(round)).await.unwrap();
        seen.extend(
            checkpoints(&*disk)
                .into_iter()
                .map(|(floor, batch)| (batch, floor)),
        );
    }
    ends.store(true, Ordering::Release);
    drop(writing.await);
    assert!(seen.len() > 50, "{}", seen.len());
    for (batch, floor) in seen {
        assert_eq!(floor, batch / 2, "of the checkpoint of batch {batch}");
    }
    storage.close().await;
}

/// Writers, readers of now and of the past, compactions and checkpoints at once, on a real disk: every read is whole, and a
/// start finds what was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_that_race_lose_nothing() {
    const WRITERS: usize = 4;
    const WRITES: usize = 400;
    let dir = tempfile::tempdir().unwrap();
    let runtime = Runtime::real();
    let options = LogOptions {
        // Enough for the newest states that are read, so that they are undone and not rebuilt.
        history_bytes: 64 << 10,
        checkpoint_bytes: 32 << 10,
        ..options(dir.path())
    };
    let (storage, _) = LogStorage::open(&runtime, options.clone()).await.unwrap();
    let storage = Arc::new(storage);
    let ends = Arc::new(AtomicBool::new(false));
    let writers = (0..WRITERS).map(|writer| {
        let storage = Arc::clone(&storage);
        runtime.spawn("writer", async move {
            for step in 0..WRITES {
                let pair = [0, 1].map(|half| format!("/registry/pods/{writer}/{half}"));
                let value = format!("{step}|{}", "x".repeat(step % 97));
                let group = pair.iter().flat_map(|key| write(key, &value)).collect();
                storage.commit(group).await.unwrap();
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let (own, ended) = (Arc::clone(&storage), Arc::clone(&ends));
    let reader = runtime.spawn("reader", async move {
        let mut reads = 0;
        while !ended.load(Ordering::Acquire) {
            whole(&own, ReadAt::Latest).await;
            let current = own.current_revision().await.unwrap();
            // Both halves of a group are at an even revision or neither is.
            let past = Revision((current.0 / 2).saturating_sub(20) * 2);
            if past > own.compacted_revision().await.unwrap() {
                whole(&own, ReadAt::Exact(past)).await;
            }
            reads += 1;
        }
        reads
    });
    let (own, ended) = (Arc::clone(&storage), Arc::clone(&ends));
    let upkeep = runtime.spawn("upkeep", async move {
        while !ended.load(Ordering::Acquire) {
            let current = own.current_revision().await.unwrap();
            own.compact(Revision(current.0.saturating_sub(100)))
                .await
                .unwrap();
            own.checkpoint();
            tokio::task::yield_now().await;
        }
    });
    for writer in writers {
        writer.await.unwrap();
    }
    ends.store(true, Ordering::Release);
    assert!(reader.await.unwrap() > 0);
    upkeep.await.unwrap();
    assert_eq!(storage.miscounted(), Vec::<String>::new());
    assert_eq!(storage.verify().await.unwrap(), Vec::<String>::new());
    let floor = storage.compacted_revision().await.unwrap();
    storage.close().await;
    drop(storage);
    let (storage, report) = LogStorage::open(&runtime, options).await.unwrap();
    assert_eq!(report.revision, Revision((WRITERS * WRITES * 2) as u64));
    assert_eq!((report.compacted, report.problems), (floor, Vec::new()));
    let last = whole(&storage, ReadAt::Latest).await;
    assert!(last.iter().all(|step| *step == WRITES - 1), "{last:?}");
    storage.close().await;
}

/// The step that each writer is at, where both halves of its groups agree.
async fn whole(storage: &LogStorage, at: ReadAt) -> Vec<usize> {
    let options = RangeOptions {
        at,
        ..RangeOptions::default()
    };
    let page = storage
        .range(&Prefix::parse("/registry/pods/").unwrap(), &options)
        .await;
    let page = match page {
        Ok(page) => page,
        // The floor may have risen meanwhile, and the last revision with it.
        Err(apiserver_storage::StorageError::Compacted { .. }) => return Vec::new(),
        Err(error) => panic!("{error}"),
    };
    let values = page.entries.chunks(2).map(|pair| {
        let [one, other] = pair else {
            panic!("half a group at {}", page.revision)
        };
        assert_eq!(one.record.parts[2], other.record.parts[2], "at {}", page.revision);
        let text = String::from_utf8(one.record.parts[2].to_vec()).unwrap();
        text.split('|').next().unwrap().parse().unwrap()
    });
    values.collect()
}
