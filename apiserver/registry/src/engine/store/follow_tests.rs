//! Loops over the objects of a resource.

use super::*;
use crate::kinds;
use apiserver_storage::LogStorage;
use machinery_meta::Predicate;
use machinery_runtime::Runtime;
use machinery_schema::{Strictness, decode_json};
use std::time::Duration;

struct World {
    registry: Registry,
    store: Store,
}

impl World {
    async fn new() -> Self {
        let runtime = Runtime::real();
        let storage: Arc<dyn Storage> = Arc::new(LogStorage::memory(&runtime).await.unwrap());
        let registry = Registry::new(storage, runtime, kinds::built_in());
        let store = registry.store("", "v1", "configmaps").unwrap();
        Self { registry, store }
    }

    fn key(&self, name: &str) -> Key {
        self.store.key(&Scope::of("ours"), name).unwrap()
    }

    async fn create(&self, name: &str) {
        let text = format!(
            r#"{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "{name}", "namespace": "ours"}}}}"#
        );
        let row = &self.store.row;
        let object = decode_json(&row.schema, row.ty, text.as_bytes(), Strictness::Report).unwrap();
        let write = Write::create(self.key(name), self.store.encode(&object.tree).unwrap());
        self.registry.storage().commit(vec![write]).await.unwrap();
    }

    async fn delete(&self, name: &str) {
        let key = self.key(name);
        let entry = self.store.read_entry(&key).await.unwrap().unwrap();
        let write = Write::delete(key, entry.revision);
        self.registry.storage().commit(vec![write]).await.unwrap();
    }

    fn follower(&self) -> Follower {
        self.store
            .follow(Scope::of("ours"), Predicate::default(), Duration::ZERO)
    }
}

fn name(entry: &Entry) -> String {
    entry.record.header.key.name.to_string()
}

/// The next of a follower in short: `=` before all names, `+` and `-` before those of changes.
async fn next(follower: &mut Follower) -> Vec<String> {
    match follower.next().await {
        Followed::All(entries) => entries.iter().map(|entry| format!("={}", name(entry))).collect(),
        Followed::Changes(changes) => changes
            .iter()
            .map(|change| match change {
                ObjectChange::Set(entry) => format!("+{}", name(entry)),
                ObjectChange::Gone(entry) => format!("-{}", name(entry)),
            })
            .collect(),
    }
}

#[tokio::test]
async fn follower_delivers_all_objects_then_changes_then_all_that_are_left() {
    let world = World::new().await;
    world.create("a").await;
    let mut follower = world.follower();
    assert_eq!(next(&mut follower).await, ["=a"]);
    world.create("b").await;
    assert_eq!(next(&mut follower).await, ["+b"]);
    world.delete("a").await;
    assert_eq!(next(&mut follower).await, ["-a"]);
    world.create("c").await;
    world.delete("b").await;
    follower.begin_again();
    assert_eq!(next(&mut follower).await, ["=c"]);
    world.delete("c").await;
    assert_eq!(next(&mut follower).await, ["-c"]);
}

#[tokio::test]
async fn follower_that_has_begun_delivers_what_comes_after() {
    let world = World::new().await;
    world.create("a").await;
    let mut follower = world.follower();
    assert_eq!(follower.begin().await.unwrap().len(), 1);
    world.create("b").await;
    assert_eq!(next(&mut follower).await, ["+b"]);
}
