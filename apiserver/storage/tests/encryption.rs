//! Encrypted values are never plain on the disk, are decrypted by their key only, and move to a new key.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_storage::encryption::{Encryption, ResourceNames};
use apiserver_storage::{
    Event, Expect, Key, LogOptions, LogStorage, ObjectHeader, OfflineState, Op, Prefix, RangeOptions, ReadAt,
    Record, RestoreOptions, Revision, Storage, StorageError, WatchFilter, WatchRequest, Write, restore,
    write_backup,
};
use bytes::Bytes;
use machinery_runtime::{Disk, Runtime, SimDisk, Simulation};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const DIR: &str = "/var/lib/knarr/storage";
const FILE: &str = "/backups/one";
const PLAIN: &[u8] = b"value-of-the-secret";
const LABEL: &[u8] = b"label-of-the-secret";

/// Providers in flow style, the first of which writes.
fn config(providers: &str) -> Vec<u8> {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: {providers}\n"
    );
    text.into_bytes()
}

const ONE: &str = "[{aesgcm: {keys: [{name: one, secret: MTIzNDU2Nzg5MDEyMzQ1Ng==}]}}, {identity: {}}]";
const TWO: &str = "[{secretbox: {keys: [{name: two, secret: MTIzNDU2Nzg5MDEyMzQ1NjEyMzQ1Njc4OTAxMjM0NTY=}]}}, {aesgcm: {keys: [{name: one, secret: MTIzNDU2Nzg5MDEyMzQ1Ng==}]}}, {identity: {}}]";
const ONE_AND_TWO: &str = "[{aesgcm: {keys: [{name: one, secret: MTIzNDU2Nzg5MDEyMzQ1Ng==}]}}, {secretbox: {keys: [{name: two, secret: MTIzNDU2Nzg5MDEyMzQ1NjEyMzQ1Njc4OTAxMjM0NTY=}]}}, {identity: {}}]";
const ONLY_TWO: &str =
    "[{secretbox: {keys: [{name: two, secret: MTIzNDU2Nzg5MDEyMzQ1NjEyMzQ1Njc4OTAxMjM0NTY=}]}}]";

fn encryption(runtime: &Runtime, providers: &str) -> Arc<Encryption> {
    let names = ResourceNames::default();
    Arc::new(Encryption::new(runtime, names, Path::new("/enc"), &config(providers)).unwrap())
}

fn options(encryption: Option<Arc<Encryption>>) -> LogOptions {
    LogOptions {
        reserve_bytes: 0,
        segment_bytes: 8 << 10,
        checkpoint_bytes: 4 << 10,
        scrub_interval: Duration::from_secs(60),
        history_bytes: 2 << 10,
        retention: Duration::from_secs(5),
        on_fatal: Arc::new(|_| {}),
        encryption,
        ..LogOptions::new(DIR)
    }
}

fn put(key: &str, value: &str) -> Write {
    let label = String::from_utf8(LABEL.to_vec()).unwrap();
    let header = ObjectHeader {
        labels: vec![("a".into(), label.into())],
        fields: machinery_meta::Fields::from([("type", "Opaque")]),
        ..ObjectHeader::default()
    };
    let plain = String::from_utf8(PLAIN.to_vec()).unwrap();
    let record = Record {
        parts: [
            Bytes::from_static(b"a"),
            Bytes::from_static(b"b"),
            Bytes::from(format!("{plain}{value}")),
        ],
        fingerprint: 7,
        header: Arc::new(header),
    };
    Write {
        key: Key::parse(key).unwrap(),
        expect: Expect::Any,
        op: Op::Put { record, ttl: None },
    }
}

const SECRET: &str = "/registry/secrets/a/s";

async fn open(runtime: &Runtime, encryption: Option<Arc<Encryption>>) -> LogStorage {
    LogStorage::open(runtime, options(encryption)).await.unwrap().0
}

