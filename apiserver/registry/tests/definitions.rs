//! Definitions that were stored before a rule was: they can be changed as far as they keep it, and deleted.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod undeletable;

use apiserver_registry::options::{DeleteOptions, RevisionMatch, UpdateOptions};
use apiserver_registry::{
    Door, ObjectPart, Registry, RegistryError, Replacement, RequestContext, Scope, Store, SystemDoors,
    SystemWriter, Target, custom, kinds,
};
use apiserver_storage::{Key, LogStorage, Storage, Write};
use machinery_meta::UserInfo;
use machinery_runtime::{Runtime, Simulation};
use machinery_schema::{Strictness, Tree, apply_defaults, decode_json};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use undeletable::Undeletable;

const NAME: &str = "boats.knarr.test";

struct World {
    runtime: Runtime,
    definitions: Store,
    registry: Registry,
    storage: Arc<Undeletable>,
    /// Skips admission.
    door: Door<'static>,
    ctx: RequestContext,
}

fn story<S>(tell: impl FnOnce(World) -> S + Send + 'static)
where
    S: Future<Output = ()> + Send + 'static,
{
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let storage = Arc::new(Undeletable::new(LogStorage::memory(&runtime).await.unwrap()));
        storage.refuses.store(false, Ordering::Relaxed);
        let shared: Arc<dyn Storage> = storage.clone();
        let registry = Registry::new(shared.clone(), runtime.clone(), kinds::built_in());
        let user = UserInfo::named("tester", [UserInfo::MASTERS]);
        let world = World {
            definitions: registry
                .store("apiextensions.k8s.io", "v1", "customresourcedefinitions")
                .unwrap(),
            ctx: RequestContext::internal(user, runtime.clone()),
            door: SystemDoors::of(&shared).door(SystemWriter::Startup),
            storage,
            registry,
            runtime,
        };
        tell(world).await;
    });
}

/// A definition that was served once, with versions of these names.
fn definition(versions: &[String]) -> Value {
    let version = |(at, name): (usize, &String)| {
        json!({"name": name, "served": true, "storage": at == 0,
            "schema": {"openAPIV3Schema": {"type": "object"}}})
    };
    let names = json!({"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME, "uid": "u", "creationTimestamp": "2026-11-23T00:00:00Z",
            "finalizers": ["customresourcecleanup.apiextensions.k8s.io"]},
        "spec": {"group": "knarr.test", "scope": "Namespaced", "names": names,
            "versions": versions.iter().enumerate().map(version).collect::<Vec<_>>()},
        "status": {"acceptedNames": names, "storedVersions": [versions[0]], "conditions": [
            {"type": "Established", "status": "True"}, {"type": "NamesAccepted", "status": "True"}]},
    })
}

fn numbered(count: usize) -> Vec<String> {
    (1..=count).map(|at| format!("v{at}")).collect()
}

impl World {
    fn tree(&self, object: &Value) -> Tree {
        let (row, text) = (&self.definitions.row, object.to_string());
        let decoded = decode_json(&row.schema, row.ty, text.as_bytes(), Strictness::Report).unwrap();
        let mut tree = decoded.tree;
        apply_defaults(&mut tree);
        row.strategy.defaults(&mut tree);
        tree
    }

    /// Stores a definition as a server without today's rules did, and starts on it.
    async fn start_on(&self, object: &Value) {
        let record = self.definitions.encode(&self.tree(object)).unwrap();
        let key = Key::parse(&self.definitions.row.key("", NAME)).unwrap();
        self.storage
            .commit(vec![Write::create(key, record)])
            .await
            .unwrap();
        custom::start(&self.registry).await.unwrap();
    }

    async fn update(&self, object: &Value) -> Result<(), RegistryError> {
        let mut tree = self.tree(object);
        let live = self
            .definitions
            .get(&Scope::Cluster, NAME, RevisionMatch::MostRecent)
            .await?;
        tree.set_str(&["metadata", "resourceVersion"], &live.revision.to_string());
        let target = Target {
            scope: &Scope::Cluster,
            name: NAME,
            part: ObjectPart::Main,
        };
        let (change, options) = (Replacement(tree), UpdateOptions::default());
        let written = self
            .definitions
            .update(&self.ctx, target, &change, &options, self.door);
        written.await.map(drop)
    }

    async fn delete(&self) {
        let options = DeleteOptions::default();
        let deleted = self
            .definitions
            .delete(&self.ctx, &Scope::Cluster, NAME, &options, self.door);
        deleted.await.unwrap();
    }

    /// Waits until the definition is gone.
    async fn gone(&self) {
        let key = Key::parse(&self.definitions.row.key("", NAME)).unwrap();
        for _ in 0..1_000 {
            if self.storage.stored_revision(&key).await.unwrap().is_none() {
                return;
            }
            self.runtime.sleep(Duration::from_secs(1)).await;
        }
        panic!("the definition stays");
    }
}

#[test]
fn definition_of_too_many_versions_keeps_those_and_gets_no_more() {
    story(async |world| {
        world.start_on(&definition(&numbered(103))).await;
        let mut labelled = definition(&numbered(103));
        labelled["metadata"]["labels"] = json!({"a": "b"});
        world.update(&labelled).await.unwrap();
        let more = world.update(&definition(&numbered(104))).await;
        assert!(matches!(more, Err(RegistryError::Invalid { .. })), "{more:?}");
        world.update(&definition(&numbered(102))).await.unwrap();
        let back = world.update(&definition(&numbered(103))).await;
        assert!(matches!(back, Err(RegistryError::Invalid { .. })), "{back:?}");
        world.delete().await;
        world.gone().await;
    });
}

#[test]
fn definition_that_breaks_a_later_rule_is_deleted() {
    story(async |world| {
        world.start_on(&definition(&["V 1".to_owned()])).await;
        world.delete().await;
        world.gone().await;
    });
}

#[test]
fn definition_cleanup_backs_off_after_errors() {
    story(async |world| {
        world.start_on(&definition(&numbered(1))).await;
        world.storage.refuses.store(true, Ordering::Relaxed);
        world.delete().await;
        world.runtime.sleep(Duration::from_hours(1)).await;
        let refused = world.storage.refused.load(Ordering::Relaxed);
        assert!((10..30).contains(&refused), "{refused} attempts within an hour");
        world.storage.refuses.store(false, Ordering::Relaxed);
        world.gone().await;
    });
}
