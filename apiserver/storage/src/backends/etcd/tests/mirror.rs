//! The mirror of etcd: what reads and watches see when streams break, others write, compactions overtake and etcd is
//! restored, and how little of etcd they use.

use super::{LONG_ENOUGH, TextCodec, on_the_model, through};
use crate::suite::{record, value};
use crate::{
    EtcdOptions, EtcdStorage, Key, Lookup, Op, Prefix, RangeOptions, ReadAt, Record, RecordCodec, Revision,
    Storage, StorageError, WatchCursor, WatchFilter, WatchRequest, Write,
};
use apiserver_etcd_model::{Etcd, FaultProfile};
use futures::future::join_all;
use machinery_runtime::{Runtime, Simulation};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn simulated<F: Future<Output = ()> + Send + 'static>(story: impl FnOnce(Runtime) -> F) {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    let told = story(runtime.clone());
    let ended = simulation.run(async move { runtime.timeout(LONG_ENOUGH, told).await });
    assert_eq!(ended, Ok(()), "something waits for ever");
}

fn key(name: &str) -> Key {
    Key::parse(&format!("/registry/things/{name}")).unwrap()
}

async fn put(storage: &EtcdStorage, name: &str, text: &str) -> Revision {
    let write = Write {
        key: key(name),
        expect: crate::Expect::Any,
        op: Op::Put {
            record: record(name, "n1", text),
            ttl: None,
        },
    };
    storage.commit(vec![write]).await.unwrap()[0].revision
}

async fn get(storage: &EtcdStorage, name: &str) -> Result<Option<String>, StorageError> {
    let found: Lookup = storage.get(&key(name), ReadAt::Latest).await?;
    Ok(found.entry.map(|entry| value(&entry.record)))
}

async fn watch(storage: &EtcdStorage, after: Revision) -> Result<Box<dyn WatchCursor>, StorageError> {
    let interests = vec![WatchFilter::prefix(Prefix::parse("/registry/things/").unwrap())];
    storage.watch(WatchRequest { interests, after }).await
}

/// Two servers' ways to one etcd, the second of which can be cut off.
pub(super) async fn two(
    etcd: &Etcd,
    runtime: &Runtime,
) -> (EtcdStorage, EtcdStorage, apiserver_etcd_model::Transport) {
    let transport = etcd.transport();
    let other = through(transport.clone(), runtime, EtcdOptions::default()).await;
    (on_the_model(etcd, runtime).await, other, transport)
}

#[test]
fn streams_of_etcd_are_few_whatever_clients_do() {
    simulated(async |runtime| {
        let etcd = Etcd::start(&runtime, FaultProfile::none());
        let options = EtcdOptions {
            history_bytes: 0,
            ..EtcdOptions::default()
        };
        let storage = through(etcd.transport(), &runtime, options).await;
        let begin = storage.current_revision().await.unwrap();
        for step in 0..50 {
            put(&storage, "a", &step.to_string()).await;
        }
        let now = storage.current_revision().await.unwrap();
        let (mut idle, mut behind) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            idle.push(watch(&storage, now).await.unwrap());
            behind.push(watch(&storage, begin).await.unwrap());
        }
        // No cursor reads: nothing is open for them.
        runtime.sleep(Duration::from_secs(1)).await;
        assert_eq!(etcd.watches(), 1);
        let reading = join_all(behind.iter_mut().map(|cursor| cursor.next_batch(1)));
        let most = async {
            let mut most = 0;
            for _ in 0..100 {
                runtime.sleep(Duration::from_millis(1)).await;
                most = most.max(etcd.watches());
            }
            most
        };
        let (told, most) = futures::join!(reading, most);
        assert!(told.iter().all(|told| told.as_ref().unwrap().len() == 1));
        assert!(most <= 3, "{most} streams");
    });
}

