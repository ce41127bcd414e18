//! Watches: their order, their interests, and their end.

use super::{KeySpace, record, value};
use crate::{Expect, Op, Revision, StorageError, WatchCursor, WatchFilter, WatchRequest, Write};
use machinery_runtime::Runtime;
use std::sync::Arc;
use std::time::Duration;

/// `revision name value` of the next `count` changes; `-` for a deletion.
pub(super) async fn delivered(cursor: &mut Box<dyn WatchCursor>, count: usize) -> Vec<(Revision, String)> {
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

/// Watches from now, from before, and in small bites: the same order, nothing missing, nothing twice.
pub(super) async fn watching(place: KeySpace<'_>) {
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
    assert_eq!(delivered(&mut live, 30).await, expected);
    assert_eq!(delivered(&mut place.watch(start).await, 30).await, expected);
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
        interests: vec![WatchFilter::prefix(place.prefix())],
        after: Revision(u64::MAX >> 2),
    };
    let future = place.storage().watch(future).await;
    assert!(matches!(future, Err(StorageError::Future { .. })));
}

/// Checks interests by key, and by a field as it is or as it was.
pub(super) async fn interests(place: KeySpace<'_>) {
    let start = place.current().await;
    let mut by_key = place.watch_for(WatchFilter::key(place.key("a")), start).await;
    let on_n2 = WatchFilter::prefix(place.prefix()).with_field("spec.nodeName", "n2");
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
    let values = |delivered: Vec<(Revision, String)>| {
        delivered.into_iter().map(|(_, value)| value).collect::<Vec<_>>()
    };
    assert_eq!(values(delivered(&mut by_key, 4).await), ["1", "3", "4", "5"]);
    assert_eq!(values(delivered(&mut by_node, 4).await), ["2", "3", "4", "-"]);
}

/// Eight writers, ten watchers of different interest, bite and pace: each gets its part of the one order, no position
/// is ahead of what was delivered, nothing comes late or twice.
pub(super) async fn ordering(place: KeySpace<'_>) {
    const WRITERS: u64 = 8;
    const WRITES: u64 = 20;
    let (start, runtime) = (place.put("start", "0").await, &place.subject.runtime);
    let interests = [
        WatchFilter::prefix(place.prefix()),
        WatchFilter::prefix(place.prefix()).with_field("spec.nodeName", "n1"),
        WatchFilter::key(place.key("k1")),
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
        let (interest, delivered) = watcher.await.unwrap();
        let expected: Vec<_> = order
            .iter()
            .filter(|event| interest.matches(event))
            .cloned()
            .collect();
        assert_eq!(delivered, expected[..delivered.len()], "{interest:?}");
        assert!(
            delivered.len() + 3 > expected.len(),
            "only changes after the last one it waits for are missing"
        );
    }
}

fn pick(runtime: &Runtime, count: usize) -> usize {
    usize::try_from(runtime.random_u64()).unwrap() % count
}

/// Follows a cursor at a pace of its own until an object has ended; returns what it received.
async fn follow(
    runtime: Runtime,
    mut cursor: Box<dyn WatchCursor>,
    interest: WatchFilter,
    bite: usize,
) -> (WatchFilter, Vec<Arc<crate::Event>>) {
    let (mut delivered, mut position) = (Vec::new(), Revision::ZERO);
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
            delivered.push(event);
            if ends {
                return (interest, delivered);
            }
        }
        assert!(cursor.position() >= position, "a position never goes back");
        position = cursor.position();
        assert!(delivered.last().is_none_or(|last| position >= last.revision));
        if runtime.random_u64().is_multiple_of(4) {
            runtime
                .sleep(Duration::from_millis(runtime.random_u64() % 5))
                .await;
        }
    }
}

pub(super) async fn closing(place: KeySpace<'_>) {
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
