//! What every backend must do. Each case gets a store and keys of its own; `all` runs them in turn.

use crate::{
    Expect, Interest, Key, Op, Prefix, RangeOptions, ReadAt, Record, Revision, Storage, StorageError,
    WatchCursor, WatchRequest, Write,
};
use bytes::Bytes;
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_runtime::Runtime;
use std::sync::Arc;
use std::time::Duration;

/// A store to be tested, and what it does differently by design.
pub(crate) struct Subject {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) runtime: Runtime,
    /// The changes of a group share a revision (etcd).
    pub(crate) one_revision_per_group: bool,
}

/// An object as the suite stores it: its text is its value, its node is a selectable field.
pub(crate) fn record(name: &str, node: &str, value: &str) -> Record {
    let head = format!("name={name};node={node};");
    let parts = [
        Bytes::from_static(b"meta;"),
        Bytes::from(head),
        Bytes::copy_from_slice(value.as_bytes()),
    ];
    let header = ObjectHeader {
        key: ObjectKey::new("ns", name),
        fields: vec![("spec.nodeName".into(), node.into())],
        ..ObjectHeader::default()
    };
    Record {
        parts,
        fingerprint: 42,
        header: Arc::new(header),
    }
}

/// The value of an object of [`record`].
pub(crate) fn value(record: &Record) -> String {
    String::from_utf8_lossy(&record.parts[2]).into_owned()
}

/// Keys of one case.
struct Place<'a> {
    subject: &'a Subject,
    case: &'static str,
}

pub(crate) async fn all(subject: &Subject) {
    let place = |case| Place { subject, case };
    expectations(place("expectations")).await;
    groups(place("groups")).await;
    paging(place("paging")).await;
    past_states(place("past")).await;
    watching(place("watching")).await;
    interests(place("interests")).await;
    racing(place("racing")).await;
    ordering(place("ordering")).await;
    expiry(place("expiry")).await;
    limits(place("limits")).await;
    compaction(place("compaction")).await;
    closing(place("closing")).await;
}

impl Place<'_> {
    fn storage(&self) -> &Arc<dyn Storage> {
        &self.subject.storage
    }

    fn key(&self, name: &str) -> Key {
        Key::parse(&format!("/registry/{}/{name}", self.case)).unwrap()
    }

    fn prefix(&self) -> Prefix {
        Prefix::parse(&format!("/registry/{}/", self.case)).unwrap()
    }

    fn write(&self, name: &str, expect: Expect, value: Option<&str>) -> Write {
        let op = match value {
            Some(value) => Op::Put {
                record: record(name, "n1", value),
                ttl: None,
            },
            None => Op::Delete,
        };
        Write {
            key: self.key(name),
            expect,
            op,
        }
    }

    /// Writes without asking what was there; the revision.
    async fn put(&self, name: &str, value: &str) -> Revision {
        let written = self
            .storage()
            .commit(vec![self.write(name, Expect::Any, Some(value))])
            .await
            .unwrap();
        written[0].revision
    }

    async fn remove(&self, name: &str) -> Revision {
        self.storage()
            .commit(vec![self.write(name, Expect::Present, None)])
            .await
            .unwrap()[0]
            .revision
    }

    async fn get(&self, name: &str) -> Option<String> {
        let found = self.storage().get(&self.key(name), ReadAt::Latest).await.unwrap();
        found.entry.map(|entry| value(&entry.record))
    }

    async fn list(&self, options: RangeOptions) -> Result<(Vec<String>, u64), StorageError> {
        let page = self.storage().range(&self.prefix(), &options).await?;
        Ok((
            page.entries.iter().map(|entry| value(&entry.record)).collect(),
            page.remaining,
        ))
    }

    async fn watch(&self, after: Revision) -> Box<dyn WatchCursor> {
        self.watch_for(Interest::prefix(self.prefix()), after).await
    }

    async fn watch_for(&self, interest: Interest, after: Revision) -> Box<dyn WatchCursor> {
        self.storage()
            .watch(WatchRequest {
                interests: vec![interest],
                after,
            })
            .await
            .unwrap()
    }

    async fn current(&self) -> Revision {
        self.storage().current_revision().await.unwrap()
    }
}

