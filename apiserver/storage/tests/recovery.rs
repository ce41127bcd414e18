//! A start that the power cuts short at any step loses nothing of what was acknowledged.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_storage::{
    Key, LogOptions, LogStorage, ObjectHeader, Prefix, RangeOptions, Record, Storage, Write,
};
use bytes::Bytes;
use machinery_runtime::{Runtime, Simulation};
use std::sync::Arc;

const WRITES: usize = 3;
/// A start without anything to repair changes the disk less often.
const STEPS: u32 = 10;
/// The disk keeps another part of what was not synced for each.
const SEEDS: u64 = 48;

fn options() -> LogOptions {
    LogOptions {
        reserve_bytes: 0,
        on_fatal: Arc::new(|_| {}),
        ..LogOptions::new("/data")
    }
}

/// Several sectors, each of which the power may take.
fn write(name: usize) -> Write {
    let record = Record {
        parts: [Bytes::new(), Bytes::new(), Bytes::from("x".repeat(3_000))],
        fingerprint: 7,
        header: Arc::new(ObjectHeader::default()),
    };
    Write::create(Key::parse(&format!("/registry/pods/a/{name}")).unwrap(), record)
}

async fn objects(runtime: &Runtime) -> usize {
    let (storage, report) = LogStorage::open(runtime, options()).await.unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    let all = Prefix::parse("/").unwrap();
    let page = storage.range(&all, &RangeOptions::default()).await.unwrap();
    storage.close().await;
    page.entries.len()
}

#[test]
fn recovery_that_the_power_cuts_short_loses_nothing() {
    for seed in 0..SEEDS {
        for step in 0..STEPS {
            let simulation = Simulation::new(seed);
            let (runtime, disk) = (simulation.runtime(), simulation.disk());
            simulation.run(async move {
                let scope = runtime.child_scope();
                let storage = LogStorage::open(scope.runtime(), options()).await.unwrap().0;
                for name in 0..WRITES {
                    storage.commit(vec![write(name)]).await.unwrap();
                }
                disk.kill();
                drop(storage);
                scope.stopped().await;
                disk.power_off_after(step);
                let scope = runtime.child_scope();
                let cut = LogStorage::open(scope.runtime(), options()).await.map(drop);
                scope.stopped().await;
                assert_eq!(cut.is_err(), disk.is_off(), "seed {seed}, step {step}");
                disk.keep_power();
                disk.crash();
                assert_eq!(objects(&runtime).await, WRITES, "seed {seed}, step {step}");
            });
        }
    }
}
