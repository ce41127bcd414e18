//! Objects of an older schema: converted once for all readers, in turns where they are large.

use super::controller::Definitions;
use super::definition;
use crate::engine::admission::{SystemDoors, SystemWriter};
use crate::engine::context::RequestContext;
use crate::engine::error::RegistryError;
use crate::engine::options::{CreateOptions, ListOptions, RevisionMatch, WatchOptions};
use crate::engine::registry::Registry;
use crate::engine::scope::Scope;
use crate::engine::store::{Followed, Store, WatchEvent, Written};
use crate::engine::version_webhook::{
    ConversionCall, ConversionCallError, ConversionCalls, ConversionOutcome,
};
use crate::kinds;
use apiserver_storage::{Entry, LogStorage, Storage, Write};
use async_trait::async_trait;
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;
use machinery_schema::{Ref, Strictness, Tree, decode_json};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const NAME: &str = "boats.knarr.test";
const BOATS: usize = 3;
/// A size beyond what is converted at once.
const LARGE: usize = 100 << 10;

struct World {
    runtime: Runtime,
    registry: Registry,
    storage: Arc<dyn Storage>,
}

impl World {
    async fn new() -> Self {
        let runtime = Runtime::real();
        let storage: Arc<dyn Storage> = Arc::new(LogStorage::memory(&runtime).await.unwrap());
        let registry = Registry::new(Arc::clone(&storage), runtime.clone(), kinds::built_in());
        Self {
            runtime,
            registry,
            storage,
        }
    }

    /// Serves boats with this definition's spec; the store of a version.
    fn serve(&self, versions: &Value, version: &str) -> Store {
        let names = json!({"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"});
        let webhook = json!({"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://hook"}});
        let definition = json!({
            "metadata": {"name": NAME},
            "spec": {"group": "knarr.test", "scope": "Namespaced", "names": names, "versions": versions,
                "conversion": {"strategy": "Webhook", "webhook": webhook}},
            "status": {"acceptedNames": names},
        });
        let definition = Tree::from_json(&definition.to_string()).unwrap();
        let changed = self.registry.set_custom(NAME, definition::form(&definition), || {
            definition::rows(&definition, self.registry.conversions())
        });
        assert!(changed);
        self.registry.store("knarr.test", version, "boats").unwrap()
    }

    /// Boats whose names have so many bytes in each of their flags.
    async fn fill(&self, store: &Store, bytes: usize) {
        for at in 0..BOATS {
            let boat = json!({"apiVersion": store.row.gvk.api_version(), "kind": "Boat",
                "metadata": {"name": format!("b{at}"), "namespace": "blue", "uid": "u"},
                "spec": {"flag": "r".repeat(bytes)}});
            let row = &store.row;
            let decoded = decode_json(
                &row.schema,
                row.ty,
                boat.to_string().as_bytes(),
                Strictness::Report,
            );
            let record = store.encode(&decoded.unwrap().tree).unwrap();
            let key = store.key(&Scope::of("blue"), &format!("b{at}")).unwrap();
            let written = self.storage.commit(vec![Write::create(key, record)]).await;
            written.unwrap();
        }
    }

    /// Turns among the heavy work that something takes.
    async fn turns<T>(&self, of: impl Future<Output = T>) -> (T, u64) {
        let before = self.runtime.heavy_figures().turns;
        let output = of.await;
        (output, self.runtime.heavy_figures().turns - before)
    }
}

