//! A backup is one revision, a restore is all of it or nothing, and damage is named.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_storage::{
    Expect, Key, LogOptions, LogStorage, ObjectHeader, OfflineState, Op, Prefix, RangeOptions, ReadAt,
    Record, RestoreOptions, Revision, Storage, StorageError, Write, check, restore, write_backup,
};
use bytes::Bytes;
use machinery_runtime::{Disk, DiskCall, MemDisk, ObservedDisk, OpenMode, Runtime, SimDisk, Simulation};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DIR: &str = "/var/lib/knarr/storage";
const NEW_DIR: &str = "/new/storage";
const FILE: &str = "/backups/one";
const BUMP: u64 = 1000;

fn options(dir: &str) -> LogOptions {
    LogOptions {
        reserve_bytes: 0,
        segment_bytes: 8 << 10,
        checkpoint_bytes: 4 << 10,
        scrub_interval: std::time::Duration::ZERO,
        on_fatal: Arc::new(|_| {}),
        ..LogOptions::new(dir)
    }
}

fn put(name: u32, value: &str) -> Write {
    let record = Record {
        parts: [
            Bytes::from_static(b"\"kind\":\"Pod\","),
            Bytes::from_static(b"\"resourceVersion\":"),
            Bytes::from(value.to_owned()),
        ],
        fingerprint: 7,
        header: Arc::new(ObjectHeader::default()),
    };
    Write {
        key: Key::parse(&format!("/registry/pods/a/{name}")).unwrap(),
        expect: Expect::Any,
        op: Op::Put { record, ttl: None },
    }
}

async fn open(runtime: &Runtime, dir: &str) -> LogStorage {
    LogStorage::open(runtime, options(dir)).await.unwrap().0
}

/// Thirty changes of nine objects.
async fn fill(storage: &LogStorage) {
    for step in 0..30 {
        let value = format!("{step}{}", "x".repeat(step as usize * 9));
        storage.commit(vec![put(step % 9, &value)]).await.unwrap();
    }
}

type Objects = BTreeMap<String, (Revision, Revision, Bytes)>;

async fn objects(storage: &LogStorage, at: ReadAt) -> Objects {
    let options = RangeOptions {
        at,
        ..RangeOptions::default()
    };
    let page = storage
        .range(&Prefix::parse("/").unwrap(), &options)
        .await
        .unwrap();
    let object = |entry: &Arc<apiserver_storage::Entry>| {
        let value = entry.record.parts[2].clone();
        (entry.key.to_string(), (entry.revision, entry.created, value))
    };
    page.entries.iter().map(object).collect()
}

fn backup_to(disk: &SimDisk, storage: &LogStorage, path: &str) -> Result<u64, StorageError> {
    let mut backup = storage.backup()?.unwrap();
    write_backup(disk, Path::new(path), || Ok(backup.next_piece()))
}

fn restored(disk: &Arc<SimDisk>, from: &str) -> Result<apiserver_storage::Restored, StorageError> {
    let disk: Arc<dyn Disk> = disk.clone();
    let state = OfflineState::of_backup(&*disk, Path::new(from))?;
    let options = RestoreOptions {
        bump_revision: BUMP,
        store: 77,
        encryption: None,
    };
    restore(&disk, Path::new(NEW_DIR), &state, options)
}

fn contents(disk: &SimDisk, dir: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let files = disk.files().into_iter().map(|(path, _)| path);
    let files = files.filter(|path| path.starts_with(dir));
    files
        .map(|path| (path.clone(), disk.read(&path).unwrap()))
        .collect()
}

fn put_file(disk: &SimDisk, path: &str, bytes: &[u8]) {
    let file = disk.open(Path::new(path), OpenMode::CreateNew).unwrap();
    file.write_at(0, bytes).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new(path).parent().unwrap()).unwrap();
}

fn story<T, F>(seed: u64, tell: impl FnOnce(Runtime, Arc<SimDisk>) -> F) -> T
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let simulation = Simulation::new(seed);
    let story = tell(simulation.runtime(), simulation.disk());
    simulation.run(story)
}

/// The bytes of a backup of nine objects, and what is in it.
fn a_backup() -> (Vec<u8>, Objects) {
    story(1, |runtime, disk| async move {
        let storage = open(&runtime, DIR).await;
        fill(&storage).await;
        backup_to(&disk, &storage, FILE).unwrap();
        let all = objects(&storage, ReadAt::Latest).await;
        (disk.read(Path::new(FILE)).unwrap(), all)
    })
}

