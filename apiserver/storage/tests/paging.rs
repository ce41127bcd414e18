//! A list that is read page by page stays at its revision, and is put together once however many others are read.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_storage::{
    Expect, Key, LogOptions, LogStorage, ObjectHeader, Op, Page, Prefix, RangeOptions, ReadAt, Record,
    Storage, StorageError, Write,
};
use bytes::Bytes;
use machinery_runtime::Simulation;
use std::sync::Arc;
use std::time::Duration;

fn options() -> LogOptions {
    LogOptions {
        reserve_bytes: 0,
        history_bytes: 1 << 10,
        retention: Duration::ZERO,
        on_fatal: Arc::new(|_| {}),
        ..LogOptions::new("/data")
    }
}

fn put(name: u32) -> Write {
    let record = Record {
        parts: [Bytes::new(), Bytes::new(), Bytes::from_static(b"value")],
        fingerprint: 7,
        header: Arc::new(ObjectHeader::default()),
    };
    Write {
        key: Key::parse(&format!("/registry/pods/a/{name:03}")).unwrap(),
        expect: Expect::Any,
        op: Op::Put { record, ttl: None },
    }
}

async fn page(storage: &LogStorage, at: ReadAt, after: Option<&Key>) -> Result<Page, StorageError> {
    let options = RangeOptions {
        at,
        start_after: after.cloned(),
        limit: 3,
    };
    storage
        .range(&Prefix::parse("/registry/pods/").unwrap(), &options)
        .await
}

#[test]
fn paged_list_is_put_together_once_when_others_have_taken_its_place() {
    let simulation = Simulation::new(1);
    let (runtime, disk) = (simulation.runtime(), simulation.disk());
    simulation.run(async move {
        let storage = LogStorage::open(&runtime, options()).await.unwrap().0;
        for name in 0..12 {
            storage.commit(vec![put(name)]).await.unwrap();
        }
        let first = page(&storage, ReadAt::Latest, None).await.unwrap();
        let at = ReadAt::Exact(first.revision);
        for name in 100..140 {
            storage.commit(vec![put(name)]).await.unwrap();
            page(&storage, ReadAt::Latest, None).await.unwrap();
            if name == 120 {
                let again = page(&storage, at, None).await.unwrap();
                assert_eq!(again, first, "a list that is used keeps its place");
            }
        }
        disk.fail_reads(1);
        page(&storage, at, None).await.unwrap();
        disk.fail_reads(0);
        for name in 200..240 {
            storage.commit(vec![put(name)]).await.unwrap();
            page(&storage, ReadAt::Latest, None).await.unwrap();
        }
        let mut last = first;
        let mut names = last.entries.len();
        while last.remaining > 0 {
            let after = last.entries.last().unwrap().key.clone();
            last = page(&storage, at, Some(&after)).await.unwrap();
            names += last.entries.len();
            // The next pages need no disk.
            disk.fail_reads(1);
        }
        assert_eq!(names, 12);
    });
}

#[test]
fn paged_list_ends_when_its_state_holds_too_much() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let options = LogOptions {
            pinned_bytes: 8 << 10,
            ..options()
        };
        let storage = LogStorage::open(&runtime, options).await.unwrap().0;
        for name in 0..12 {
            storage.commit(vec![put(name)]).await.unwrap();
        }
        let old = page(&storage, ReadAt::Latest, None).await.unwrap();
        // A write takes about a kilobyte of what is there away.
        for _ in 0..5 {
            storage.commit(vec![put(0)]).await.unwrap();
        }
        let new = page(&storage, ReadAt::Latest, None).await.unwrap();
        assert_eq!(
            page(&storage, ReadAt::Exact(old.revision), None).await.unwrap(),
            old
        );
        for _ in 0..5 {
            storage.commit(vec![put(0)]).await.unwrap();
        }
        let ended = page(&storage, ReadAt::Exact(old.revision), None).await;
        assert!(matches!(ended, Err(StorageError::Compacted { asked, .. }) if asked == old.revision));
        assert_eq!(
            page(&storage, ReadAt::Exact(new.revision), None).await.unwrap(),
            new
        );
    });
}

