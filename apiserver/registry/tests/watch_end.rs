//! Ends of watches.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_registry::options::WatchOptions;
use apiserver_registry::{Registry, Scope, kinds};
use apiserver_storage::{LogStorage, Revision, Storage};
use machinery_runtime::Runtime;
use std::sync::Arc;

#[tokio::test]
async fn watch_of_a_server_that_stops_ends_without_an_error() {
    let runtime = Runtime::real();
    let storage: Arc<dyn Storage> = Arc::new(LogStorage::memory(&runtime).await.unwrap());
    let registry = Registry::new(Arc::clone(&storage), runtime, kinds::built_in());
    let store = registry.preferred_store("", "configmaps").unwrap();
    let options = WatchOptions {
        since: Some(Revision::ZERO),
        ..WatchOptions::default()
    };
    let mut watcher = store.watch(&Scope::Cluster, &options).await.unwrap();
    assert!(watcher.initial_events().is_empty());
    storage.close().await;
    let last = watcher.next().await;
    assert!(last.is_empty(), "{last:?}");
}
