//! A disk on which another takes every byte in the moment in which it is free.

use super::{RESERVE, RETRY, delete, is_refused, names, options, put, story};
use apiserver_storage::{LogOptions, LogStorage, Storage, StorageError};
use machinery_runtime::{Runtime, Scope, SimDisk};
use std::path::PathBuf;
use std::sync::Arc;

/// A start that a power loss ends.
pub(crate) struct Life {
    pub(crate) scope: Scope,
    pub(crate) storage: LogStorage,
}

impl Life {
    pub(crate) async fn begin(runtime: &Runtime) -> Result<Self, StorageError> {
        let scope = runtime.child_scope();
        let options = LogOptions {
            on_fatal: Arc::new(|_| {}),
            ..options()
        };
        let (storage, report) = LogStorage::open(scope.runtime(), options).await?;
        assert_eq!(report.problems, Vec::<String>::new());
        Ok(Self { scope, storage })
    }

    pub(crate) async fn lose_power(self, disk: &SimDisk) {
        drop(self.storage);
        self.scope.stopped().await;
        disk.crash();
    }
}

/// Writes a hundred objects; then another takes whatever is free at any time.
pub(crate) async fn crowded(runtime: &Runtime, disk: &SimDisk) -> Life {
    let life = Life::begin(runtime).await.unwrap();
    runtime.sleep(RETRY).await;
    assert_eq!(life.storage.statistics().unwrap().reserve_bytes, RESERVE);
    for name in 0..CROWD {
        life.storage.commit(vec![put(name, 3000, false)]).await.unwrap();
    }
    disk.crowd();
    let mut tries = 0;
    while !is_refused(life.storage.commit(vec![put(0, 3000, false)]).await) {
        tries += 1;
        assert!(tries < 100, "the disk is not full");
    }
    life
}

pub(crate) const CROWD: u32 = 100;

/// Number of pieces in the reserve; each must be blank.
pub(crate) fn pieces(disk: &SimDisk) -> usize {
    assert_eq!(disk.files_with_two_names(), Vec::<PathBuf>::new());
    let files = disk.files().into_iter().map(|(path, _)| path);
    let pieces = files.filter(|path| path.extension().is_some_and(|end| end == "room"));
    let blank = pieces.map(|path| {
        let bytes = disk.read(&path).unwrap();
        assert_eq!(bytes.len() as u64, RESERVE / 4, "{}", path.display());
        assert!(
            bytes.iter().all(|byte| *byte == 0),
            "{} is not blank",
            path.display()
        );
    });
    blank.count()
}

/// Twenty starts with a deletion in each, some of which the power cuts short: none needs room that others may have taken in
/// between.
#[test]
fn full_disk_that_others_fill_at_once_is_started_on_again_and_again() {
    story(|runtime, disk| async move {
        let mut life = crowded(&runtime, &disk).await;
        life.storage.commit(vec![delete(0)]).await.unwrap();
        let first = pieces(&disk);
        for round in 1..=20 {
            life.lose_power(&disk).await;
            while runtime.random_u64().is_multiple_of(3) {
                disk.power_off_after(u32::try_from(runtime.random_u64() % 12).unwrap());
                match Life::begin(&runtime).await {
                    Ok(cut) => cut.lose_power(&disk).await,
                    Err(error) => assert!(disk.is_off(), "round {round}: {error}"),
                }
                disk.crash();
            }
            life = Life::begin(&runtime).await.unwrap();
            let storage = &life.storage;
            assert_eq!(names(storage).await, (CROWD - round) as usize);
            assert!(storage.statistics().unwrap().full, "round {round}");
            assert!(is_refused(storage.commit(vec![put(0, 3000, false)]).await));
            storage.commit(vec![delete(round)]).await.unwrap();
            if runtime.random_u64().is_multiple_of(2) {
                runtime.sleep(RETRY * 2).await;
            }
            let left = pieces(&disk);
            assert!(left >= first, "round {round}: {left} pieces, {first} at first");
        }
    });
}

/// All objects are deleted, with starts in between: what is left is written in the room of a piece, and the files before it
/// become pieces, though not a byte of that is ever free. The room of another piece is risked once in each life.
#[test]
fn full_disk_that_others_fill_at_once_has_room_for_all_deletions_and_recovers() {
    story(|runtime, disk| async move {
        let mut life = crowded(&runtime, &disk).await;
        for name in 0..CROWD {
            life.storage.commit(vec![delete(name)]).await.unwrap();
            match runtime.random_u64() % 40 {
                0 | 1 => {
                    life.lose_power(&disk).await;
                    life = Life::begin(&runtime).await.unwrap();
                }
                2 => runtime.sleep(RETRY).await,
                _ => {}
            }
        }
        runtime.sleep(RETRY * 4).await;
        let statistics = life.storage.statistics().unwrap();
        assert!(
            statistics.full && statistics.reserve_bytes >= RESERVE / 4,
            "{statistics:?}"
        );
        assert!(pieces(&disk) >= 1);
        life.lose_power(&disk).await;
        let Life { storage, scope } = Life::begin(&runtime).await.unwrap();
        assert_eq!(names(&storage).await, 0);
        assert!(pieces(&disk) >= 1);
        disk.make_room();
        runtime.sleep(RETRY * 2).await;
        assert_eq!(pieces(&disk), 4);
        storage.commit(vec![put(0, 3000, false)]).await.unwrap();
        storage.close().await;
        scope.stopped().await;
    });
}
