//! Writes: what they expect, groups of them, races and limits.

use super::{KeySpace, record, value, watches::delivered};
use crate::{Expect, Key, Op, ReadAt, Revision, Storage, StorageError, Write};
use std::sync::Arc;

/// Every expectation against what is absent, there, and there at another revision.
pub(super) async fn expectations(place: KeySpace<'_>) {
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
pub(super) async fn groups(place: KeySpace<'_>) {
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
    let seen: Vec<String> = delivered(&mut cursor, 2)
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

/// Sixteen tasks count together through compare-and-write: no count is lost, and a watch sees each once.
pub(super) async fn racing(place: KeySpace<'_>) {
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
    let seen: Vec<String> = delivered(&mut cursor, TASKS * COUNTS)
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

pub(super) async fn limits(place: KeySpace<'_>) {
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
