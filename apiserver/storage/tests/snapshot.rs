//! Snapshots of etcd are written and read, and whatever stands in such a file is answered.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_storage::{
    Key, LogOptions, LogStorage, ObjectHeader, OfflineState, Record, RecordCodec, RestoreOptions, Revision,
    SnapshotContent, SnapshotOptions, Storage, StorageError, Write, restore,
};
use bytes::Bytes;
use machinery_runtime::{Disk, OpenMode, SimDisk, Simulation};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const DIR: &str = "/var/lib/knarr/storage";
const FILE: &str = "/backups/snapshot.db";

/// Values are the last part of their record.
#[derive(Debug)]
struct Text;

impl RecordCodec for Text {
    fn encode(&self, _: &Key, record: &Record) -> Result<Vec<u8>, String> {
        Ok(record.parts[2].to_vec())
    }

    fn decode(&self, _: &Key, value: &[u8]) -> Result<Record, String> {
        Ok(record(value))
    }
}

fn record(value: &[u8]) -> Record {
    Record {
        parts: [Bytes::new(), Bytes::new(), Bytes::copy_from_slice(value)],
        fingerprint: 7,
        header: Arc::new(ObjectHeader::default()),
    }
}

/// A closed log of so many objects, one of them deleted, one of them longer than a page, one that ends.
fn written(objects: usize) -> Arc<SimDisk> {
    let simulation = Simulation::new(1);
    let (runtime, disk) = (simulation.runtime(), simulation.disk());
    simulation.run(async move {
        let options = LogOptions {
            reserve_bytes: 0,
            ..LogOptions::new(DIR)
        };
        let storage = LogStorage::open(&runtime, options).await.unwrap().0;
        for number in 0..objects {
            let key = Key::parse(&format!("/registry/pods/a/{}", number * 7919 % objects)).unwrap();
            let value = if number == 3 {
                "y".repeat(20_000)
            } else {
                "x".repeat(number % 300)
            };
            let mut write = Write::create(key, record(format!("{number}{value}").as_bytes()));
            if let apiserver_storage::Op::Put { ttl, .. } = &mut write.op {
                *ttl = (number == 5).then_some(Duration::from_secs(600));
            }
            storage.commit(vec![write]).await.unwrap();
        }
        let (gone, at) = (Key::parse("/registry/pods/a/0").unwrap(), Revision(1));
        storage.commit(vec![Write::delete(gone, at)]).await.unwrap();
        storage.close().await;
    });
    disk
}

fn state(disk: &SimDisk) -> OfflineState {
    OfflineState::open(disk, Path::new(DIR)).unwrap()
}

fn read(disk: &SimDisk, skip_hash_check: bool) -> Result<SnapshotContent, StorageError> {
    let options = SnapshotOptions {
        now: 0,
        skip_hash_check,
        encryption: None,
        prefix: String::new(),
    };
    OfflineState::of_etcd_snapshot(disk, Path::new(FILE), &Text, &options)
}

fn described(state: &OfflineState) -> Vec<(String, Revision, Revision, Bytes, bool)> {
    let entries = state.entries().map(|entry| {
        let (value, ends) = (entry.record.parts[2].clone(), entry.expires.is_some());
        (entry.key.to_string(), entry.revision, entry.created, value, ends)
    });
    entries.collect()
}

#[test]
fn snapshot_that_was_written_is_read_as_the_same_objects() {
    for objects in [1, 2, 10, 3000] {
        let disk = written(objects);
        let own = state(&disk);
        own.write_etcd_snapshot(&*disk, Path::new(FILE), (&Text, None), 0)
            .unwrap();
        let content = read(&disk, false).unwrap();
        assert_eq!(described(&content.state), described(&own), "{objects}");
        assert_eq!(content.state.revision(), own.revision(), "that of the deletion");
        assert_eq!(content.left_out, Vec::<String>::new());
        let exists = own.write_etcd_snapshot(&*disk, Path::new(FILE), (&Text, None), 0);
        assert!(matches!(exists, Err(StorageError::Exists(_))));
    }
}

#[test]
fn snapshot_becomes_the_directory_of_a_log() {
    let disk = written(20);
    let own = state(&disk);
    own.write_etcd_snapshot(&*disk, Path::new(FILE), (&Text, None), 0)
        .unwrap();
    let content = read(&disk, false).unwrap();
    let to: Arc<dyn Disk> = disk.clone();
    let options = RestoreOptions {
        bump_revision: 5,
        store: 9,
        encryption: None,
    };
    restore(&to, Path::new("/new"), &content.state, options).unwrap();
    let again = OfflineState::open(&*disk, Path::new("/new")).unwrap();
    assert_eq!(described(&again), described(&own));
    assert_eq!(again.revision().0, own.revision().0 + 5);
}