#[test]
fn backup_holds_the_revision_it_began_at_while_writes_go_on() {
    story(1, |runtime, disk| async move {
        let storage = open(&runtime, DIR).await;
        fill(&storage).await;
        let mut backup = storage.backup().unwrap().unwrap();
        assert!(
            matches!(storage.backup(), Err(StorageError::Busy)),
            "one at a time"
        );
        let mut next = 0;
        let written = write_backup(&*disk, Path::new(FILE), || Ok(backup.next_piece()));
        written.unwrap();
        for step in 0..20 {
            next += 1;
            storage.commit(vec![put(step, "later")]).await.unwrap();
        }
        assert_eq!((backup.revision(), next), (Revision(30), 20));
        drop(backup);
        let then = objects(&storage, ReadAt::Exact(Revision(30))).await;
        let done = restored(&disk, FILE).unwrap();
        assert_eq!((done.revision, done.objects), (Revision(30 + BUMP), 9));
        let again = open(&runtime, NEW_DIR).await;
        assert_eq!(objects(&again, ReadAt::Latest).await, then);
        assert_eq!(again.compacted_revision().await.unwrap(), Revision(30 + BUMP));
        let events = again.commit(vec![put(1, "new")]).await.unwrap();
        assert_eq!(events[0].revision, Revision(31 + BUMP));
        again.close().await;
        let (again, report) = LogStorage::open(&runtime, options(NEW_DIR)).await.unwrap();
        assert_eq!((report.problems.len(), report.objects), (0, 9));
        assert!(storage.backup().is_ok(), "the next one can begin");
        drop(again);
    });
}

#[test]
fn backup_cut_at_any_byte_is_refused_and_nothing_is_restored() {
    let (whole, _) = a_backup();
    for length in 0..whole.len() {
        let disk = Arc::new(SimDisk::new(1));
        put_file(&disk, FILE, &whole[..length]);
        let refused = restored(&disk, FILE).unwrap_err();
        assert!(
            matches!(refused, StorageError::Corrupt { .. }),
            "{length}: {refused}"
        );
        assert_eq!(contents(&disk, NEW_DIR), []);
    }
}

#[test]
fn backup_changed_at_any_byte_is_refused() {
    let (whole, _) = a_backup();
    for at in 0..whole.len() {
        let disk = SimDisk::new(1);
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        put_file(&disk, FILE, &changed);
        let refused = OfflineState::of_backup(&disk, Path::new(FILE)).unwrap_err();
        let told = matches!(
            refused,
            StorageError::Corrupt { .. } | StorageError::NewerFormat { .. }
        );
        assert!(told, "{at}: {refused}");
    }
    let disk = SimDisk::new(1);
    put_file(&disk, FILE, &[&whole[..], b"x"].concat());
    assert!(
        OfflineState::of_backup(&disk, Path::new(FILE)).is_err(),
        "more behind it"
    );
}

#[test]
fn backup_onto_a_full_disk_leaves_nothing_and_the_server_goes_on() {
    let (whole, _) = a_backup();
    for room in (0..whole.len() as u64).step_by(97) {
        story(room, |runtime, disk| async move {
            let storage = open(&runtime, DIR).await;
            fill(&storage).await;
            disk.fill_after(room);
            let refused = backup_to(&disk, &storage, FILE).unwrap_err();
            let StorageError::Io { source, .. } = &refused else {
                panic!("{refused}");
            };
            assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
            assert_eq!(contents(&disk, "/backups"), []);
            disk.make_room();
            storage.commit(vec![put(1, "after")]).await.unwrap();
            backup_to(&disk, &storage, FILE).unwrap();
            let exists = backup_to(&disk, &storage, FILE).unwrap_err();
            assert!(matches!(exists, StorageError::Exists(_)), "{exists}");
        });
    }
}

#[test]
fn restore_that_the_power_cuts_short_is_all_or_refused_and_can_be_done_again() {
    let (whole, all) = a_backup();
    let mut met = [0_u32; 3];
    for seed in 0..200_u64 {
        let (bytes, expected) = (whole.clone(), all.clone());
        let outcome = story(seed, |runtime, disk| async move {
            put_file(&disk, FILE, &bytes);
            disk.power_off_after(u32::try_from(seed % 12).unwrap());
            let done = restored(&disk, FILE);
            disk.crash();
            let opened = LogStorage::open(&runtime, options(NEW_DIR)).await;
            let outcome = match opened {
                Ok((storage, report)) if report.objects > 0 => {
                    assert_eq!(objects(&storage, ReadAt::Latest).await, expected);
                    return 0;
                }
                // The directory did not come to be; the restore has not reported its end.
                Ok((storage, report)) => {
                    assert_eq!((report.revision, &report.problems[..]), (Revision::ZERO, &[][..]));
                    storage.close().await;
                    1
                }
                Err(error) => {
                    assert!(error.to_string().contains("restore again"), "{error}");
                    2
                }
            };
            assert!(done.is_err(), "what was said to be restored is there");
            if outcome == 1 {
                return 1;
            }
            restored(&disk, FILE).unwrap();
            let storage = open(&runtime, NEW_DIR).await;
            assert_eq!(objects(&storage, ReadAt::Latest).await, expected);
            outcome
        });
        met[outcome] += 1;
    }
    assert!(!met.contains(&0), "{met:?}");
}