#[test]
fn paged_list_that_is_short_goes_on_whatever_others_write() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let options = LogOptions {
            pinned_bytes: 64 << 10,
            history_bytes: 1 << 20,
            retention: Duration::from_secs(3_600),
            ..options()
        };
        let storage = LogStorage::open(&runtime, options).await.unwrap().0;
        let of_b = |name: u32| Write {
            key: Key::parse(&format!("/registry/pods/b/{name:03}")).unwrap(),
            ..put(name)
        };
        let below = async |prefix: &str, at| {
            let options = RangeOptions {
                at,
                limit: 3,
                ..RangeOptions::default()
            };
            storage.range(&Prefix::parse(prefix).unwrap(), &options).await
        };
        for name in 0..12 {
            storage.commit(vec![put(name)]).await.unwrap();
        }
        for name in 0..4 {
            storage.commit(vec![of_b(name)]).await.unwrap();
        }
        let old = below("/registry/pods/b/", ReadAt::Latest).await.unwrap();
        assert_eq!((old.entries.len(), old.remaining), (3, 1));
        storage.commit(vec![of_b(0)]).await.unwrap();
        for _ in 0..200 {
            storage.commit(vec![put(0)]).await.unwrap();
        }
        let at = ReadAt::Exact(old.revision);
        assert_eq!(below("/registry/pods/b/", at).await.unwrap(), old);
        let long = below("/registry/pods/", at).await;
        assert!(matches!(long, Err(StorageError::Compacted { .. })), "{long:?}");
    });
}

/// Deleted after its first page, it is short by now and was not.
#[test]
fn paged_list_that_was_long_is_not_put_together_again() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        for history_bytes in [1 << 10, 1 << 20] {
            let options = LogOptions {
                pinned_bytes: 64 << 10,
                history_bytes,
                ..options()
            };
            let storage = LogStorage::open(&runtime, options).await.unwrap().0;
            for name in 0..200 {
                storage.commit(vec![put(name)]).await.unwrap();
            }
            let old = page(&storage, ReadAt::Latest, None).await.unwrap();
            for name in 0..200 {
                let op = Op::Delete;
                storage.commit(vec![Write { op, ..put(name) }]).await.unwrap();
            }
            let ended = page(&storage, ReadAt::Exact(old.revision), None).await;
            assert!(matches!(ended, Err(StorageError::Compacted { .. })), "{ended:?}");
            storage.close().await;
        }
    });
}

/// No page has pinned its state, and what the tree still holds costs nothing.
#[test]
fn list_of_the_past_holds_no_more_than_pins_may() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        for history_bytes in [1 << 10, 1 << 20] {
            let options = LogOptions {
                pinned_bytes: 64 << 10,
                history_bytes,
                ..options()
            };
            let storage = LogStorage::open(&runtime, options).await.unwrap().0;
            for name in 0..200 {
                storage.commit(vec![put(name)]).await.unwrap();
            }
            storage.checkpoint();
            runtime.sleep(Duration::from_secs(1)).await;
            let at = ReadAt::Exact(storage.current_revision().await.unwrap());
            let changed = async |names: std::ops::Range<u32>| {
                for name in names {
                    storage.commit(vec![put(name)]).await.unwrap();
                }
                page(&storage, at, None).await
            };
            let kept = changed(0..50).await.unwrap();
            assert_eq!((kept.entries.len(), kept.remaining), (3, 197));
            // The kept list ends, as what it holds alone has become too much.
            let ended = changed(50..200).await;
            assert!(matches!(ended, Err(StorageError::Compacted { .. })), "{ended:?}");
            storage.close().await;
        }
    });
}
