//! Writes that wait for a disk: what they hold, and how they come together.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_storage::{
    Key, LogOptions, LogStorage, MAX_GROUP_BYTES, ObjectHeader, Prefix, RangeOptions, Record, Storage,
    StorageError, Write,
};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::join_all;
use machinery_runtime::{DiskCall, MemDisk, ObservedDisk, Runtime};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const MIB: usize = 1 << 20;
/// Bytes of writes that may be taken up at once.
const QUEUE_BYTES: usize = 64 * MIB;
/// Units that the queue counts in.
const UNIT_BYTES: usize = 1024;
/// A guard against hanging, not an assertion.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gate that the syncs of segments wait at.
#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let closed = self.is_closed.lock().unwrap();
        drop(self.opened.wait_while(closed, |closed| *closed).unwrap());
    }

    fn set(&self, is_closed: bool) {
        *self.is_closed.lock().unwrap() = is_closed;
        self.opened.notify_all();
    }
}

fn write(name: &str, bytes: usize) -> Vec<Write> {
    let record = Record {
        parts: [Bytes::new(), Bytes::new(), Bytes::from(vec![b'x'; bytes])],
        fingerprint: 7,
        header: Arc::new(ObjectHeader::default()),
    };
    let key = Key::parse(&format!("/registry/pods/a/{name}")).unwrap();
    vec![Write::create(key, record)]
}

/// A log on a disk in memory whose syncs stop at a gate.
async fn behind_gate() -> (Arc<Gate>, LogStorage) {
    let gate = Arc::new(Gate::default());
    let own = Arc::clone(&gate);
    let disk = ObservedDisk::new(MemDisk::default(), move |path, call| {
        if call == DiskCall::Sync && path.extension().is_some_and(|kind| kind == "seg") {
            own.pass();
        }
    });
    let runtime = Runtime::real().with_disk(Arc::new(disk));
    let options = LogOptions {
        reserve_bytes: 0,
        checkpoint_bytes: u64::MAX,
        ..LogOptions::new("/data")
    };
    (gate, LogStorage::open(&runtime, options).await.unwrap().0)
}

async fn objects(storage: &LogStorage) -> usize {
    let all = Prefix::parse("/").unwrap();
    let page = storage.range(&all, &RangeOptions::default()).await.unwrap();
    page.entries.len()
}

/// A caller that goes away leaves its write in the queue, and the queue counts it until it is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_counts_writes_whose_callers_have_gone() {
    let (gate, storage) = behind_gate().await;
    gate.set(true);
    for number in 0..70 {
        let left = storage
            .commit(write(&format!("left-{number}"), MIB))
            .now_or_never();
        assert!(left.is_none());
    }
    gate.set(false);
    let last = storage.commit(write("last", 1));
    Runtime::real().timeout(PATIENCE, last).await.unwrap().unwrap();
    let taken_up = (QUEUE_BYTES / UNIT_BYTES) / (MIB / UNIT_BYTES + 1);
    assert_eq!(objects(&storage).await, taken_up + 1);
    storage.close().await;
}

/// Writes that wait behind a sync are written in batches that are no larger than the largest group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_makes_batches_of_bounded_size() {
    let (gate, storage) = behind_gate().await;
    gate.set(true);
    let before = storage.statistics().unwrap().syncs;
    let mut first = storage.commit(write("first", 1));
    assert!((&mut first).now_or_never().is_none());
    let mut waiting: Vec<_> = (0..20)
        .map(|number| storage.commit(write(&format!("waits-{number}"), MIB)))
        .collect();
    for commit in &mut waiting {
        assert!(commit.now_or_never().is_none());
    }
    gate.set(false);
    first.await.unwrap();
    for done in join_all(waiting).await {
        done.unwrap();
    }
    let batches = storage.statistics().unwrap().syncs - before - 1;
    let at_least = (20 * MIB).div_ceil(MAX_GROUP_BYTES);
    assert!(batches >= at_least as u64, "{batches} batches");
    storage.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_refuses_a_group_that_no_batch_holds() {
    let (_, storage) = behind_gate().await;
    let group = |bytes| -> Vec<Write> {
        let writes = (0..3).flat_map(|number| write(&number.to_string(), bytes));
        writes.collect()
    };
    let refused = storage.commit(group(MAX_GROUP_BYTES / 3 + 1)).await;
    assert!(matches!(refused, Err(StorageError::TooLarge { .. })));
    storage.commit(group(MAX_GROUP_BYTES / 3)).await.unwrap();
    storage.close().await;
}
