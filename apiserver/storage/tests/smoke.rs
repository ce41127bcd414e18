//! The first look: a store in memory serves writes, reads and watches.

use apiserver_storage::{
    Expect, Interest, Key, LogStorage, ObjectHeader, Op, Prefix, RangeOptions, ReadAt, Record, Revision,
    Storage, StorageError, WatchRequest, Write,
};
use bytes::Bytes;
use machinery_runtime::Runtime;
use std::sync::Arc;

fn record(text: &str) -> Record {
    let parts = [
        Bytes::from_static(b"{"),
        Bytes::copy_from_slice(text.as_bytes()),
        Bytes::from_static(b"}"),
    ];
    Record {
        parts,
        fingerprint: 7,
        header: Arc::new(ObjectHeader::default()),
    }
}

#[tokio::test]
async fn a_store_in_memory_serves() {
    let storage = LogStorage::memory(&Runtime::real()).await.unwrap();
    let (key, pods) = (
        Key::parse("/registry/pods/a/one").unwrap(),
        Prefix::parse("/registry/pods/").unwrap(),
    );
    let request = WatchRequest {
        interests: vec![Interest::prefix(pods.clone())],
        after: Revision::ZERO,
    };
    let mut cursor = storage.watch(request).await.unwrap();
    let created = storage
        .commit(vec![Write::create(key.clone(), record("1"))])
        .await
        .unwrap();
    assert_eq!(created[0].revision, Revision(1));
    let again = storage
        .commit(vec![Write::create(key.clone(), record("2"))])
        .await;
    assert!(matches!(
        again,
        Err(StorageError::Conflict { current: Some(_), .. })
    ));
    storage
        .commit(vec![Write {
            key: key.clone(),
            expect: Expect::At(Revision(1)),
            op: Op::Delete,
        }])
        .await
        .unwrap();
    let told = cursor.next_batch(10).await.unwrap();
    assert_eq!(
        told.iter().map(|event| event.revision.0).collect::<Vec<_>>(),
        [1, 2]
    );
    assert_eq!(cursor.position(), Revision(2));
    assert!(storage.get(&key, ReadAt::Latest).await.unwrap().entry.is_none());
    let options = RangeOptions {
        at: ReadAt::Exact(Revision(1)),
        ..RangeOptions::default()
    };
    assert_eq!(storage.range(&pods, &options).await.unwrap().entries.len(), 1);
    storage.close().await;
}