#[test]
fn snapshot_with_another_hash_or_cut_off_is_refused() {
    let disk = written(20);
    state(&disk)
        .write_etcd_snapshot(&*disk, Path::new(FILE), (&Text, None), 0)
        .unwrap();
    let whole = disk.read(Path::new(FILE)).unwrap();
    let put = |bytes: &[u8]| {
        let disk = SimDisk::new(1);
        let file = disk.open(Path::new(FILE), OpenMode::CreateNew).unwrap();
        file.write_at(0, bytes).unwrap();
        disk
    };
    for at in (0..whole.len()).step_by(509) {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        let refused = read(&put(&changed), false).unwrap_err();
        assert!(refused.to_string().contains("hash"), "{at}: {refused}");
        let refused = read(&put(&whole[..at]), false).unwrap_err();
        assert!(matches!(refused, StorageError::Corrupt { .. }), "{at}: {refused}");
    }
    let raw = put(&whole[..whole.len() - 32]);
    assert!(
        read(&raw, false)
            .unwrap_err()
            .to_string()
            .contains("--skip-hash-check")
    );
    assert_eq!(
        described(&read(&raw, true).unwrap().state),
        described(&state(&disk))
    );
}

#[test]
fn snapshot_of_any_bytes_is_answered() {
    let disk = written(120);
    state(&disk)
        .write_etcd_snapshot(&*disk, Path::new(FILE), (&Text, None), 0)
        .unwrap();
    let whole = disk.read(Path::new(FILE)).unwrap();
    machinery_fuzz::fuzz([whole[..whole.len() - 32].to_vec()], |input| {
        let disk = SimDisk::new(1);
        let file = disk.open(Path::new(FILE), OpenMode::CreateNew).unwrap();
        file.write_at(0, input).unwrap();
        let _ = machinery_fuzz::in_proportion(input, HELD_BY_BYTE, || read(&disk, true));
    });
}

/// A page is read twice, and an entry of few bytes takes a few hundred.
const HELD_BY_BYTE: usize = 8;

/// Each of a thousand elements is all that is behind the others: copied, they would be a thousand times the page.
#[test]
fn snapshot_whose_elements_share_their_bytes_is_refused() {
    const PAGE: usize = 4096;
    const LEAF: [u8; 2] = [2, 0];
    let disk = written(400);
    state(&disk)
        .write_etcd_snapshot(&*disk, Path::new(FILE), (&Text, None), 0)
        .unwrap();
    let whole = disk.read(Path::new(FILE)).unwrap();
    let mut whole = whole[..whole.len() - 32].to_vec();
    let pages = whole.chunks_mut(PAGE).enumerate();
    let leaves = pages.filter(|(at, page)| page[8..10] == LEAF && page[..8] == (*at as u64).to_le_bytes());
    for (_, page) in leaves {
        let count = usize::from(u16::from_le_bytes([page[10], page[11]]));
        for at in 1..count {
            let start = 16 + at * 16;
            // The value of the first element once more, from another place.
            let first: Vec<u8> = page[20..32].to_vec();
            page[start + 4..start + 16].copy_from_slice(&first);
            let position = u32::from_le_bytes(first[..4].try_into().unwrap());
            let moved = position - u32::try_from(at * 16).unwrap();
            page[start + 4..start + 8].copy_from_slice(&moved.to_le_bytes());
            let left = u32::try_from(PAGE).unwrap() - 16 - position - 17;
            page[start + 12..start + 16].copy_from_slice(&left.to_le_bytes());
        }
    }
    let disk = SimDisk::new(1);
    let file = disk.open(Path::new(FILE), OpenMode::CreateNew).unwrap();
    file.write_at(0, &whole).unwrap();
    let refused = machinery_fuzz::in_proportion(&whole, HELD_BY_BYTE, || read(&disk, true));
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("elements of a page share their bytes"),
        "{refused}"
    );
}