#[test]
fn reads_of_many_ask_etcd_once() {
    simulated(async |runtime| {
        let far = FaultProfile {
            delay: Duration::from_millis(5),
            ..FaultProfile::none()
        };
        let etcd = Etcd::start(&runtime, far);
        let storage = on_the_model(&etcd, &runtime).await;
        put(&storage, "a", "1").await;
        get(&storage, "a").await.unwrap();
        let before = etcd.requests();
        let found = join_all((0..1000).map(|_| get(&storage, "a"))).await;
        assert!(
            found
                .into_iter()
                .all(|found| found.unwrap().as_deref() == Some("1"))
        );
        assert!(
            etcd.requests() - before <= 2,
            "{} requests",
            etcd.requests() - before
        );
        // At any revision: none at all.
        let before = etcd.requests();
        let at = RangeOptions {
            at: ReadAt::NotBefore(Revision::ZERO),
            ..RangeOptions::default()
        };
        let page = storage
            .range(&Prefix::parse("/registry/").unwrap(), &at)
            .await
            .unwrap();
        assert_eq!((page.entries.len(), etcd.requests()), (1, before));
    });
}

/// Changes by other users of the same etcd move its revision, and no change below our prefix reports the watch's
/// progress.
#[test]
fn read_after_changes_of_others_asks_how_far_the_watch_is() {
    simulated(async |runtime| {
        let etcd = Etcd::start(&runtime, FaultProfile::none());
        let storage = on_the_model(&etcd, &runtime).await;
        let elsewhere = EtcdOptions {
            prefix: "/elsewhere/".to_owned(),
            ..EtcdOptions::default()
        };
        let other = through(etcd.transport(), &runtime, elsewhere).await;
        let mut cursor = watch(&storage, storage.current_revision().await.unwrap())
            .await
            .unwrap();
        let theirs = Write::create(Key::parse("/elsewhere/a").unwrap(), record("a", "n1", "1"));
        let revision = other.commit(vec![theirs]).await.unwrap()[0].revision;
        let before = etcd.requests();
        let begun = runtime.monotonic();
        let found = storage.get(&key("a"), ReadAt::Latest).await.unwrap();
        assert_eq!((found.entry, found.revision), (None, revision));
        assert!(runtime.monotonic() - begun < super::super::FRESH_WITHIN);
        assert_eq!(etcd.requests() - before, 1, "it is answered from memory");
        let told = runtime
            .timeout(Duration::from_secs(1), cursor.next_batch(1))
            .await;
        assert!(told.is_err(), "{told:?}");
        assert_eq!(cursor.position(), revision, "a bookmark may say so");
        let theirs = storage
            .get(&Key::parse("/elsewhere/a").unwrap(), ReadAt::Latest)
            .await;
        assert!(matches!(theirs, Err(StorageError::InvalidKey(_))));
    });
}

#[test]
fn read_is_answered_by_etcd_while_the_watch_is_late() {
    simulated(async |runtime| {
        let slow = FaultProfile {
            lag: Duration::ZERO,
            queue: 1,
            window: 1,
            rounds: Duration::from_secs(60),
            ..FaultProfile::none()
        };
        let etcd = Etcd::start(&runtime, slow);
        let (storage, other, _) = two(&etcd, &runtime).await;
        get(&storage, "a").await.unwrap();
        // More at once than its queue holds: etcd goes on sending it in its next round.
        let writes = (0..20).map(|step| {
            let other = &other;
            async move { put(other, "a", &step.to_string()).await }
        });
        join_all(writes).await;
        put(&other, "a", "last").await;
        assert_eq!(get(&storage, "a").await.unwrap().as_deref(), Some("last"));
    });
}

#[test]
fn watch_goes_on_where_its_stream_broke() {
    simulated(async |runtime| {
        let etcd = Etcd::start(&runtime, FaultProfile::none());
        let (storage, other, transport) = two(&etcd, &runtime).await;
        let start = put(&storage, "a", "0").await;
        let mut cursor = watch(&other, start).await.unwrap();
        transport.cut(true);
        let mut expected = Vec::new();
        for step in 1..20 {
            expected.push(put(&storage, "a", &step.to_string()).await);
        }
        assert!(get(&other, "a").await.is_err());
        transport.cut(false);
        let mut told = Vec::new();
        while told.len() < expected.len() {
            told.extend(
                cursor
                    .next_batch(100)
                    .await
                    .unwrap()
                    .iter()
                    .map(|event| event.revision),
            );
        }
        assert_eq!(told, expected);
    });
}

