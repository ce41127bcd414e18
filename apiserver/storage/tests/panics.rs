//! A panic in a worker of the log ends the log, and its owner learns of it.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_storage::{
    Key, LogOptions, LogStorage, ObjectHeader, Prefix, RangeOptions, ReadAt, Record, Revision, Storage,
    StorageError, Write,
};
use bytes::Bytes;
use machinery_runtime::{DiskCall, MemDisk, ObservedDisk, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// A guard against hanging, not an assertion.
const PATIENCE: Duration = Duration::from_secs(60);

/// The point at which the disk panics.
const NOWHERE: u8 = 0;
const IN_SYNC: u8 = 1;
const IN_CHECKPOINT: u8 = 2;
const IN_READ: u8 = 3;

/// A disk in memory that panics at a place.
fn panicking(at: &Arc<AtomicU8>) -> ObservedDisk {
    let at = Arc::clone(at);
    ObservedDisk::new(MemDisk::default(), move |path, call| {
        let place = match call {
            DiskCall::Write if path.extension().is_some_and(|kind| kind == "tmp") => IN_CHECKPOINT,
            DiskCall::Read(_) => IN_READ,
            DiskCall::Sync => IN_SYNC,
            DiskCall::Write | DiskCall::SyncDir | DiskCall::Forget(..) => return,
        };
        assert!(at.load(Ordering::SeqCst) != place, "as wanted");
    })
}

fn write(value: usize) -> Vec<Write> {
    let record = Record {
        parts: [Bytes::new(), Bytes::new(), Bytes::from(value.to_string())],
        fingerprint: 7,
        header: Arc::new(ObjectHeader::default()),
    };
    let key = Key::parse(&format!("/registry/pods/a/{value}")).unwrap();
    vec![Write::create(key, record)]
}

/// Ten writes, then `act` on a disk that panics there; this worker notifies the owner, once, and every later write is refused
/// at once.
async fn ends<F: Future<Output = ()>>(at: u8, worker: &str, act: impl FnOnce(Arc<LogStorage>) -> F) {
    let place = Arc::new(AtomicU8::new(NOWHERE));
    let runtime = Runtime::real().with_disk(Arc::new(panicking(&place)));
    let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let options = LogOptions {
        history_bytes: 0,
        // No other task syncs or reads.
        reserve_bytes: 0,
        scrub_interval: Duration::ZERO,
        on_fatal: Arc::new(move |error| told.send(error.to_string()).unwrap()),
        ..LogOptions::new("/data")
    };
    let (storage, _) = LogStorage::open(&runtime, options).await.unwrap();
    let storage = Arc::new(storage);
    for value in 0..10 {
        storage.commit(write(value)).await.unwrap();
    }
    place.store(at, Ordering::SeqCst);
    let story = async {
        act(Arc::clone(&storage)).await;
        let fatal = hears.recv().await.unwrap();
        assert!(fatal.contains("as wanted") && fatal.contains(worker), "{fatal}");
        let refused = storage.commit(write(100)).await;
        assert!(
            matches!(refused, Err(StorageError::Unavailable(_))),
            "{refused:?}"
        );
        place.store(NOWHERE, Ordering::SeqCst);
        storage.close().await;
    };
    runtime.timeout(PATIENCE, story).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flush_panic_is_fatal() {
    ends(IN_SYNC, "the flush", async |storage| {
        let refused = storage.commit(write(11)).await;
        assert!(
            matches!(refused, Err(StorageError::Unavailable(_))),
            "{refused:?}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoint_panic_is_fatal() {
    ends(IN_CHECKPOINT, "a checkpoint", async |storage| {
        storage.checkpoint()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_panic_is_fatal() {
    ends(IN_READ, "a reader", async |storage| {
        let options = RangeOptions {
            at: ReadAt::Exact(Revision(5)),
            ..RangeOptions::default()
        };
        let prefix = Prefix::parse("/").unwrap();
        let refused = storage.range(&prefix, &options).await;
        assert!(
            matches!(refused, Err(StorageError::Unavailable(_))),
            "{refused:?}"
        );
    })
    .await;
}