async fn fill(storage: &LogStorage) {
    for step in 0..40 {
        storage
            .commit(vec![put(&format!("{SECRET}{}", step % 7), &step.to_string())])
            .await
            .unwrap();
    }
}

fn is_anywhere(disk: &SimDisk, text: &[u8]) -> bool {
    let files = disk.files().into_iter();
    let mut contents = files.map(|(path, _)| disk.read(&path).unwrap());
    contents.any(|bytes| bytes.windows(text.len()).any(|run| run == text))
}

async fn all(storage: &LogStorage) -> Result<usize, StorageError> {
    let secrets = Prefix::parse("/registry/secrets/").unwrap();
    let page = storage.range(&secrets, &RangeOptions::default()).await?;
    assert!(
        page.entries
            .iter()
            .all(|entry| entry.record.parts[2].starts_with(PLAIN))
    );
    Ok(page.entries.len())
}

fn cause(error: &StorageError) -> &str {
    match error {
        StorageError::Sealed { cause, .. } => cause,
        StorageError::UnreadableRange { found, .. } => cause(&found[0]),
        other => panic!("{other}"),
    }
}

fn story<F: Future<Output = ()> + Send + 'static>(tell: impl FnOnce(Runtime, Arc<SimDisk>) -> F) {
    let simulation = Simulation::new(1);
    let story = tell(simulation.runtime(), simulation.disk());
    simulation.run(story);
}

#[test]
fn encrypted_record_is_nowhere_plain_and_comes_back_with_its_key() {
    story(|runtime, disk| async move {
        let storage = open(&runtime, Some(encryption(&runtime, ONE))).await;
        fill(&storage).await;
        runtime.sleep(Duration::from_secs(100)).await;
        assert_eq!(storage.statistics().unwrap().scrubs, 1);
        let mut backup = storage.backup().unwrap().unwrap();
        write_backup(&*disk, Path::new(FILE), || Ok(backup.next_piece())).unwrap();
        storage.close().await;
        let names: Vec<_> = disk.files().into_iter().map(|(path, _)| path).collect();
        assert!(
            names
                .iter()
                .any(|path| path.extension().is_some_and(|end| end == "ckpt"))
        );
        assert!(is_anywhere(&disk, b"k8s:enc:aesgcm:v1:one:") && is_anywhere(&disk, SECRET.as_bytes()));
        assert!(
            !is_anywhere(&disk, PLAIN) && !is_anywhere(&disk, LABEL),
            "{names:?}"
        );
        let storage = open(&runtime, Some(encryption(&runtime, ONE))).await;
        assert_eq!(all(&storage).await.unwrap(), 7);
        storage
            .commit(vec![put("/registry/configmaps/a/c", "")])
            .await
            .unwrap();
        assert!(is_anywhere(&disk, PLAIN), "others stay plain");
    });
}

#[test]
fn encrypted_record_without_its_key_is_an_error_until_the_key_is_there() {
    story(|runtime, _| async move {
        let storage = open(&runtime, Some(encryption(&runtime, ONE))).await;
        fill(&storage).await;
        storage.close().await;
        let none = open(&runtime, None).await;
        let refused = all(&none).await.unwrap_err();
        assert_eq!(
            cause(&refused),
            "identity transformer tried to read encrypted data"
        );
        none.close().await;
        let other = encryption(&runtime, ONLY_TWO);
        let storage = open(&runtime, Some(Arc::clone(&other))).await;
        assert_eq!(
            cause(&all(&storage).await.unwrap_err()),
            "no matching prefix found"
        );
        let one = Key::parse(&format!("{SECRET}1")).unwrap();
        let refused = storage.get(&one, ReadAt::Latest).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "unable to transform key \"/registry/secrets/a/s1\": no matching prefix found"
        );
        let taken = storage.commit(vec![Write::update(
            one.clone(),
            Revision(1),
            match put(SECRET, "").op {
                Op::Put { record, .. } => record,
                _ => unreachable!(),
            },
        )]);
        assert_eq!(cause(&taken.await.unwrap_err()), "no matching prefix found");
        storage
            .commit(vec![put("/registry/secrets/a/new", "")])
            .await
            .unwrap();
        other.reload(Path::new("/enc"), &config(TWO)).unwrap();
        assert_eq!(all(&storage).await.unwrap(), 8);
    });
}