fn version(name: &str, storage: bool, properties: &Value) -> Value {
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {
        "type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}}})
}

/// The one version, and the same with a default that what is stored has not.
fn forms() -> [Value; 2] {
    let flag = json!({"type": "string"});
    let with_sail = json!({"flag": flag, "sail": {"type": "string", "default": "square"}});
    [json!({"flag": flag}), with_sail].map(|properties| json!([version("v1", true, &properties)]))
}

async fn listed(store: &Store) -> Vec<Arc<Entry>> {
    let page = store.list(&Scope::of("blue"), &ListOptions::default()).await;
    page.unwrap().entries
}

fn sail(store: &Store, entry: &Entry) -> String {
    let boat = store.decode(entry).unwrap();
    boat.str_at(&["spec", "sail"]).to_owned()
}

fn are_same(left: &[Arc<Entry>], right: &[Arc<Entry>]) -> bool {
    left.len() == BOATS
        && left
            .iter()
            .zip(right)
            .all(|(left, right)| Arc::ptr_eq(left, right))
}

#[tokio::test]
async fn objects_of_an_older_schema_are_converted_once_for_all_looks() {
    let world = World::new().await;
    let [before, after] = forms();
    let old = world.serve(&before, "v1");
    world.fill(&old, 10).await;
    let store = world.serve(&after, "v1");
    let first = listed(&store).await;
    assert!(first.iter().all(|entry| sail(&store, entry) == "square"));
    assert!(are_same(&first, &listed(&store).await));
    let scope = Scope::of("blue");
    let got = store.get(&scope, "b0", RevisionMatch::MostRecent).await.unwrap();
    assert!(Arc::ptr_eq(&got, &first[0]));
    let mut watcher = store.watch(&scope, &WatchOptions::default()).await.unwrap();
    let events = watcher.initial_events();
    let states = events.into_iter().filter_map(|event| match event {
        WatchEvent::Added(entry) => Some(entry),
        _ => None,
    });
    assert!(are_same(&states.collect::<Vec<_>>(), &first));
    // What was written is there for the next schema.
    let kept = world
        .storage
        .get(&first[0].key, apiserver_storage::ReadAt::Latest)
        .await;
    let kept = kept.unwrap().entry.unwrap();
    assert_eq!(kept.record.fingerprint, old.row.stored.fingerprint);
    let back = world.serve(&before, "v1");
    assert!(
        listed(&back)
            .await
            .iter()
            .all(|entry| sail(&back, entry).is_empty())
    );
}

#[tokio::test]
async fn definition_that_went_unwatched_is_served_no_longer() {
    let world = World::new().await;
    let [versions, _] = forms();
    world.serve(&versions, "v1");
    let definitions = Definitions::new(&world.registry).unwrap();
    definitions.take(Followed::Changes(Vec::new())).await.unwrap();
    assert!(world.registry.custom_store(NAME).is_some());
    definitions.take(Followed::All(Vec::new())).await.unwrap();
    assert!(world.registry.custom_store(NAME).is_none());
}

#[tokio::test]
async fn large_objects_of_an_older_schema_are_converted_in_turns() {
    let world = World::new().await;
    let [before, after] = forms();
    world.fill(&world.serve(&before, "v1"), LARGE).await;
    let store = world.serve(&after, "v1");
    let (first, turns) = world.turns(listed(&store)).await;
    assert_eq!(turns, 1);
    let (second, turns) = world.turns(listed(&store)).await;
    assert_eq!(turns, 0);
    assert!(are_same(&first, &second));
}

#[tokio::test]
async fn objects_of_a_changed_definition_are_converted_in_turns_of_the_server() {
    let world = World::new().await;
    let [before, after] = forms();
    world.fill(&world.serve(&before, "v1"), 10).await;
    let store = world.serve(&after, "v1");
    let (renewed, turns) = world.turns(store.renew_all()).await;
    renewed.unwrap();
    assert_eq!(turns, 1);
    // A row that is served no more has nothing to renew.
    let _ = world.serve(&before, "v1");
    let (renewed, turns) = world.turns(store.renew_all()).await;
    renewed.unwrap();
    assert_eq!(turns, 0);
}

/// A webhook that says of objects that they are of the version that is wanted.
#[derive(Debug, Default)]
struct Hook {
    calls: AtomicUsize,
    /// The number of calls after which others' have all places; zero for none.
    places: usize,
}

#[derive(Debug)]
struct Hooks(Arc<Hook>);

#[derive(Debug)]
struct Call(Arc<Hook>);

impl ConversionCalls for Hooks {
    fn webhook(&self, _: Ref<'_>) -> Arc<dyn ConversionCall> {
        Arc::new(Call(Arc::clone(&self.0)))
    }
}

#[async_trait]
impl ConversionCall for Call {
    async fn post(&self, _: &str, review: Vec<u8>) -> Result<Vec<u8>, ConversionCallError> {
        let before = self.0.calls.fetch_add(1, Ordering::Relaxed);
        if self.0.places > 0 && before >= self.0.places {
            return Err(ConversionCallError::Busy);
        }
        let review: Value = serde_json::from_slice(&review).unwrap();
        let mut objects = review["request"]["objects"].clone();
        for object in objects.as_array_mut().into_iter().flatten() {
            object["apiVersion"] = review["request"]["desiredAPIVersion"].clone();
        }
        let answer = json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": {
            "uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects}});
        Ok(answer.to_string().into_bytes())
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn uid(&self) -> String {
        "uid".to_owned()
    }

    fn ended(&self, outcome: ConversionOutcome<'_>) {
        // A call without a place is not the webhook's failure.
        assert!(outcome.failure.is_none());
    }
}

/// Reviews and turns that a list in the other version takes, the first time and the next.
async fn converted_by_webhook(bytes: usize) -> Result<[(usize, u64); 2], RegistryError> {
    let (world, hook) = (World::new().await, Arc::new(Hook::default()));
    world.registry.convert_by(Arc::new(Hooks(Arc::clone(&hook))));
    let flag = json!({"flag": {"type": "string"}});
    let versions = json!([version("v1", true, &flag), version("v2", false, &flag)]);
    let store = world.serve(&versions, "v2");
    let stored = world.registry.store("knarr.test", "v1", "boats").unwrap();
    world.fill(&stored, bytes).await;
    let mut found = [(0, 0); 2];
    for found in &mut found {
        let (entries, turns) = world.turns(listed(&store)).await;
        for entry in &entries {
            let boat = store.decode(entry)?;
            assert_eq!(boat.str_at(&["apiVersion"]), "knarr.test/v2");
            assert_eq!(boat.str_at(&["spec", "flag"]).len(), bytes);
        }
        *found = (hook.calls.load(Ordering::Relaxed), turns);
    }
    Ok(found)
}

#[tokio::test]
async fn conversions_by_a_webhook_are_written_and_read_in_turns() {
    assert_eq!(converted_by_webhook(10).await.unwrap(), [(1, 0), (1, 0)]);
    // The stored objects, the review, its answer, and what is made of it.
    assert_eq!(converted_by_webhook(LARGE).await.unwrap(), [(1, 4), (1, 0)]);
}

/// A client comes again after 429, and would create another object of its `generateName`.
#[tokio::test]
async fn write_that_is_done_is_answered_though_others_have_the_webhooks_places() {
    let hook = Arc::new(Hook {
        places: 1,
        ..Hook::default()
    });
    let world = World::new().await;
    world.registry.convert_by(Arc::new(Hooks(Arc::clone(&hook))));
    let flag = json!({"flag": {"type": "string"}});
    let store = world.serve(
        &json!([version("v1", true, &flag), version("v2", false, &flag)]),
        "v2",
    );
    let create = async || {
        let boat = json!({"apiVersion": "knarr.test/v2", "kind": "Boat",
            "metadata": {"generateName": "b"}, "spec": {"flag": "red"}});
        let decoded = decode_json(
            &store.row.schema,
            store.row.ty,
            boat.to_string().as_bytes(),
            Strictness::Report,
        );
        let user = UserInfo::named("tester", [UserInfo::MASTERS]);
        let ctx = RequestContext::internal(user, world.runtime.clone());
        let (scope, options) = (Scope::of("blue"), CreateOptions::default());
        let door = SystemDoors::of(&world.storage).door(SystemWriter::Startup);
        let boat = decoded.unwrap().tree;
        store.create(&ctx, &scope, boat, &options, door).await
    };
    let Written::Stored { entry, created } = create().await.unwrap() else {
        panic!("it is no dry run");
    };
    assert!(created && hook.calls.load(Ordering::Relaxed) == 2);
    let shown = store.decode(&entry).unwrap();
    assert_eq!(shown.str_at(&["apiVersion"]), "knarr.test/v2");
    assert_eq!(shown.str_at(&["spec", "flag"]), "red");
    assert_eq!(
        shown.str_at(&["metadata", "resourceVersion"]),
        entry.revision.to_string()
    );
    let refused = create().await;
    assert!(
        matches!(refused, Err(RegistryError::TooManyRequests { .. })),
        "nothing is written before the first call: {refused:?}"
    );
    let stored = world.registry.store("knarr.test", "v1", "boats").unwrap();
    assert_eq!(listed(&stored).await.len(), 1);
}