/// `revision name value` of the next `count` changes; `-` for a deletion.
async fn told(cursor: &mut Box<dyn WatchCursor>, count: usize) -> Vec<(Revision, String)> {
    let mut out = Vec::new();
    while out.len() < count {
        for event in cursor.next_batch(count - out.len()).await.unwrap() {
            let now = event
                .entry
                .as_ref()
                .map_or_else(|| "-".to_owned(), |entry| value(&entry.record));
            out.push((event.revision, now));
            assert!(cursor.position() >= event.revision);
        }
    }
    out
}

/// Every expectation against what is absent, there, and there at another revision.
async fn expectations(place: Place<'_>) {
    let there = place.put("there", "old").await;
    let other = Revision(there.0 + 1000);
    for (name, expect, holds) in [
        ("absent", Expect::At(there), false),
        ("absent", Expect::Present, false),
        ("there", Expect::Absent, false),
        ("there", Expect::At(other), false),
        ("absent", Expect::Absent, true),
        ("any", Expect::Any, true),
        ("there", Expect::At(there), true),
        ("there", Expect::Present, true),
    ] {
        let before = place
            .storage()
            .get(&place.key(name), ReadAt::Latest)
            .await
            .unwrap()
            .entry;
        match place
            .storage()
            .commit(vec![place.write(name, expect, Some("new"))])
            .await
        {
            Ok(events) => {
                assert!(holds, "{name} {expect:?}");
                assert_eq!(events[0].previous, before);
                assert_eq!(events[0].is_create(), before.is_none());
                let created = before.map_or(events[0].revision, |before| before.created);
                assert_eq!(events[0].object().created, created);
            }
            Err(StorageError::Conflict {
                index: 0,
                key,
                current,
            }) => {
                assert!(!holds, "{name} {expect:?}");
                assert_eq!((key, current), (place.key(name), before));
            }
            Err(other) => panic!("{name} {expect:?}: {other}"),
        }
    }
    let missing = place
        .storage()
        .commit(vec![place.write("never", Expect::Any, None)])
        .await;
    assert!(
        matches!(missing, Err(StorageError::Conflict { current: None, .. })),
        "{missing:?}"
    );
    let deleted = place
        .storage()
        .commit(vec![place.write("there", Expect::Present, None)])
        .await
        .unwrap();
    assert!(deleted[0].is_delete() && deleted[0].revision > there);
    assert_eq!(value(&deleted[0].object().record), "new");
    assert_eq!(place.get("there").await, None);
    let entry = place
        .storage()
        .get(&place.key("any"), ReadAt::Latest)
        .await
        .unwrap()
        .entry
        .unwrap();
    assert_eq!(
        entry.record,
        record("any", "n1", "new"),
        "a record comes back as it was given"
    );
}

/// All or nothing, consecutive, in order.
async fn groups(place: Place<'_>) {
    place.put("b", "old").await;
    let before = place.current().await;
    let mut cursor = place.watch(before).await;
    let check = |name, expect| Write {
        key: place.key(name),
        expect,
        op: Op::Check,
    };
    let refused = vec![
        place.write("a", Expect::Absent, Some("1")),
        place.write("b", Expect::Absent, Some("2")),
        check("c", Expect::Absent),
    ];
    let error = place.storage().commit(refused).await.unwrap_err();
    assert!(
        matches!(error, StorageError::Conflict { index: 1, .. }),
        "{error:?}"
    );
    assert_eq!((place.get("a").await, place.current().await), (None, before));
    let accepted = vec![
        check("c", Expect::Absent),
        place.write("a", Expect::Absent, Some("1")),
        place.write("b", Expect::Present, None),
    ];
    let events = place.storage().commit(accepted).await.unwrap();
    let revisions: Vec<u64> = events.iter().map(|event| event.revision.0 - before.0).collect();
    assert_eq!(
        revisions,
        if place.subject.one_revision_per_group {
            [1, 1]
        } else {
            [1, 2]
        }
    );
    let seen: Vec<String> = told(&mut cursor, 2)
        .await
        .into_iter()
        .map(|(_, value)| value)
        .collect();
    assert_eq!(seen, ["1", "-"]);
    let only_checks = vec![check("a", Expect::Present), check("b", Expect::Absent)];
    assert_eq!(place.storage().commit(only_checks).await.unwrap(), []);
    let failing = vec![check("a", Expect::Absent)];
    assert!(place.storage().commit(failing).await.is_err());
}