/// Each of the leaves goes on over all that are behind it: read, they would be as many times the file.
#[test]
fn snapshot_whose_pages_overlap_is_refused() {
    const PAGE: usize = 4096;
    const LEAF: [u8; 2] = [2, 0];
    let disk = written(400);
    state(&disk)
        .write_etcd_snapshot(&*disk, Path::new(FILE), (&Text, None), 0)
        .unwrap();
    let whole = disk.read(Path::new(FILE)).unwrap();
    let mut whole = whole[..whole.len() - 32].to_vec();
    let count = whole.len() / PAGE;
    let pages = whole.chunks_mut(PAGE).enumerate();
    let leaves = pages.filter(|(at, page)| page[8..10] == LEAF && page[..8] == (*at as u64).to_le_bytes());
    for (at, page) in leaves {
        let more = u32::try_from(count - at - 1).unwrap();
        page[12..16].copy_from_slice(&more.to_le_bytes());
    }
    let disk = SimDisk::new(1);
    let file = disk.open(Path::new(FILE), OpenMode::CreateNew).unwrap();
    file.write_at(0, &whole).unwrap();
    let refused = read(&disk, true).unwrap_err().to_string();
    assert!(refused.contains("pages share their bytes"), "{refused}");
}

/// Objects of a later revision than the store's would be changed by what came before them.
#[test]
fn snapshot_whose_object_is_of_another_revision_than_its_change_is_refused() {
    let disk = written(20);
    state(&disk)
        .write_etcd_snapshot(&*disk, Path::new(FILE), (&Text, None), 0)
        .unwrap();
    let whole = disk.read(Path::new(FILE)).unwrap();
    let whole = &whole[..whole.len() - 32];
    let key = b"/registry/pods/a/1";
    // Fields of the object's message: its key, two numbers with a tag each, and one more.
    let is_it = |from: usize| whole[from..].starts_with(key) && whole[from + key.len()] == 0x10;
    let behind = key.len() + (0..whole.len() - 64).find(|from| is_it(*from)).unwrap();
    assert_eq!(whole[behind + 2], 0x18);
    for (at, number) in [(behind + 3, 0x7f), (behind + 1, 0x7f)] {
        let mut changed = whole.to_vec();
        assert!(changed[at] < number);
        changed[at] = number;
        let disk = SimDisk::new(1);
        let file = disk.open(Path::new(FILE), OpenMode::CreateNew).unwrap();
        file.write_at(0, &changed).unwrap();
        let refused = read(&disk, true).unwrap_err().to_string();
        assert!(refused.contains("impossible revision"), "{at}: {refused}");
    }
}

/// Pages of a file of bbolt's: their numbers, and where the first child of a branch is named.
fn branches(file: &[u8]) -> Vec<(u64, usize)> {
    const PAGE: usize = 4096;
    const BRANCH: [u8; 2] = [1, 0];
    const CHILD_AT: usize = 16 + 8;
    let pages = file.chunks(PAGE).enumerate();
    let branches =
        pages.filter(|(at, page)| page[8..10] == BRANCH && page[..8] == (*at as u64).to_le_bytes());
    branches
        .map(|(at, _)| (at as u64, at * PAGE + CHILD_AT))
        .collect()
}

#[test]
fn snapshot_whose_page_is_its_own_child_is_refused() {
    let disk = written(400);
    state(&disk)
        .write_etcd_snapshot(&*disk, Path::new(FILE), (&Text, None), 0)
        .unwrap();
    let whole = disk.read(Path::new(FILE)).unwrap();
    let whole = &whole[..whole.len() - 32];
    let branches = branches(whole);
    assert!(!branches.is_empty());
    for (page, child_at) in branches {
        let mut looped = whole.to_vec();
        looped[child_at..child_at + 8].copy_from_slice(&page.to_le_bytes());
        let disk = SimDisk::new(1);
        let file = disk.open(Path::new(FILE), OpenMode::CreateNew).unwrap();
        file.write_at(0, &looped).unwrap();
        let refused = read(&disk, true).unwrap_err().to_string();
        assert!(refused.contains("a page is its own child"), "{refused}");
    }
}

#[test]
fn snapshot_onto_a_full_disk_leaves_nothing() {
    let disk = written(50);
    let own = state(&disk);
    for room in (0..40_000).step_by(3777) {
        disk.fill_after(room);
        own.write_etcd_snapshot(&*disk, Path::new(FILE), (&Text, None), 0)
            .unwrap_err();
        disk.make_room();
        assert!(
            disk.files().iter().all(|(path, _)| path.starts_with(DIR)),
            "{room}"
        );
    }
    own.write_etcd_snapshot(&*disk, Path::new(FILE), (&Text, None), 0)
        .unwrap();
}