#[test]
fn restore_on_a_full_disk_leaves_the_directory_empty() {
    let (whole, all) = a_backup();
    for room in (0..whole.len() as u64).step_by(211) {
        let (bytes, expected) = (whole.clone(), all.clone());
        story(room, |runtime, disk| async move {
            put_file(&disk, FILE, &bytes);
            disk.fill_after(room);
            restored(&disk, FILE).unwrap_err();
            assert_eq!(contents(&disk, NEW_DIR), []);
            disk.make_room();
            restored(&disk, FILE).unwrap();
            let storage = open(&runtime, NEW_DIR).await;
            assert_eq!(objects(&storage, ReadAt::Latest).await, expected);
        });
    }
}

#[test]
fn restore_is_refused_into_a_directory_that_is_used_or_in_use() {
    let (whole, _) = a_backup();
    story(1, |runtime, disk| async move {
        put_file(&disk, FILE, &whole);
        let running = open(&runtime, NEW_DIR).await;
        let refused = restored(&disk, FILE).unwrap_err();
        assert!(matches!(refused, StorageError::Locked(_)), "{refused}");
        running.close().await;
        let before = contents(&disk, NEW_DIR);
        let refused = restored(&disk, FILE).unwrap_err();
        assert!(refused.to_string().contains("is not empty"), "{refused}");
        assert_eq!(contents(&disk, NEW_DIR), before);
    });
}

#[test]
fn offline_state_is_what_a_start_reads_and_changes_nothing() {
    story(1, |runtime, disk| async move {
        let storage = open(&runtime, DIR).await;
        fill(&storage).await;
        let all = objects(&storage, ReadAt::Latest).await;
        let locked = OfflineState::open(&*disk, Path::new(DIR)).unwrap_err();
        assert!(matches!(locked, StorageError::Locked(_)), "{locked}");
        assert!(matches!(
            check(&*disk, Path::new(DIR)),
            Err(StorageError::Locked(_))
        ));
        storage.close().await;
        let before = contents(&disk, DIR);
        let state = OfflineState::open(&*disk, Path::new(DIR)).unwrap();
        assert_eq!(state.revision(), Revision(30));
        let keys: Vec<_> = state.entries().map(|entry| entry.key.to_string()).collect();
        assert_eq!(keys, all.keys().cloned().collect::<Vec<_>>());
        let mut backup = state.backup();
        write_backup(&*disk, Path::new(FILE), || Ok(backup.next_piece())).unwrap();
        drop(state);
        let report = check(&*disk, Path::new(DIR)).unwrap();
        assert_eq!((report.findings.len(), report.start.unwrap().objects), (0, 9));
        assert_eq!(contents(&disk, DIR), before);
        assert!(OfflineState::open(&*disk, Path::new("/nowhere")).is_err());
    });
}

#[test]
fn check_names_the_damaged_file_and_how_far_the_log_is_whole() {
    let mut met = [0_u32; 2];
    for victim in 0..6 {
        let outcome = story(1, |runtime, disk| async move {
            let storage = open(&runtime, DIR).await;
            fill(&storage).await;
            storage.close().await;
            let files = contents(&disk, DIR);
            let named = |file: &&(PathBuf, Vec<u8>)| {
                let name = file.0.to_string_lossy();
                name.ends_with(".seg") || name.ends_with(".ckpt")
            };
            let victims: Vec<_> = files.iter().filter(named).collect();
            let (path, bytes) = victims[victim % victims.len()];
            assert!(disk.flip_bit(path, (bytes.len() as u64 * 8) / 3));
            let report = check(&*disk, Path::new(DIR)).unwrap();
            let blank = bytes[bytes.len() / 3] == 0 && report.findings.is_empty();
            assert!(blank || report.findings[0].file == *path, "{report:?}");
            let opened = LogStorage::open(&runtime, options(DIR)).await;
            assert_eq!(opened.is_ok(), report.start.is_ok(), "{report:?}");
            if report.start.is_ok() {
                return 0;
            }
            drop(opened);
            let saved = OfflineState::open_damaged(&*disk, Path::new(DIR)).unwrap();
            assert!(saved.ended.is_some());
            assert!(saved.state.revision() < Revision(30) || !saved.lost.is_empty());
            assert_eq!(report.readable, Some(saved.state.revision()));
            1
        });
        met[outcome] += 1;
    }
    assert!(!met.contains(&0), "{met:?}");
}

