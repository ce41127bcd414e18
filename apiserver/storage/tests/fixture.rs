//! A directory and a backup that the first release writes: every later one must read them.
//!
//! A version whose folder is missing is written by the test, which fails then; a folder that is there is never changed.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_storage::encryption::{Encryption, ResourceNames};
use apiserver_storage::{
    Expect, Key, LogOptions, LogStorage, ObjectHeader, OfflineState, Op, Prefix, RangeOptions, Record,
    Storage, Write, write_backup,
};
use bytes::Bytes;
use machinery_runtime::{Disk, OpenMode, Runtime, SimDisk, Simulation};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The formats that were ever released.
const VERSIONS: [&str; 1] = ["format-1"];
const DIR: &str = "/data";
const BACKUP: &str = "/data/backup.knarr";
const CONFIG: &[u8] = b"apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox: {keys: [{name: fixture, secret: MTIzNDU2Nzg5MDEyMzQ1NjEyMzQ1Njc4OTAxMjM0NTY=}]}
";

fn folder(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(version)
}

fn encryption(runtime: &Runtime) -> Arc<Encryption> {
    let names = ResourceNames::default();
    Arc::new(Encryption::new(runtime, names, Path::new("fixture"), CONFIG).unwrap())
}

fn options(runtime: &Runtime) -> LogOptions {
    LogOptions {
        reserve_bytes: 0,
        segment_bytes: 4 << 10,
        checkpoint_bytes: 2 << 10,
        retention: Duration::ZERO,
        scrub_interval: Duration::ZERO,
        longest_ttl: Duration::from_secs(u64::from(u32::MAX)),
        encryption: Some(encryption(runtime)),
        on_fatal: Arc::new(|error| panic!("{error}")),
        ..LogOptions::new(DIR)
    }
}

fn put(key: &str, value: &str, ttl: Option<Duration>) -> Write {
    let header = ObjectHeader {
        labels: vec![("app".into(), "fixture".into())],
        fields: machinery_meta::Fields::from([("spec.nodeName", "\0".repeat(600))]),
        finalizers: vec!["f".into()],
        ..ObjectHeader::default()
    };
    let record = Record {
        parts: [
            Bytes::from_static(b"\"kind\":\"Pod\","),
            Bytes::from_static(b"\"metadata\":{\"resourceVersion\":"),
            Bytes::from(format!("}},\"v\":\"{value}\"}}")),
        ],
        fingerprint: 0x1234_5678_9abc_def0,
        header: Arc::new(header),
    };
    Write {
        key: Key::parse(key).unwrap(),
        expect: Expect::Any,
        op: Op::Put { record, ttl },
    }
}

/// The state that every release must find in the fixture of the first.
const EXPECTED: &str = "\
/registry/events/a/e 21 21 ends },\"v\":\"event\"}
/registry/pods/a/p1 17 2 stays },\"v\":\"16xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}
/registry/pods/a/p2 18 3 stays },\"v\":\"17xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}
/registry/secrets/a/s 22 20 stays },\"v\":\"two\"}
";

fn described<'e>(entries: impl Iterator<Item = &'e Arc<apiserver_storage::Entry>>) -> String {
    let line = |entry: &Arc<apiserver_storage::Entry>| {
        assert_eq!(entry.record.header.label("app"), Some("fixture"));
        assert_eq!(entry.record.fingerprint, 0x1234_5678_9abc_def0);
        let ends = if entry.expires.is_some() { "ends" } else { "stays" };
        let tail = String::from_utf8_lossy(&entry.record.parts[2]).into_owned();
        let (key, revision, created) = (&entry.key, entry.revision, entry.created);
        format!("{key} {revision} {created} {ends} {tail}\n")
    };
    entries.map(line).collect()
}

async fn write(runtime: &Runtime, disk: &SimDisk) {
    let storage = LogStorage::open(runtime, options(runtime)).await.unwrap().0;
    let commit = async |write| storage.commit(vec![write]).await.unwrap();
    for step in 0..19 {
        let key = format!("/registry/pods/a/p{}", [0, 1, 2][step % 3]);
        commit(put(&key, &format!("{step}{}", "x".repeat(59)), None)).await;
        if step == 10 {
            storage.checkpoint();
            runtime.sleep(Duration::from_secs(1)).await;
        }
    }
    commit(put("/registry/secrets/a/s", "one", None)).await;
    commit(put(
        "/registry/events/a/e",
        "event",
        Some(Duration::from_secs(3_000_000_000)),
    ))
    .await;
    commit(put("/registry/secrets/a/s", "two", None)).await;
    let gone = Write {
        key: Key::parse("/registry/pods/a/p0").unwrap(),
        expect: Expect::Any,
        op: Op::Delete,
    };
    commit(gone).await;
    storage.compact(apiserver_storage::Revision(5)).await.unwrap();
    let mut backup = storage.backup().unwrap().unwrap();
    write_backup(disk, Path::new(BACKUP), || Ok(backup.next_piece())).unwrap();
    storage.close().await;
}

/// The files of a new version, once its name is added above.
fn written(folder: &Path) {
    let simulation = Simulation::new(1);
    let (runtime, disk) = (simulation.runtime(), simulation.disk());
    let own = Arc::clone(&disk);
    simulation.run(async move { write(&runtime, &own).await });
    std::fs::create_dir_all(folder).unwrap();
    for (path, _) in disk.files() {
        std::fs::write(folder.join(path.file_name().unwrap()), disk.read(&path).unwrap()).unwrap();
    }
}

#[test]
fn fixture_of_every_release_is_read() {
    for (version, has_active) in VERSIONS.into_iter().flat_map(|v| [(v, true), (v, false)]) {
        if !folder(version).try_exists().unwrap() {
            written(&folder(version));
            panic!("{version} was not there and is written now: look at it, and check it in");
        }
        let simulation = Simulation::new(2);
        let (runtime, disk) = (simulation.runtime(), simulation.disk());
        for file in std::fs::read_dir(folder(version)).unwrap() {
            let path = file.unwrap().path();
            if path.ends_with("ACTIVE") && !has_active {
                continue; // The first versions made none.
            }
            let own = disk
                .open(
                    &Path::new(DIR).join(path.file_name().unwrap()),
                    OpenMode::CreateNew,
                )
                .unwrap();
            own.write_at(0, &std::fs::read(&path).unwrap()).unwrap();
        }
        simulation.run(async move {
            let keys = encryption(&runtime);
            let mut state = OfflineState::of_backup(&*disk, Path::new(BACKUP)).unwrap();
            state.open_sealed(&keys).unwrap();
            assert_eq!(described(state.entries()), EXPECTED, "{version}: the backup");
            let (storage, report) = LogStorage::open(&runtime, options(&runtime)).await.unwrap();
            assert_eq!(
                (report.problems.len(), report.revision.0, report.compacted.0),
                (0, 23, 5)
            );
            assert!(report.checkpoint.is_some() && report.replayed > 0, "{report:?}");
            let all = Prefix::parse("/").unwrap();
            let page = storage.range(&all, &RangeOptions::default()).await.unwrap();
            assert_eq!(
                described(page.entries.iter()),
                EXPECTED,
                "{version}: the directory"
            );
            assert_eq!(storage.verify().await.unwrap(), Vec::<String>::new());
        });
    }
}