#[test]
fn watch_ends_where_a_compaction_took_what_it_missed() {
    simulated(async |runtime| {
        let etcd = Etcd::start(&runtime, FaultProfile::none());
        let (storage, other, transport) = two(&etcd, &runtime).await;
        let start = put(&storage, "a", "0").await;
        let mut cursor = watch(&other, start).await.unwrap();
        transport.cut(true);
        put(&storage, "b", "1").await;
        let floor = put(&storage, "a", "1").await;
        put(&storage, "b", "2").await;
        storage.compact(floor).await.unwrap();
        transport.cut(false);
        let told = cursor.next_batch(100).await;
        assert!(
            matches!(told, Err(StorageError::Compacted { asked, .. }) if asked == start),
            "{told:?}"
        );
        assert_eq!(get(&other, "b").await.unwrap().as_deref(), Some("2"));
        // From the floor on everything is there, although no memory has it.
        let mut cursor = watch(&other, floor).await.unwrap();
        let told = cursor.next_batch(100).await.unwrap();
        assert_eq!(value(&told[0].object().record), "2");
        assert_eq!(value(&told[0].previous.as_ref().unwrap().record), "1");
    });
}

/// Nothing was missed while nothing happened, however much was compacted.
#[test]
fn watch_goes_on_when_the_compaction_took_nothing_it_missed() {
    simulated(async |runtime| {
        let etcd = Etcd::start(&runtime, FaultProfile::none());
        let (storage, other, transport) = two(&etcd, &runtime).await;
        let start = put(&storage, "a", "0").await;
        let mut cursor = watch(&other, start).await.unwrap();
        transport.cut(true);
        storage.compact(start).await.unwrap();
        transport.cut(false);
        put(&storage, "a", "1").await;
        let told = cursor.next_batch(100).await.unwrap();
        assert_eq!(value(&told[0].object().record), "1");
    });
}

#[test]
fn etcd_restored_from_a_backup_is_noticed_and_read_anew() {
    for more in [0, 9] {
        simulated(async move |runtime| {
            let etcd = Etcd::start(&runtime, FaultProfile::none());
            let (storage, other, transport) = two(&etcd, &runtime).await;
            put(&storage, "kept", "1").await;
            let backup = etcd.backup();
            put(&storage, "kept", "2").await;
            let lost = put(&storage, "lost", "1").await;
            let mut cursor = watch(&other, lost).await.unwrap();
            assert_eq!(get(&other, "lost").await.unwrap().as_deref(), Some("1"));
            transport.cut(true);
            etcd.restore(backup);
            // Also when others have written so much that the revision is past the old one.
            for step in 0..more {
                loop {
                    let (name, text) = (format!("new{step}"), "x");
                    let write = Write::create(key(&name), record(&name, "n1", text));
                    if storage.commit(vec![write]).await.is_ok() {
                        break;
                    }
                }
            }
            transport.cut(false);
            let told = cursor.next_batch(1).await;
            assert!(
                matches!(told, Err(StorageError::Compacted { .. })),
                "{more}: {told:?}"
            );
            assert_eq!(get(&other, "kept").await.unwrap().as_deref(), Some("1"));
            assert_eq!(get(&other, "lost").await.unwrap(), None);
            let after = other.current_revision().await.unwrap();
            let mut cursor = watch(&other, after).await.unwrap();
            put(&storage, "kept", "3").await;
            assert_eq!(
                value(&cursor.next_batch(1).await.unwrap()[0].object().record),
                "3"
            );
        });
    }
}

/// Writes values that do not decode.
#[derive(Debug)]
struct Scribble;

impl RecordCodec for Scribble {
    fn encode(&self, _: &Key, _: &Record) -> Result<Vec<u8>, String> {
        Ok(vec![0xff])
    }

    fn decode(&self, key: &Key, value: &[u8]) -> Result<Record, String> {
        TextCodec.decode(key, value)
    }
}