#[test]
fn scrub_finds_a_flipped_bit_and_the_next_change_makes_the_log_whole() {
    story(1, |runtime, disk| async move {
        let settings = LogOptions {
            scrub_interval: std::time::Duration::from_secs(60),
            retention: std::time::Duration::from_secs(1),
            ..options(DIR)
        };
        let storage = LogStorage::open(&runtime, settings).await.unwrap().0;
        fill(&storage).await;
        runtime.sleep(std::time::Duration::from_secs(100)).await;
        let sound = storage.statistics().unwrap();
        assert_eq!((sound.scrubs, &sound.damaged_files[..]), (1, &[][..]));
        let files = contents(&disk, DIR);
        let newest = files
            .iter()
            .rev()
            .find(|(path, _)| path.extension().is_some_and(|e| e == "ckpt"));
        let (path, bytes) = newest.unwrap();
        assert!(disk.flip_bit(path, bytes.len() as u64 * 4));
        runtime.sleep(std::time::Duration::from_secs(100)).await;
        let damaged = storage.statistics().unwrap().damaged_files;
        assert!(
            damaged.len() == 1 && damaged[0].contains(path.to_str().unwrap()),
            "{damaged:?}"
        );
        // One change makes a checkpoint, the next a floor above it, by which the damaged one goes.
        for value in ["a", "b"] {
            storage.commit(vec![put(1, value)]).await.unwrap();
            runtime.sleep(std::time::Duration::from_secs(100)).await;
        }
        assert_eq!(storage.statistics().unwrap().damaged_files, Vec::<String>::new());
        storage.close().await;
        let report = check(&*disk, Path::new(DIR)).unwrap();
        assert_eq!(report.findings, []);
    });
}

#[test]
fn restore_passes_over_no_more_revisions_than_there_are() {
    let (bytes, _) = a_backup();
    let disk = SimDisk::new(1);
    put_file(&disk, FILE, &bytes);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let state = OfflineState::of_backup(&*disk, Path::new(FILE)).unwrap();
    let options = |bump_revision| RestoreOptions {
        bump_revision,
        store: 77,
        encryption: None,
    };
    let last = i64::MAX.cast_unsigned();
    for bump in [u64::MAX, last] {
        let refused = restore(&disk, Path::new(NEW_DIR), &state, options(bump)).unwrap_err();
        assert!(
            matches!(refused, StorageError::RevisionTooLarge(found) if found == last),
            "{refused}"
        );
    }
    let made = disk.list(Path::new(NEW_DIR)).unwrap_or_default();
    assert!(made.is_empty(), "{made:?}");
    let fits = options(last - state.revision().0);
    assert_eq!(
        restore(&disk, Path::new(NEW_DIR), &state, fits)
            .unwrap()
            .revision
            .0,
        last
    );
}

/// The disk has lost the end of the log: the file is longer than all memory may be.
#[test]
fn log_with_a_long_blank_end_is_read_in_pieces() {
    const BLANK_BYTES: u64 = 64 << 20;
    const PIECE_BYTES_MAX: usize = 2 << 20;
    let files = story(1, |runtime, disk| async move {
        let storage = open(&runtime, DIR).await;
        fill(&storage).await;
        storage.close().await;
        contents(&disk, DIR)
    });
    let disk = MemDisk::default();
    disk.create_dir_all(Path::new(DIR)).unwrap();
    for (path, bytes) in &files {
        disk.open(path, OpenMode::CreateNew)
            .unwrap()
            .write_at(0, bytes)
            .unwrap();
    }
    let segments = files
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|end| end == "seg"));
    let (newest, bytes) = segments.max().unwrap();
    let file = disk.open(newest, OpenMode::ReadWrite).unwrap();
    file.write_at(bytes.len() as u64 + BLANK_BYTES, &[0]).unwrap();
    let observed = ObservedDisk::new(disk, |path, call| {
        if let DiskCall::Read(bytes) = call {
            assert!(bytes <= PIECE_BYTES_MAX, "{bytes} bytes of {}", path.display());
        }
    });
    let report = check(&observed, Path::new(DIR)).unwrap();
    assert!(report.start.is_ok() && report.findings.is_empty(), "{report:?}");
}