/// A list read in pages is one list, whatever happens meanwhile.
async fn paging(place: Place<'_>) {
    assert_eq!(place.list(RangeOptions::default()).await.unwrap(), (vec![], 0));
    for name in ["e", "a", "c", "b", "d"] {
        place.put(name, name).await;
    }
    let first = RangeOptions {
        limit: 2,
        ..RangeOptions::default()
    };
    let page = place.storage().range(&place.prefix(), &first).await.unwrap();
    assert_eq!((page.entries.len(), page.remaining), (2, 3));
    place.remove("c").await;
    place.put("bb", "bb").await;
    place.put("d", "changed").await;
    let next = |after: &str, limit| RangeOptions {
        at: ReadAt::Exact(page.revision),
        start_after: Some(place.key(after)),
        limit,
    };
    assert_eq!(
        place.list(next("b", 2)).await.unwrap(),
        (vec!["c".to_owned(), "d".to_owned()], 1)
    );
    assert_eq!(place.list(next("d", 2)).await.unwrap(), (vec!["e".to_owned()], 0));
    assert_eq!(place.list(next("e", 0)).await.unwrap(), (vec![], 0));
    let (all, _) = place.list(RangeOptions::default()).await.unwrap();
    assert_eq!(all, ["a", "b", "bb", "changed", "e"]);
    assert_eq!(place.storage().count(&place.prefix()).await.unwrap(), 5);
}

/// Exact, not before, and the future.
async fn past_states(place: Place<'_>) {
    let mut states = Vec::new();
    for step in 0..20 {
        let name = ["a", "b", "c"][step % 3];
        let revision = if step % 7 == 6 {
            place.remove(name).await
        } else {
            place.put(name, &step.to_string()).await
        };
        states.push((revision, place.list(RangeOptions::default()).await.unwrap().0));
    }
    for (revision, state) in &states {
        let options = RangeOptions {
            at: ReadAt::Exact(*revision),
            ..RangeOptions::default()
        };
        assert_eq!(place.list(options).await.unwrap().0, *state, "at {revision}");
        let found = place
            .storage()
            .get(&place.key("a"), ReadAt::Exact(*revision))
            .await
            .unwrap();
        let found = found.entry.map(|entry| value(&entry.record));
        assert!(found.is_none_or(|found| state.contains(&found)), "at {revision}");
    }
    let newest = &states.last().unwrap().1;
    let options = RangeOptions {
        at: ReadAt::NotBefore(states[0].0),
        ..RangeOptions::default()
    };
    assert_eq!(place.list(options).await.unwrap().0, *newest);
    let future = Revision(place.current().await.0 + 1000);
    for at in [ReadAt::Exact(future), ReadAt::NotBefore(future)] {
        let answer = place
            .list(RangeOptions {
                at,
                ..RangeOptions::default()
            })
            .await;
        assert!(
            matches!(answer, Err(StorageError::Future { .. })),
            "{at:?}: {answer:?}"
        );
    }
}

/// From now, from before, and in small bites: the same order, nothing missing, nothing twice.
async fn watching(place: Place<'_>) {
    let start = place.current().await;
    let mut live = place.watch(start).await;
    let mut expected = Vec::new();
    for step in 0..30 {
        let name = ["a", "b", "c"][step % 3];
        let value = step.to_string();
        if step % 10 == 9 {
            expected.push((place.remove(name).await, "-".to_owned()));
        } else {
            expected.push((place.put(name, &value).await, value));
        }
    }
    assert_eq!(told(&mut live, 30).await, expected);
    assert_eq!(told(&mut place.watch(start).await, 30).await, expected);
    let middle = expected[14].0;
    let mut late = place.watch(middle).await;
    let mut bites = Vec::new();
    while bites.len() < 15 {
        let bite = late.next_batch(1).await.unwrap();
        assert_eq!(bite.len(), 1);
        bites.extend(bite.iter().map(|event| event.revision));
    }
    let rest: Vec<Revision> = expected[15..].iter().map(|(revision, _)| *revision).collect();
    assert_eq!(bites, rest);
    place.storage().reached(expected[29].0).await.unwrap();
    let future = WatchRequest {
        interests: vec![Interest::prefix(place.prefix())],
        after: Revision(u64::MAX >> 2),
    };
    let future = place.storage().watch(future).await;
    assert!(matches!(future, Err(StorageError::Future { .. })));
}

