//! A damaged checkpoint: the check names the record, and a backup up to the damage has all others.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_storage::{
    Key, LogOptions, LogStorage, ObjectHeader, OfflineState, Op, Record, Revision, Storage, StorageError,
    Write, check,
};
use bytes::Bytes;
use machinery_runtime::{SimDisk, Simulation};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const DIR: &str = "/data";
const OBJECTS: u32 = 400;

fn put(name: u32, value: &str) -> Write {
    let record = Record {
        parts: [
            Bytes::new(),
            Bytes::new(),
            Bytes::from(format!("{value}-{name}-{}", "x".repeat(600))),
        ],
        fingerprint: 7,
        header: Arc::new(ObjectHeader::default()),
    };
    Write {
        key: Key::parse(&format!("/registry/pods/a/{name:04}")).unwrap(),
        expect: apiserver_storage::Expect::Any,
        op: Op::Put { record, ttl: None },
    }
}

/// A directory whose only checkpoint is followed by changes of the first ten objects.
fn written() -> Arc<SimDisk> {
    let simulation = Simulation::new(1);
    let (runtime, disk) = (simulation.runtime(), simulation.disk());
    simulation.run(async move {
        let options = LogOptions {
            reserve_bytes: 0,
            retention: Duration::ZERO,
            ..LogOptions::new(DIR)
        };
        let storage = LogStorage::open(&runtime, options).await.unwrap().0;
        for name in 0..OBJECTS {
            storage.commit(vec![put(name, "old")]).await.unwrap();
        }
        storage.checkpoint();
        runtime.sleep(Duration::from_secs(1)).await;
        for name in 0..10 {
            storage.commit(vec![put(name, "new")]).await.unwrap();
        }
        storage.compact(Revision(u64::from(OBJECTS))).await.unwrap();
        runtime.sleep(Duration::from_secs(1)).await;
        storage.close().await;
    });
    disk
}

fn checkpoint(disk: &SimDisk) -> (PathBuf, Vec<u8>) {
    let paths = disk.files().into_iter().map(|(path, _)| path);
    let mut all = paths.filter(|path| path.extension().is_some_and(|end| end == "ckpt"));
    let path = all.next().unwrap();
    assert_eq!(all.next(), None);
    let bytes = disk.read(&path).unwrap();
    (path, bytes)
}

/// Offset of an object's text in the checkpoint.
fn place(bytes: &[u8], name: u32) -> usize {
    let text = format!("old-{name}-x");
    bytes
        .windows(text.len())
        .position(|own| own == text.as_bytes())
        .unwrap()
}

fn saved(disk: &SimDisk) -> (BTreeSet<String>, Revision, Vec<StorageError>) {
    let saved = OfflineState::open_damaged(disk, Path::new(DIR)).unwrap();
    assert!(saved.ended.is_some());
    let name = |key: &Key| key.as_str().rsplit('/').next().unwrap().to_owned();
    let names = saved.state.entries().map(|entry| name(&entry.key)).collect();
    (names, saved.state.revision(), saved.lost)
}

fn all_but(left_out: impl IntoIterator<Item = u32>) -> BTreeSet<String> {
    let left_out: BTreeSet<u32> = left_out.into_iter().collect();
    let names = (0..OBJECTS).filter(|name| !left_out.contains(name));
    names.map(|name| format!("{name:04}")).collect()
}

fn offset_of(error: &StorageError) -> u64 {
    let StorageError::Corrupt { offset, .. } = error else {
        panic!("{error}");
    };
    *offset
}

#[test]
fn salvage_of_a_checkpoint_leaves_out_the_damaged_record_alone() {
    for name in [0, 5, 9, 50, 200, OBJECTS - 1] {
        let disk = written();
        let (path, bytes) = checkpoint(&disk);
        let at = place(&bytes, name) as u64;
        assert!(disk.flip_bit(&path, at * 8 + 1));
        let report = check(&*disk, Path::new(DIR)).unwrap();
        assert!(report.start.is_err() && report.findings.len() == 1, "{report:?}");
        let (names, revision, lost) = saved(&disk);
        // The log behind the checkpoint has the first ten.
        assert_eq!(names, all_but((name >= 10).then_some(name)), "{name}");
        assert_eq!(revision, Revision(u64::from(OBJECTS) + 10));
        assert_eq!(report.readable, Some(revision));
        let [lost] = &lost[..] else { panic!("{lost:?}") };
        let offset = offset_of(lost);
        assert!(offset < at && at - offset < 200, "{name}: {offset} and {at}");
        let named = format!("byte {offset}:");
        assert!(report.findings[0].problem.contains(&named), "{report:?}");
    }
}

/// Without its length it is unknown where the next record begins, and bytes of an object might look like one.
#[test]
fn salvage_goes_on_with_the_next_block_behind_a_damaged_length() {
    let disk = written();
    let (path, bytes) = checkpoint(&disk);
    let (at, before) = (place(&bytes, 50), place(&bytes, 49));
    let length = at - before;
    // The record ends where the text does, and the next one begins with its length.
    let text_end = before
        + bytes[before..]
            .windows(8)
            .position(|own| own != b"xxxxxxxx" && own[..1] == *b"x")
            .unwrap();
    let begin = (text_end..at)
        .find(|at| bytes[*at] != b'x' && bytes[*at - 1] == b'x')
        .unwrap();
    assert!(at - begin < length);
    assert!(disk.flip_bit(&path, begin as u64 * 8 + 3));
    let (names, revision, lost) = saved(&disk);
    assert_eq!(revision, Revision(u64::from(OBJECTS) + 10));
    let [lost] = &lost[..] else { panic!("{lost:?}") };
    assert_eq!(offset_of(lost), begin as u64);
    let missing: Vec<u32> = (0..OBJECTS)
        .filter(|name| !names.contains(&format!("{name:04}")))
        .collect();
    let (first, last) = (missing[0], missing[missing.len() - 1]);
    assert_eq!(first, 50);
    assert!(last < OBJECTS / 2, "the next block is whole: {last}");
    assert_eq!(names, all_but(first..=last));
}

/// A second damage leaves nothing to confirm the first length.
#[test]
fn salvage_passes_one_record_of_a_block_by_its_length() {
    let disk = written();
    let (path, bytes) = checkpoint(&disk);
    for name in [50, 60] {
        assert!(disk.flip_bit(&path, place(&bytes, name) as u64 * 8 + 1));
    }
    let (names, _, lost) = saved(&disk);
    assert_eq!(lost.len(), 1);
    assert!(names.contains("0049") && !names.contains("0050") && !names.contains("0055"));
    assert!(
        names.contains(&format!("{:04}", OBJECTS - 1)),
        "the next block is whole"
    );
}
