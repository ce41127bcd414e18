//! Stores come and go in one process and leave nothing.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_storage::{
    Expect, Key, LogOptions, LogStorage, ObjectHeader, Op, Prefix, Record, Revision, Storage, StorageError,
    WatchFilter, WatchRequest, Write,
};
use bytes::Bytes;
use machinery_runtime::Runtime;
use std::path::Path;
use std::sync::Arc;

fn write(name: &str) -> Vec<Write> {
    let key = Key::parse(&format!("/registry/pods/a/{name}")).unwrap();
    let record = Record {
        parts: [
            Bytes::from_static(b"a"),
            Bytes::from_static(b"b"),
            Bytes::from_static(b"c"),
        ],
        fingerprint: 7,
        header: Arc::new(ObjectHeader::default()),
    };
    vec![Write {
        key,
        expect: Expect::Any,
        op: Op::Put { record, ttl: None },
    }]
}

fn everything() -> WatchRequest {
    WatchRequest {
        interests: vec![WatchFilter::prefix(Prefix::parse("/").unwrap())],
        after: Revision::ZERO,
    }
}

/// Open files below a directory.
fn descriptors(dir: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
        .filter(|path| path.starts_with(dir))
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storage_hundred_stores_leave_no_task_or_descriptor() {
    let (scope, dir) = (Runtime::real().child_scope(), tempfile::tempdir().unwrap());
    let runtime = scope.runtime();
    for store in 0..100 {
        let storage = if store % 10 == 0 {
            LogStorage::open(runtime, LogOptions::new(dir.path().join(store.to_string())))
                .await
                .unwrap()
                .0
        } else {
            LogStorage::memory(runtime).await.unwrap()
        };
        let mut cursor = storage.watch(everything()).await.unwrap();
        storage.commit(write("one")).await.unwrap();
        assert_eq!(cursor.next_batch(1).await.unwrap().len(), 1);
        if store % 2 == 0 {
            storage.close().await;
        }
        drop(storage);
        assert!(matches!(cursor.next_batch(1).await, Err(StorageError::Closed)));
    }
    scope.drained().await;
    assert_eq!((scope.task_count(), descriptors(dir.path())), (0, 0));
}

#[tokio::test]
async fn directory_lock_admits_one_user() {
    let (runtime, dir) = (Runtime::real(), tempfile::tempdir().unwrap());
    let options = LogOptions::new(dir.path().join("data"));
    let (storage, _) = LogStorage::open(&runtime, options.clone()).await.unwrap();
    storage.commit(write("one")).await.unwrap();
    let second = LogStorage::open(&runtime, options.clone()).await;
    assert!(matches!(second, Err(StorageError::Locked(_))), "{second:?}");
    storage.close().await;
    let (storage, report) = LogStorage::open(&runtime, options).await.unwrap();
    assert_eq!(
        (report.revision, report.objects, report.replayed),
        (Revision(1), 1, 1)
    );
    storage.close().await;
}

#[tokio::test]
async fn log_newer_format_is_refused_by_name() {
    let (runtime, dir) = (Runtime::real(), tempfile::tempdir().unwrap());
    let (storage, _) = LogStorage::open(&runtime, LogOptions::new(dir.path()))
        .await
        .unwrap();
    storage.commit(write("one")).await.unwrap();
    storage.close().await;
    let names = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let segment = names
        .filter(|path| path.extension().is_some_and(|ext| ext == "seg"))
        .max()
        .unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[8] = 9;
    let checksum = crc32c::crc32c(&bytes[..508]);
    bytes[508..512].copy_from_slice(&checksum.to_le_bytes());
    std::fs::write(&segment, bytes).unwrap();
    let refused = LogStorage::open(&runtime, LogOptions::new(dir.path())).await;
    assert!(
        matches!(
            refused,
            Err(StorageError::NewerFormat {
                found: 9,
                known: 1,
                ..
            })
        ),
        "{refused:?}"
    );
}