#[test]
fn encrypted_record_without_its_key_is_deleted_and_watches_of_it_end() {
    story(|runtime, _| async move {
        let storage = open(&runtime, Some(encryption(&runtime, ONE))).await;
        fill(&storage).await;
        storage.close().await;
        let storage = open(&runtime, Some(encryption(&runtime, ONLY_TWO))).await;
        match all(&storage).await.unwrap_err() {
            StorageError::UnreadableRange { found, is_cut } => assert_eq!((found.len(), is_cut), (7, false)),
            other => panic!("{other}"),
        }
        let one = Key::parse(&format!("{SECRET}1")).unwrap();
        let stored = storage.stored_revision(&one).await.unwrap().unwrap();
        let now = storage.current_revision().await.unwrap();
        let interest = WatchFilter::prefix(Prefix::parse("/registry/secrets/").unwrap());
        let mut cursors = Vec::new();
        for interest in [interest.clone(), interest.with_field("type", "another")] {
            let request = WatchRequest {
                interests: vec![interest],
                after: now,
            };
            cursors.push(storage.watch(request).await.unwrap());
        }
        let deleted = storage.commit(vec![Write::delete(one.clone(), stored)]).await;
        assert!(deleted.unwrap()[0].is_delete());
        for cursor in &mut cursors {
            let ended = cursor.next_batch(1).await.unwrap_err();
            assert_eq!(cause(&ended), "no matching prefix found");
        }
        assert_eq!(storage.unopened().count, 6);
        storage.close().await;
        let storage = open(&runtime, Some(encryption(&runtime, ONE))).await;
        assert_eq!(all(&storage).await.unwrap(), 6);
        assert_eq!(storage.stored_revision(&one).await.unwrap(), None);
    });
}

#[test]
fn encrypted_changes_are_told_to_watches_that_begin_in_the_past() {
    story(|runtime, _| async move {
        let storage = open(&runtime, Some(encryption(&runtime, ONE))).await;
        fill(&storage).await;
        storage.close().await;
        for (keys, expected) in [(Some(ONE), 40), (None, 0)] {
            let keys = keys.map(|providers| encryption(&runtime, providers));
            let storage = open(&runtime, keys).await;
            let from = storage.compacted_revision().await.unwrap();
            let interest = WatchFilter::prefix(Prefix::parse("/registry/secrets/").unwrap());
            let request = WatchRequest {
                interests: vec![if expected > 0 {
                    interest.with_field("type", "Opaque")
                } else {
                    interest
                }],
                after: from,
            };
            let mut cursor = storage.watch(request).await.unwrap();
            let mut told: Vec<Arc<Event>> = Vec::new();
            while told.len() as u64 + from.0 < 40 {
                match cursor.next_batch(5).await {
                    Ok(events) => told.extend(events),
                    Err(error) => {
                        assert!(expected == 0 && !cause(&error).is_empty());
                        break;
                    }
                }
            }
            assert_eq!(told.len() as u64 + from.0, expected.max(from.0));
            assert!(
                told.iter()
                    .all(|event| event.object().record.parts[2].starts_with(PLAIN))
            );
            storage.close().await;
        }
    });
}