#[test]
fn etcd_unreadable_value_fails_its_own_reads_only() {
    simulated(async |runtime| {
        let etcd = Etcd::start(&runtime, FaultProfile::none());
        let storage = on_the_model(&etcd, &runtime).await;
        let options = EtcdOptions {
            endpoints: vec!["http://model".to_owned()],
            ..EtcdOptions::default()
        };
        let scribbling = EtcdStorage::connect_through(&runtime, &options, etcd.transport())
            .await
            .unwrap();
        scribbling.codec().unwrap().fill(Arc::new(Scribble));
        let start = put(&storage, "a", "1").await;
        put(&storage, "b", "1").await;
        let mut cursor = watch(&storage, start).await.unwrap();
        put(&scribbling, "a", "?").await;
        put(&storage, "b", "2").await;
        let list = || async {
            let things = Prefix::parse("/registry/things/").unwrap();
            storage.range(&things, &RangeOptions::default()).await
        };
        let answer = get(&storage, "a").await;
        assert!(
            matches!(answer, Err(StorageError::Unreadable { .. })),
            "{answer:?}"
        );
        match list().await.unwrap_err() {
            StorageError::UnreadableRange { found, is_cut } => assert_eq!((found.len(), is_cut), (1, false)),
            other => panic!("{other}"),
        }
        assert_eq!(get(&storage, "b").await.unwrap().as_deref(), Some("2"));
        let elsewhere = Prefix::parse("/registry/other/").unwrap();
        assert_eq!(
            storage
                .range(&elsewhere, &RangeOptions::default())
                .await
                .unwrap()
                .entries,
            []
        );
        // One that starts now does not read it either.
        let late = on_the_model(&etcd, &runtime).await;
        assert_eq!(get(&late, "b").await.unwrap().as_deref(), Some("2"));
        assert!(matches!(
            get(&late, "a").await,
            Err(StorageError::Unreadable { .. })
        ));
        let write = Write::create(key("c"), record("c", "n1", "1"));
        storage.commit(vec![write]).await.unwrap();
        let mut told = Vec::new();
        while told.len() < 3 {
            told.extend(cursor.next_batch(100).await.unwrap());
        }
        let texts: Vec<String> = told.iter().map(|event| value(&event.object().record)).collect();
        assert_eq!(texts, ["1", "2", "1"]);
    });
}

/// Clients may know the object from a time at which it could be read.
#[test]
fn unreadable_value_is_deleted_and_watches_of_it_end() {
    simulated(async |runtime| {
        let etcd = Etcd::start(&runtime, FaultProfile::none());
        let storage = on_the_model(&etcd, &runtime).await;
        let options = EtcdOptions {
            endpoints: vec!["http://model".to_owned()],
            ..EtcdOptions::default()
        };
        let scribbling = EtcdStorage::connect_through(&runtime, &options, etcd.transport())
            .await
            .unwrap();
        scribbling.codec().unwrap().fill(Arc::new(Scribble));
        put(&storage, "a", "1").await;
        put(&scribbling, "a", "?").await;
        let late = on_the_model(&etcd, &runtime).await;
        let stored = late.stored_revision(&key("a")).await.unwrap().unwrap();
        let mut known = watch(&storage, stored).await.unwrap();
        let interest = WatchFilter::prefix(Prefix::parse("/registry/things/").unwrap());
        let interests = vec![interest.with_field("spec.nodeName", "n7")];
        let request = WatchRequest {
            interests,
            after: stored,
        };
        let mut unknown = late.watch(request).await.unwrap();
        let wrong = vec![Write::delete(key("a"), Revision(stored.0 - 1))];
        assert!(late.commit(wrong).await.is_err());
        let events = late.commit(vec![Write::delete(key("a"), stored)]).await.unwrap();
        assert!(events[0].is_delete() && events[0].previous.is_none());
        assert_eq!(late.stored_revision(&key("a")).await.unwrap(), None);
        assert_eq!(get(&late, "a").await.unwrap(), None);
        assert_eq!(value(&known.next_batch(1).await.unwrap()[0].object().record), "1");
        let ended = unknown.next_batch(1).await.unwrap_err();
        assert!(matches!(ended, StorageError::Sealed { .. }), "{ended}");
        let mut late_watch = watch(&late, events[0].revision).await.unwrap();
        put(&late, "a", "2").await;
        assert_eq!(
            value(&late_watch.next_batch(1).await.unwrap()[0].object().record),
            "2"
        );
    });
}
