//! Upkeep: expiry and compaction.

use super::{KeySpace, record, watches::delivered};
use crate::{Expect, Op, RangeOptions, ReadAt, Revision, StorageError, WatchFilter, WatchRequest, Write};
use std::time::Duration;

/// An object with a time to live expires by an ordinary change; one that is written again without it stays.
pub(super) async fn expiry(place: KeySpace<'_>) {
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
    // On a busy machine the first one's time may be over before the second write: there is a deletion more then.
    while delivered(&mut cursor, 1).await[0].1 != "gone" {}
    assert_eq!(delivered(&mut cursor, 1).await[0].1, "-");
    assert_eq!(
        (place.get("gone").await, place.get("kept").await),
        (None, Some("kept".to_owned()))
    );
}

/// History before the floor is gone for reads and watches; everything else goes on.
pub(super) async fn compaction(place: KeySpace<'_>) {
    let old = place.put("a", "1").await;
    let mut idle = place.watch_for(WatchFilter::key(place.key("quiet")), old).await;
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
        interests: vec![WatchFilter::prefix(place.prefix())],
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
        delivered(&mut place.watch(floor).await, 1).await,
        [(newest, "3".to_owned())]
    );
    let woken = place.put("quiet", "still here").await;
    assert_eq!(delivered(&mut idle, 1).await[0].0, woken);
    // A slow watch gets everything in order, or at some point the error that it is too late; never a part without an error.
    all.extend([newest, woken]);
    let mut delivered = Vec::new();
    while delivered.last() != Some(&woken) {
        match slow.next_batch(100).await {
            Err(StorageError::Compacted { .. }) => break,
            Ok(events) => delivered.extend(events.iter().map(|event| event.revision)),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(delivered, all[..delivered.len()]);
}
