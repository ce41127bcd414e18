//! Events expire an hour after the last write of them, however they were written.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod undeletable;

use apiserver_registry::options::{CreateOptions, DeleteOptions, RevisionMatch, UpdateOptions};
use apiserver_registry::store::early_expiry::{self, ExpiryBounds};
use apiserver_registry::store::expiry;
use apiserver_registry::{
    Door, ObjectPart, Registry, Replacement, RequestContext, Scope, Store, SystemDoors, SystemWriter, Target,
    kinds,
};
use apiserver_storage::{Key, LogStorage, Prefix, Storage, Write};
use machinery_meta::UserInfo;
use machinery_runtime::{Runtime, Simulation};
use machinery_schema::{Strictness, Tree, apply_defaults, decode_json};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use undeletable::Undeletable;

const MINUTE: Duration = Duration::from_secs(60);

fn scope() -> Scope {
    Scope::of("default")
}

struct World {
    runtime: Runtime,
    events: Store,
    registry: Registry,
    storage: Arc<dyn Storage>,
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
        let storage: Arc<dyn Storage> = Arc::new(LogStorage::memory(&runtime).await.unwrap());
        let registry = Registry::new(storage.clone(), runtime.clone(), kinds::built_in());
        let user = UserInfo::named("tester", [UserInfo::MASTERS]);
        let world = World {
            events: registry.preferred_store("", "events").unwrap(),
            ctx: RequestContext::internal(user, runtime.clone()),
            door: SystemDoors::of(&storage).door(SystemWriter::Startup),
            storage,
            registry,
            runtime,
        };
        tell(world).await;
    });
}

fn event_of(events: &Store, count: i32, finalizers: &[&str]) -> Tree {
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "count": count, "reason": "Pulled",
        "metadata": {"name": "e", "namespace": "default", "finalizers": finalizers},
        "involvedObject": {"namespace": "default", "name": "web", "kind": "Pod"}
    });
    let row = &events.row;
    let bytes = event.to_string();
    let decoded = decode_json(&row.schema, row.ty, bytes.as_bytes(), Strictness::Report);
    let mut tree = decoded.unwrap().tree;
    apply_defaults(&mut tree);
    tree
}

impl World {
    fn event(&self, count: i32, finalizers: &[&str]) -> Tree {
        event_of(&self.events, count, finalizers)
    }

    async fn create(&self, finalizers: &[&str]) {
        let (event, options) = (self.event(1, finalizers), CreateOptions::default());
        let scope = scope();
        let made = self.events.create(&self.ctx, &scope, event, &options, self.door);
        made.await.unwrap();
    }

    async fn update(&self, count: i32) {
        let scope = scope();
        let target = Target {
            scope: &scope,
            name: "e",
            part: ObjectPart::Main,
        };
        let (event, options) = (Replacement(self.event(count, &[])), UpdateOptions::default());
        let written = self.events.update(&self.ctx, target, &event, &options, self.door);
        written.await.unwrap();
    }

    /// An event as the versions before this one left it: without a time to live.
    async fn smuggle(&self) {
        let record = self.events.encode(&self.event(1, &[])).unwrap();
        let key = Key::parse(&self.events.row.key("default", "e")).unwrap();
        let write = Write::create(key, record);
        self.storage.commit(vec![write]).await.unwrap();
    }

    async fn is_there(&self) -> bool {
        self.events
            .get(&scope(), "e", RevisionMatch::MostRecent)
            .await
            .is_ok()
    }

    async fn wait(&self, minutes: u32) {
        self.runtime.sleep(MINUTE * minutes).await;
    }
}

#[test]
fn event_updated_again_and_again_expires_an_hour_after_the_last_update() {
    story(async |world: World| {
        world.create(&[]).await;
        for count in 2..5 {
            world.wait(50).await;
            world.update(count).await;
        }
        world.wait(50).await;
        assert!(world.is_there().await, "the last update was 50 minutes ago");
        world.wait(70).await;
        assert!(!world.is_there().await, "the last update was two hours ago");
    });
}

#[test]
fn event_marked_as_deleted_expires() {
    story(async |world: World| {
        world.create(&["example.com/hold"]).await;
        let options = DeleteOptions::default();
        let scope = scope();
        let deleted = world.events.delete(&world.ctx, &scope, "e", &options, world.door);
        deleted.await.unwrap();
        assert!(world.is_there().await, "the finalizer holds it");
        world.wait(120).await;
        assert!(!world.is_there().await);
    });
}

#[test]
fn event_stored_without_time_to_live_is_given_one_by_the_sweep() {
    story(async |world: World| {
        world.smuggle().await;
        world.wait(120).await;
        assert!(world.is_there().await);
        assert_eq!(expiry::sweep(&world.registry).await.unwrap(), 1);
        assert_eq!(expiry::sweep(&world.registry).await.unwrap(), 0);
        assert!(world.is_there().await);
        world.wait(120).await;
        assert!(!world.is_there().await);
    });
}

/// Deletions fail for an hour: reads of all events become rare, and the bound is kept as soon as deletions succeed.
#[test]
fn events_are_read_seldom_while_their_deletions_fail() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let inner = LogStorage::memory(&runtime).await.unwrap();
        let storage = Arc::new(Undeletable::new(inner));
        let shared: Arc<dyn Storage> = storage.clone();
        let registry = Registry::new(shared.clone(), runtime.clone(), kinds::built_in());
        let events = registry.preferred_store("", "events").unwrap();
        for at in 0..30 {
            let record = events.encode(&event_of(&events, 1, &[])).unwrap();
            let key = Key::parse(&events.row.key("default", &format!("e{at:02}"))).unwrap();
            shared.commit(vec![Write::create(key, record)]).await.unwrap();
        }
        let bounds = ExpiryBounds {
            objects: 20,
            bytes: 0,
        };
        early_expiry::start(&registry, bounds, &(Arc::new(|| {}) as _));
        runtime.sleep(60 * MINUTE).await;
        let reads = storage.reads.load(Ordering::Relaxed);
        assert!((60..70).contains(&reads), "{reads} reads in an hour");
        storage.refuses.store(false, Ordering::Relaxed);
        runtime.sleep(2 * MINUTE).await;
        let prefix = Prefix::parse("/registry/events/").unwrap();
        assert_eq!(shared.count(&prefix).await.unwrap(), 20);
    });
}
