//! Deletes of objects that another removes between a request's mark and its removal: a node does so with pods.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod undeletable;

use apiserver_registry::options::{CreateOptions, DeleteOptions, UpdateOptions};
use apiserver_registry::{
    Deleted, Door, ObjectPart, Registry, RegistryError, Replacement, RequestContext, Scope, Store,
    SystemDoors, SystemWriter, Target, kinds,
};
use apiserver_storage::{LogStorage, Storage};
use machinery_meta::UserInfo;
use machinery_runtime::Simulation;
use machinery_schema::{Strictness, Tree, apply_defaults, decode_json};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use undeletable::Undeletable;

struct World {
    registry: Registry,
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
        let storage = Undeletable::new(LogStorage::memory(&runtime).await.unwrap());
        storage.refuses.store(false, Ordering::Relaxed);
        storage.is_overtaken.store(true, Ordering::Relaxed);
        let shared: Arc<dyn Storage> = Arc::new(storage);
        let user = UserInfo::named("tester", [UserInfo::MASTERS]);
        tell(World {
            registry: Registry::new(shared.clone(), runtime.clone(), kinds::built_in()),
            ctx: RequestContext::internal(user, runtime),
            door: SystemDoors::of(&shared).door(SystemWriter::Startup),
        })
        .await;
    });
}

fn tree(store: &Store, object: &Value) -> Tree {
    let (row, text) = (&store.row, object.to_string());
    let decoded = decode_json(&row.schema, row.ty, text.as_bytes(), Strictness::Report).unwrap();
    let mut tree = decoded.tree;
    apply_defaults(&mut tree);
    row.strategy.defaults(&mut tree);
    tree
}

impl World {
    /// Creates a pod `a` on a node, whose grace period is zero.
    async fn pod(&self) -> Store {
        let pods = self.registry.preferred_store("", "pods").unwrap();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "i"}]}});
        let (scope, options) = (Scope::of("ours"), CreateOptions::default());
        let made = pods.create(&self.ctx, &scope, tree(&pods, &pod), &options, self.door);
        made.await.unwrap();
        pods
    }

    async fn delete(&self, pods: &Store, options: &DeleteOptions) -> Result<Deleted, RegistryError> {
        let scope = Scope::of("ours");
        pods.delete(&self.ctx, &scope, "a", options, self.door).await
    }
}

#[test]
fn pod_that_its_node_removed_after_the_mark_is_deleted() {
    story(async |world: World| {
        let pods = world.pod().await;
        let deleted = world.delete(&pods, &DeleteOptions::default()).await;
        let Ok(Deleted::Removed(object)) = deleted else {
            panic!("{deleted:?}");
        };
        let marked = object.at(&["metadata", "deletionTimestamp"]);
        assert!(marked.is_some(), "it is shown as it was last");
        let again = world.delete(&pods, &DeleteOptions::default()).await;
        assert!(again.unwrap_err().is_not_found(), "nothing was marked");
    });
}

#[test]
fn object_without_grace_that_another_removed_is_not_found() {
    story(async |world: World| {
        let maps = world.registry.preferred_store("", "configmaps").unwrap();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let (scope, options) = (Scope::of("ours"), CreateOptions::default());
        let made = maps.create(&world.ctx, &scope, tree(&maps, &map), &options, world.door);
        made.await.unwrap();
        let deleted = world.delete(&maps, &DeleteOptions::default()).await;
        assert!(deleted.unwrap_err().is_not_found());
    });
}

#[test]
fn last_finalizer_of_an_object_that_another_removed_goes() {
    story(async |world: World| {
        let maps = world.registry.preferred_store("", "configmaps").unwrap();
        let held = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "finalizers": ["example.com/hold"]}});
        let scope = Scope::of("ours");
        let options = CreateOptions::default();
        let made = maps.create(&world.ctx, &scope, tree(&maps, &held), &options, world.door);
        made.await.unwrap();
        world.delete(&maps, &DeleteOptions::default()).await.unwrap();
        let free = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let change = Replacement(tree(&maps, &free));
        let target = Target {
            scope: &scope,
            name: "a",
            part: ObjectPart::Main,
        };
        let options = UpdateOptions::default();
        let written = maps.update(&world.ctx, target, &change, &options, world.door);
        written.await.unwrap();
    });
}
