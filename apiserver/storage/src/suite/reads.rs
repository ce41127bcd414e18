//! Reads: pages of a list, states of the past, and records in another form.

use super::watches::delivered;
use super::{KeySpace, record, value};
use crate::{RangeOptions, ReadAt, Revision, StorageError};

/// A list read in pages is one list, whatever happens meanwhile.
pub(super) async fn paging(place: KeySpace<'_>) {
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
    let sample = place.storage().sample(&place.prefix(), 3).unwrap();
    assert_eq!((sample.count, sample.average_bytes > 0), (5, true));
    let (entries, revision) = place.storage().entries_in_memory(&place.prefix()).unwrap();
    let values: Vec<String> = entries.iter().map(|entry| value(&entry.record)).collect();
    assert_eq!((values, revision >= page.revision), (all, true));
}

/// Exact, not before, and the future.
pub(super) async fn past_states(place: KeySpace<'_>) {
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

/// A record in another form is read in the place of the first until the entry changes; no watcher sees it.
pub(super) async fn recaching(place: KeySpace<'_>) {
    let first = place.put("a", "first").await;
    let mut cursor = place.watch(first).await;
    assert_eq!(place.get("a").await.as_deref(), Some("first"));
    let recache = |name: &str, revision| {
        let renewed = record(name, "n1", "renewed");
        place.storage().recache(&place.key(name), revision, renewed)
    };
    assert!(recache("a", first), "the entry is in memory");
    let found = place
        .storage()
        .get(&place.key("a"), ReadAt::Latest)
        .await
        .unwrap();
    let found = found.entry.unwrap();
    assert_eq!(
        (value(&found.record), found.revision),
        ("renewed".to_owned(), first)
    );
    let second = place.put("a", "second").await;
    assert_eq!(place.get("a").await.as_deref(), Some("second"));
    assert!(!recache("a", first), "the entry has moved on");
    assert!(!recache("absent", first));
    assert_eq!(place.get("a").await.as_deref(), Some("second"));
    assert_eq!(delivered(&mut cursor, 1).await, [(second, "second".to_owned())]);
}