#[test]
fn encrypted_record_is_stale_after_a_change_of_keys_and_new_checkpoints_take_the_new_one() {
    story(|runtime, disk| async move {
        let keys = encryption(&runtime, ONE);
        let storage = open(&runtime, Some(Arc::clone(&keys))).await;
        fill(&storage).await;
        let one = Key::parse(&format!("{SECRET}1")).unwrap();
        let get = async || storage.get(&one, ReadAt::Latest).await.unwrap().entry.unwrap();
        assert!(!storage.is_stale(&*get().await));
        keys.reload(Path::new("/enc"), &config(TWO)).unwrap();
        let old = get().await;
        assert!(storage.is_stale(&old));
        storage
            .commit(vec![Write::update(one.clone(), old.revision, old.record.clone())])
            .await
            .unwrap();
        assert!(!storage.is_stale(&*get().await));
        fill(&storage).await;
        runtime.sleep(Duration::from_secs(20)).await;
        fill(&storage).await;
        storage.checkpoint();
        runtime.sleep(Duration::from_secs(20)).await;
        storage
            .compact(storage.current_revision().await.unwrap())
            .await
            .unwrap();
        storage.close().await;
        assert!(!is_anywhere(&disk, b"aesgcm"), "the old key is needed no more");
        let storage = open(&runtime, Some(encryption(&runtime, ONLY_TWO))).await;
        assert_eq!(all(&storage).await.unwrap(), 7);
    });
}

#[test]
fn encrypted_backup_is_restored_and_read_offline_without_keys_as_it_is() {
    story(|runtime, disk| async move {
        let storage = open(&runtime, Some(encryption(&runtime, ONE))).await;
        fill(&storage).await;
        storage.close().await;
        let mut state = OfflineState::open(&*disk, Path::new(DIR)).unwrap();
        assert!(state.entries().all(|entry| entry.record.is_sealed()));
        let mut backup = state.backup();
        write_backup(&*disk, Path::new(FILE), || Ok(backup.next_piece())).unwrap();
        let refused = state.open_sealed(&encryption(&runtime, ONLY_TWO)).unwrap_err();
        assert_eq!(cause(&refused), "no matching prefix found");
        state.open_sealed(&encryption(&runtime, ONE)).unwrap();
        assert!(
            state
                .entries()
                .all(|entry| entry.record.parts[2].starts_with(PLAIN))
        );
        drop(state);
        let (state, to): (_, Arc<dyn Disk>) = (
            OfflineState::of_backup(&*disk, Path::new(FILE)).unwrap(),
            disk.clone(),
        );
        let settings = RestoreOptions {
            bump_revision: 0,
            store: 5,
            encryption: None,
        };
        restore(&to, Path::new("/new"), &state, settings).unwrap();
        assert!(!is_anywhere(&disk, PLAIN));
        let settings = LogOptions {
            dir: "/new".into(),
            ..options(Some(encryption(&runtime, ONE)))
        };
        let storage = LogStorage::open(&runtime, settings).await.unwrap().0;
        assert_eq!(all(&storage).await.unwrap(), 7);
    });
}

#[test]
fn encryption_key_in_use_is_not_given_up_by_a_reload() {
    story(|runtime, _| async move {
        let keys = encryption(&runtime, ONE);
        let storage = open(&runtime, Some(Arc::clone(&keys))).await;
        fill(&storage).await;
        storage
            .commit(vec![put("/registry/configmaps/a/c", "")])
            .await
            .unwrap();
        let reload = |providers: &str| {
            let lost = |next: &Encryption| storage.lost_by(next);
            keys.reload_unless_lost(Path::new("/enc"), &config(providers), lost)
        };
        let refused = reload(ONLY_TWO).unwrap_err().to_string();
        let told = "7 stored values could no longer be decrypted, /registry/secrets/a/s0 first";
        assert!(refused.starts_with(told), "{refused}");
        assert_eq!(reload(TWO), Ok(true));
        assert!(reload(ONLY_TWO).is_err(), "nothing is written anew yet");
        fill(&storage).await;
        storage.encryption_replaced().await;
        runtime.sleep(Duration::from_secs(1)).await;
        assert_eq!(reload(ONLY_TWO), Ok(true));
        assert!(storage.unopened().is_empty());
        storage.close().await;
        // A start is not refused; it says what it misses, and a reload may add the key.
        let keys = encryption(&runtime, ONE);
        let storage = open(&runtime, Some(Arc::clone(&keys))).await;
        let missed = storage.unopened();
        assert_eq!(missed.count, 7);
        assert_eq!(missed.first.unwrap().as_str(), "/registry/secrets/a/s0");
        let lost = |next: &Encryption| storage.lost_by(next);
        let added = keys.reload_unless_lost(Path::new("/enc"), &config(TWO), lost);
        assert_eq!(added, Ok(true));
        assert!(storage.unopened().is_empty());
        let lost = |next: &Encryption| storage.lost_by(next);
        let removed = keys.reload_unless_lost(Path::new("/enc"), &config(ONE), lost);
        assert!(removed.is_err(), "what was missed once counts as well");
        storage.close().await;
    });
}

