//! The scrub reads what the device has, and not what the page cache has kept of it.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_storage::{Expect, Key, LogOptions, LogStorage, ObjectHeader, Op, Record, Storage, Write};
use bytes::Bytes;
use machinery_runtime::{DiskCall, MemDisk, ObservedDisk, Simulation};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(3600);

fn put(name: u32) -> Write {
    let record = Record {
        parts: [Bytes::new(), Bytes::new(), vec![b'x'; 9_000].into()],
        fingerprint: 7,
        header: Arc::new(ObjectHeader::default()),
    };
    Write {
        key: Key::parse(&format!("/registry/pods/a/{name}")).unwrap(),
        expect: Expect::Any,
        op: Op::Put { record, ttl: None },
    }
}

/// Calls on one file: bytes read since the cache forgot something, and bytes that it forgot.
#[derive(Default)]
struct Calls {
    unforgotten_reads: u64,
    read: u64,
    forgets: u64,
    is_forgotten: bool,
}

#[test]
fn scrub_forgets_the_page_cache_before_and_after_it_reads() {
    let simulation = Simulation::new(1);
    let calls: Arc<Mutex<HashMap<PathBuf, Calls>>> = Arc::default();
    let seen = Arc::clone(&calls);
    let disk = ObservedDisk::new(MemDisk::new(), move |path, call| {
        let mut all = seen.lock().unwrap();
        let own = all.entry(path.to_owned()).or_default();
        match call {
            DiskCall::Forget(_, length) => {
                own.forgets += length;
                own.is_forgotten = true;
            }
            DiskCall::Read(bytes) => {
                own.read += bytes as u64;
                own.unforgotten_reads += u64::from(!own.is_forgotten);
            }
            DiskCall::Write | DiskCall::Sync | DiskCall::SyncDir => {}
        }
    });
    let runtime = simulation.runtime().with_disk(Arc::new(disk));
    let own = Arc::clone(&calls);
    simulation.run(async move {
        let options = LogOptions {
            reserve_bytes: 0,
            retention: Duration::ZERO,
            scrub_interval: INTERVAL,
            checkpoint_bytes: 256 << 10,
            ..LogOptions::new("/data")
        };
        let storage = LogStorage::open(&runtime, options).await.unwrap().0;
        for name in 0..100 {
            storage.commit(vec![put(name)]).await.unwrap();
            runtime.sleep(Duration::from_millis(1)).await;
        }
        own.lock().unwrap().clear();
        while storage.statistics().unwrap().scrubs == 0 {
            runtime.sleep(INTERVAL / 10).await;
        }
        let scrubbed = storage.statistics().unwrap().scrubbed_bytes;
        let calls = own.lock().unwrap();
        let read: u64 = calls.values().map(|own| own.read).sum();
        assert!(scrubbed > 900_000 && read >= scrubbed, "{scrubbed} {read}");
        for (path, own) in calls.iter().filter(|(_, own)| own.read > 0) {
            assert_eq!(own.unforgotten_reads, 0, "{}", path.display());
            assert!(own.forgets >= 2 * own.read * 9 / 10, "{}", path.display());
        }
    });
}