/// By key, and by a field as it is or as it was.
async fn interests(place: Place<'_>) {
    let start = place.current().await;
    let mut by_key = place.watch_for(Interest::key(place.key("a")), start).await;
    let on_n2 = Interest::prefix(place.prefix()).with_field("spec.nodeName", "n2");
    let mut by_node = place.watch_for(on_n2, start).await;
    let put = async |name: &str, node: &str, value: &str| {
        let op = Op::Put {
            record: record(name, node, value),
            ttl: None,
        };
        let write = Write {
            key: place.key(name),
            expect: Expect::Any,
            op,
        };
        place.storage().commit(vec![write]).await.unwrap();
    };
    put("a", "n1", "1").await;
    put("aa", "n2", "2").await;
    put("a", "n2", "3").await;
    put("a", "n1", "4").await;
    put("a", "n1", "5").await;
    place.remove("aa").await;
    let values = |told: Vec<(Revision, String)>| told.into_iter().map(|(_, value)| value).collect::<Vec<_>>();
    assert_eq!(values(told(&mut by_key, 4).await), ["1", "3", "4", "5"]);
    assert_eq!(values(told(&mut by_node, 4).await), ["2", "3", "4", "-"]);
}

/// Sixteen tasks count together through compare-and-write: no count is lost, and a watch sees each once.
async fn racing(place: Place<'_>) {
    const TASKS: usize = 16;
    const COUNTS: usize = 10;
    let start = place.put("count", "0").await;
    let mut cursor = place.watch(start).await;
    let tasks = (0..TASKS).map(|_| {
        let (storage, key) = (Arc::clone(place.storage()), place.key("count"));
        place.subject.runtime.spawn("counter", async move {
            for _ in 0..COUNTS {
                increment(&*storage, &key).await;
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(place.get("count").await, Some((TASKS * COUNTS).to_string()));
    let seen: Vec<String> = told(&mut cursor, TASKS * COUNTS)
        .await
        .into_iter()
        .map(|(_, value)| value)
        .collect();
    let each: Vec<String> = (1..=TASKS * COUNTS).map(|count| count.to_string()).collect();
    assert_eq!(seen, each);
}

async fn increment(storage: &dyn Storage, key: &Key) {
    let mut current = storage.get(key, ReadAt::Latest).await.unwrap().entry.unwrap();
    loop {
        let count: usize = value(&current.record).parse().unwrap();
        let next = record("count", "n1", &(count + 1).to_string());
        match storage
            .commit(vec![Write::update(key.clone(), current.revision, next)])
            .await
        {
            Ok(_) => return,
            Err(StorageError::Conflict {
                current: Some(newer), ..
            }) => current = newer,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Eight writers, ten watchers of different interest, bite and pace: each is told its part of the one order, no position
/// is ahead of what was told, nothing comes late or twice.
async fn ordering(place: Place<'_>) {
    const WRITERS: u64 = 8;
    const WRITES: u64 = 20;
    let (start, runtime) = (place.put("start", "0").await, &place.subject.runtime);
    let interests = [
        Interest::prefix(place.prefix()),
        Interest::prefix(place.prefix()).with_field("spec.nodeName", "n1"),
        Interest::key(place.key("k1")),
    ];
    let mut all = place.watch(start).await;
    let mut watchers = Vec::new();
    for watcher in 0..10 {
        let interest = interests[watcher % 3].clone();
        let cursor = place.watch_for(interest.clone(), start).await;
        watchers.push(runtime.spawn("watcher", follow(runtime.clone(), cursor, interest, watcher)));
    }
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (storage, own, keys) = (
                Arc::clone(place.storage()),
                runtime.clone(),
                [0, 1, 2].map(|key| place.key(&format!("k{key}"))),
            );
            runtime.spawn("writer", async move {
                for _ in 0..WRITES {
                    let (key, node) = (&keys[pick(&own, 3)], ["n1", "n2"][pick(&own, 2)]);
                    let op = Op::Put {
                        record: record("k", node, &writer.to_string()),
                        ttl: None,
                    };
                    storage
                        .commit(vec![Write {
                            key: key.clone(),
                            expect: Expect::Any,
                            op,
                        }])
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    for key in ["k0", "k1", "k2"] {
        place.put(key, "end").await;
    }
    let mut order = Vec::new();
    while order.len() < usize::try_from(WRITERS * WRITES).unwrap() + 3 {
        order.extend(all.next_batch(100).await.unwrap());
    }
    for watcher in watchers {
        let (interest, told) = watcher.await.unwrap();
        let expected: Vec<_> = order
            .iter()
            .filter(|event| interest.matches(event))
            .cloned()
            .collect();
        assert_eq!(told, expected[..told.len()], "{interest:?}");
        assert!(
            told.len() + 3 > expected.len(),
            "only changes after the last one it waits for are missing"
        );
    }
}

fn pick(runtime: &Runtime, count: usize) -> usize {
    usize::try_from(runtime.random_u64()).unwrap() % count
}

/// Follows a cursor at a pace of its own until an object has ended; what it was told.
async fn follow(
    runtime: Runtime,
    mut cursor: Box<dyn WatchCursor>,
    interest: Interest,
    bite: usize,
) -> (Interest, Vec<Arc<crate::Event>>) {
    let (mut told, mut position) = (Vec::new(), Revision::ZERO);
    loop {
        for event in cursor.next_batch(bite + 1).await.unwrap() {
            assert!(
                event.revision > position,
                "a change comes after a position said that all were told"
            );
            let ends = event
                .entry
                .as_ref()
                .is_some_and(|entry| value(&entry.record) == "end");
            told.push(event);
            if ends {
                return (interest, told);
            }
        }
        assert!(cursor.position() >= position, "a position never goes back");
        position = cursor.position();
        assert!(told.last().is_none_or(|last| position >= last.revision));
        if runtime.random_u64().is_multiple_of(4) {
            runtime
                .sleep(Duration::from_millis(runtime.random_u64() % 5))
                .await;
        }
    }
}

/// What has a time to live goes by an ordinary change; what is written again without one stays.
async fn expiry(place: Place<'_>) {
    let start = place.current().await;
    let mut cursor = place.watch(start).await;
    let put = |name: &str, ttl| Write {
        key: place.key(name),
        expect: Expect::Any,
        op: Op::Put {
            record: record(name, "n1", name),
            ttl,
        },
    };
    let soon = Some(Duration::from_secs(1));
    place.storage().commit(vec![put("kept", soon)]).await.unwrap();
    place.storage().commit(vec![put("kept", None)]).await.unwrap();
    place.storage().commit(vec![put("gone", soon)]).await.unwrap();
    let told = told(&mut cursor, 4).await;
    assert_eq!(told[3].1, "-");
    assert_eq!(
        (place.get("gone").await, place.get("kept").await),
        (None, Some("kept".to_owned()))
    );
}

async fn limits(place: Place<'_>) {
    let twice = vec![
        place.write("a", Expect::Any, Some("1")),
        place.write("a", Expect::Any, Some("2")),
    ];
    for group in [vec![], twice] {
        let refused = place.storage().commit(group).await;
        assert!(
            matches!(refused, Err(StorageError::InvalidGroup(_))),
            "{refused:?}"
        );
    }
    let large = "x".repeat(crate::write::MAX_RECORD_BYTES);
    let refused = place
        .storage()
        .commit(vec![place.write("a", Expect::Any, Some(&large))])
        .await;
    assert!(matches!(refused, Err(StorageError::TooLarge { .. })));
    let fat = "y".repeat(1 << 20);
    place.put("fat", &fat).await;
    assert_eq!(place.get("fat").await, Some(fat));
}

/// What is older than the floor is gone for reads and watches; everything else goes on.
async fn compaction(place: Place<'_>) {
    let old = place.put("a", "1").await;
    let mut idle = place.watch_for(Interest::key(place.key("quiet")), old).await;
    let mut slow = place.watch(Revision(old.0 - 1)).await;
    let mut floor = place.put("a", "2").await;
    let mut all = vec![old, floor];
    for step in 0..5 {
        floor = place.put("b", &step.to_string()).await;
        all.push(floor);
    }
    let newest = place.put("a", "3").await;
    place.storage().compact(floor).await.unwrap();
    place.storage().compact(old).await.ok();
    assert_eq!(place.storage().compacted_revision().await.unwrap(), floor);
    let read = place
        .list(RangeOptions {
            at: ReadAt::Exact(old),
            ..RangeOptions::default()
        })
        .await;
    assert!(matches!(read, Err(StorageError::Compacted { .. })), "{read:?}");
    let request = WatchRequest {
        interests: vec![Interest::prefix(place.prefix())],
        after: old,
    };
    match place.storage().watch(request).await {
        Err(StorageError::Compacted { .. }) => {}
        // A remote store may say it with the first answer.
        Ok(mut cursor) => assert!(matches!(
            cursor.next_batch(1).await,
            Err(StorageError::Compacted { .. })
        )),
        Err(other) => panic!("{other}"),
    }
    let at_floor = RangeOptions {
        at: ReadAt::Exact(floor),
        ..RangeOptions::default()
    };
    assert_eq!(place.list(at_floor).await.unwrap().0, ["2", "4"]);
    assert_eq!(
        told(&mut place.watch(floor).await, 1).await,
        [(newest, "3".to_owned())]
    );
    let woken = place.put("quiet", "still here").await;
    assert_eq!(told(&mut idle, 1).await[0].0, woken);
    // A slow watch is told everything in order, or at some point that it is too late; never a part without a word.
    all.extend([newest, woken]);
    let mut told = Vec::new();
    while told.last() != Some(&woken) {
        match slow.next_batch(100).await {
            Err(StorageError::Compacted { .. }) => break,
            Ok(events) => told.extend(events.iter().map(|event| event.revision)),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(told, all[..told.len()]);
}

async fn closing(place: Place<'_>) {
    place.put("a", "1").await;
    let mut cursor = place.watch(place.current().await).await;
    place.storage().close().await;
    let ended = cursor.next_batch(1).await;
    assert!(matches!(ended, Err(StorageError::Closed)), "{ended:?}");
    let refused = place
        .storage()
        .commit(vec![place.write("a", Expect::Any, Some("2"))])
        .await;
    assert!(
        matches!(
            refused,
            Err(StorageError::Unavailable(_) | StorageError::Unreachable { .. } | StorageError::Closed)
        ),
        "{refused:?}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogOptions, LogStorage};
    use machinery_runtime::Simulation;

    fn subject(storage: LogStorage, runtime: Runtime) -> Subject {
        Subject {
            storage: Arc::new(storage),
            runtime,
            one_revision_per_group: false,
        }
    }

    #[tokio::test]
    async fn the_log_in_memory() {
        let runtime = Runtime::real();
        all(&subject(LogStorage::memory(&runtime).await.unwrap(), runtime)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_log_on_disk() {
        let (runtime, dir) = (Runtime::real(), tempfile::tempdir().unwrap());
        let (storage, _) = LogStorage::open(&runtime, LogOptions::new(dir.path()))
            .await
            .unwrap();
        all(&subject(storage, runtime)).await;
    }

    /// With a history of nothing, so that every catching up reads the log.
    #[test]
    fn the_log_in_simulations() {
        for seed in 0..4 {
            let simulation = Simulation::new(seed);
            let runtime = simulation.runtime();
            simulation.run(async move {
                let small = LogOptions {
                    history_bytes: 0,
                    segment_bytes: 4 << 10,
                    checkpoint_bytes: 4 << 10,
                    reserve_bytes: 64 << 10,
                    retention: Duration::ZERO,
                    ..LogOptions::new("/data")
                };
                let (storage, _) = LogStorage::open(&runtime, small).await.unwrap();
                all(&subject(storage, runtime)).await;
            });
        }
    }
}