/// The new key is removed again before anything was written with it but the checkpoint that followed the reload.
#[test]
fn encryption_key_of_the_newest_checkpoint_is_not_given_up_by_a_reload() {
    story(|runtime, disk| async move {
        let keys = encryption(&runtime, ONE);
        let storage = open(&runtime, Some(Arc::clone(&keys))).await;
        fill(&storage).await;
        let reload = async |providers: &str| {
            let lost = |next: &Encryption| storage.lost_by(next);
            let done = keys.reload_unless_lost(Path::new("/enc"), &config(providers), lost);
            storage.encryption_replaced().await;
            runtime.sleep(Duration::from_secs(1)).await;
            done
        };
        assert_eq!(reload(TWO).await, Ok(true));
        let refused = reload(ONE).await.unwrap_err().to_string();
        let told = "7 stored values could no longer be decrypted, /registry/secrets/a/s0 first";
        assert!(refused.starts_with(told), "{refused}");
        assert_eq!(reload(ONE_AND_TWO).await, Ok(true));
        assert_eq!(reload(ONE).await, Ok(true));
        disk.crash();
        drop(storage);
        let storage = open(&runtime, Some(encryption(&runtime, ONE))).await;
        assert_eq!(all(&storage).await.unwrap(), 7);
        // What a start has read is known as well.
        let keys = storage.encryption().unwrap();
        keys.reload(Path::new("/enc"), &config(TWO)).unwrap();
        for secret in 0..7 {
            let anew = vec![put(&format!("{SECRET}{secret}"), "anew")];
            storage.commit(anew).await.unwrap();
        }
        let lost = |next: &Encryption| storage.lost_by(next);
        let only_two = keys.reload_unless_lost(Path::new("/enc"), &config(ONLY_TWO), lost);
        assert!(only_two.is_err(), "the checkpoint has the old key");
    });
}

/// Reloads to and fro while checkpoints are written, and the power lost at any time: what was taken is enough for the start.
#[test]
fn encryption_configuration_that_was_taken_opens_everything_after_a_crash() {
    const ORDER: [&str; 4] = [TWO, ONE_AND_TWO, ONE, ONLY_TWO];
    let mut outcomes = [0, 0];
    for seed in 0..100 {
        let simulation = Simulation::new(seed);
        let (runtime, disk) = (simulation.runtime(), simulation.disk());
        let counts = simulation.run(async move {
            let keys = encryption(&runtime, ONE);
            let storage = open(&runtime, Some(Arc::clone(&keys))).await;
            fill(&storage).await;
            let (mut taken, mut counts) = (ONE, [0, 0]);
            for _ in 0..1 + runtime.random_u64() % 6 {
                let next = ORDER[usize::try_from(runtime.random_u64() % 4).unwrap()];
                let lost = |next: &Encryption| storage.lost_by(next);
                match keys.reload_unless_lost(Path::new("/enc"), &config(next), lost) {
                    Ok(true) => {
                        taken = next;
                        counts[0] += 1;
                        storage.encryption_replaced().await;
                    }
                    Ok(false) => {}
                    Err(_) => counts[1] += 1,
                }
                if runtime.random_u64() % 4 == 0 {
                    fill(&storage).await;
                }
                runtime
                    .sleep(Duration::from_micros(runtime.random_u64() % 3_000))
                    .await;
            }
            disk.crash();
            drop(storage);
            let storage = open(&runtime, Some(encryption(&runtime, taken))).await;
            let found = all(&storage).await;
            assert!(matches!(found, Ok(7)), "seed {seed}, {taken}: {found:?}");
            counts
        });
        outcomes = [outcomes[0] + counts[0], outcomes[1] + counts[1]];
    }
    assert!(outcomes.iter().all(|count| *count > 50), "{outcomes:?}");
}

