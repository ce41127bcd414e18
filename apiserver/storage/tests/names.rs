//! Renames and removals that fail: what has no name is not counted, nor reported as made.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_storage::{
    Expect, Key, LogOptions, LogStorage, ObjectHeader, Op, Record, Storage, StorageError, Write, write_backup,
};
use bytes::Bytes;
use machinery_runtime::{Runtime, SimDisk, Simulation};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const RESERVE: u64 = 256 << 10;
const BACKUP: &str = "/backups/one";

fn options() -> LogOptions {
    LogOptions {
        reserve_bytes: RESERVE,
        on_fatal: Arc::new(|error| panic!("{error}")),
        ..LogOptions::new("/data")
    }
}

fn write(op: Op) -> Vec<Write> {
    vec![Write {
        key: Key::parse("/registry/pods/a/x").unwrap(),
        expect: Expect::Any,
        op,
    }]
}

fn put() -> Vec<Write> {
    let record = Record {
        parts: [Bytes::new(), Bytes::new(), Bytes::from("x".repeat(3_000))],
        fingerprint: 7,
        header: Arc::new(ObjectHeader::default()),
    };
    write(Op::Put { record, ttl: None })
}

fn pieces(disk: &SimDisk) -> u64 {
    let files = disk.files().into_iter();
    let pieces = files.filter(|(path, _)| path.extension().is_some_and(|end| end == "room"));
    pieces.map(|(_, length)| length).sum()
}

async fn started(runtime: &Runtime, seed: u64) -> LogStorage {
    let storage = LogStorage::open(runtime, options()).await.unwrap().0;
    // The reserve is laid out in the background.
    runtime.sleep(Duration::from_secs(60)).await;
    storage
        .commit(put())
        .await
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    storage
}

/// A deletion on a full disk would look for a file that is not there, and the process would end.
#[test]
fn names_that_fail_are_no_pieces_of_the_reserve() {
    for seed in 0..40 {
        let simulation = Simulation::new(seed);
        let (runtime, disk) = (simulation.runtime(), simulation.disk());
        simulation.run(async move {
            disk.fail_names(2);
            let storage = started(&runtime, seed).await;
            let counted = storage.statistics().unwrap().reserve_bytes;
            assert!(counted <= pieces(&disk), "seed {seed}: {counted}");
            disk.fail_names(0);
            disk.crowd();
            for _ in 0..600 {
                if storage.commit(put()).await.is_err() {
                    break;
                }
            }
            match storage.commit(write(Op::Delete)).await {
                Ok(_) | Err(StorageError::NoSpace) => {}
                Err(error) => panic!("seed {seed}: {error}"),
            }
            storage.close().await;
        });
    }
}

#[test]
fn names_that_fail_are_no_backups() {
    for seed in 0..10 {
        let simulation = Simulation::new(seed);
        let (runtime, disk) = (simulation.runtime(), simulation.disk());
        simulation.run(async move {
            let storage = started(&runtime, seed).await;
            let mut backup = storage.backup().unwrap().unwrap();
            disk.fail_names(1);
            let written = write_backup(&*disk, Path::new(BACKUP), || Ok(backup.next_piece()));
            disk.fail_names(0);
            assert!(
                matches!(written, Err(StorageError::Io { .. })),
                "seed {seed}: {written:?}"
            );
            storage.close().await;
        });
    }
}