/// From plain to encrypted: by a reload while the log is idle, by one while it is written, and by a start.
#[test]
fn encryption_replaced_leaves_nothing_of_the_former_one_after_the_retention() {
    const PLAIN_FIRST: &str =
        "[{identity: {}}, {aesgcm: {keys: [{name: one, secret: MTIzNDU2Nzg5MDEyMzQ1Ng==}]}}]";
    for (idle, by_start) in [(true, false), (false, false), (true, true)] {
        story(|runtime, disk| async move {
            let keys = encryption(&runtime, PLAIN_FIRST);
            let storage = open(&runtime, Some(Arc::clone(&keys))).await;
            fill(&storage).await;
            if idle {
                // The floor is where the log ends.
                runtime.sleep(Duration::from_secs(20)).await;
            }
            assert!(is_anywhere(&disk, PLAIN));
            let storage = if by_start {
                storage.close().await;
                open(&runtime, Some(encryption(&runtime, ONE))).await
            } else {
                keys.reload(Path::new("/enc"), &config(ONE)).unwrap();
                storage.encryption_replaced().await;
                storage
            };
            runtime.sleep(Duration::from_secs(1)).await;
            if !idle {
                let late = vec![put("/registry/secrets/a/late", "")];
                storage.commit(late).await.unwrap();
            }
            runtime.sleep(Duration::from_secs(11)).await;
            assert!(!is_anywhere(&disk, PLAIN), "idle {idle}, by a start {by_start}");
            storage.close().await;
            drop(storage);
            disk.crash();
            let storage = open(&runtime, Some(encryption(&runtime, ONE))).await;
            assert_eq!(all(&storage).await.unwrap(), if idle { 7 } else { 8 });
            storage.close().await;
        });
    }
}

#[test]
fn encryption_that_is_not_written_for_want_of_room_is_behind_until_there_is_some() {
    story(|runtime, disk| async move {
        let keys = encryption(&runtime, ONE);
        let storage = open(&runtime, Some(Arc::clone(&keys))).await;
        fill(&storage).await;
        let is_behind = || storage.statistics().unwrap().encryption_behind;
        disk.crowd();
        keys.reload(Path::new("/enc"), &config(TWO)).unwrap();
        storage.encryption_replaced().await;
        assert!(!is_behind());
        while !is_behind() {
            runtime.sleep(Duration::from_secs(1)).await;
        }
        disk.make_room();
        while is_behind() {
            runtime.sleep(Duration::from_secs(1)).await;
        }
        storage.close().await;
    });
}

#[test]
fn encrypted_records_outside_of_a_prefix_stay_as_they_are() {
    story(|runtime, disk| async move {
        let storage = open(&runtime, Some(encryption(&runtime, ONE))).await;
        fill(&storage).await;
        storage.close().await;
        let mut state = OfflineState::open(&*disk, Path::new(DIR)).unwrap();
        let other = encryption(&runtime, ONLY_TWO);
        state.open_sealed_below("/registry/configmaps/", &other).unwrap();
        assert!(state.open_sealed_below("/registry/secrets/a/", &other).is_err());
        let closed = state.sealed(&other).filter(|(_, error)| error.is_some());
        assert_eq!(closed.count(), 7);
    });
}
