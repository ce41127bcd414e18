use super::*;
use crate::engine::options::{CreateOptions, DeleteOptions, UpdateOptions};
use crate::{Door, ObjectPart, Registry, Replacement, Scope, SystemDoors, SystemWriter, Target, kinds};
use apiserver_storage::{LogOptions, LogStorage, Record, Storage};
use machinery_meta::UserInfo;
use machinery_runtime::{MemDisk, Runtime, Simulation};
use machinery_schema::{Strictness, Tree, apply_defaults, decode_json};
use serde_json::json;

fn entry(created: u64) -> Option<Arc<Entry>> {
    Some(Arc::new(Entry {
        key: Key::parse("/registry/pods/ns/a").unwrap(),
        revision: Revision(created),
        created: Revision(created),
        expires: None,
        record: Record {
            parts: [vec![b'x'; 1_000].into(), Default::default(), Default::default()],
            fingerprint: 0,
            header: Arc::default(),
        },
        seal: Default::default(),
    }))
}

fn event(revision: u64, previous: Option<Arc<Entry>>, entry: Option<Arc<Entry>>) -> Event {
    Event {
        revision: Revision(revision),
        key: Key::parse("/registry/pods/ns/a").unwrap(),
        entry,
        previous,
    }
}

#[test]
fn deletion_that_is_counted_after_the_next_object_was_takes_nothing_away() {
    let mut account = Account::default();
    account.count(&event(7, None, entry(7)));
    let bytes = account.bytes;
    assert!(bytes > 1_000);
    account.count(&event(9, None, entry(9)));
    account.count(&event(8, entry(7), None));
    assert_eq!(account.bytes, bytes);
    account.count(&event(10, entry(9), None));
    assert_eq!((account.bytes, account.by_namespace.len()), (0, 0));
}

/// A store of config maps, whose door skips admission.
async fn store(runtime: &Runtime) -> (Registry, Store, Door<'static>) {
    let quota = Quota {
        store_bytes: 64 << 20,
        ..Quota::default()
    };
    let options = LogOptions {
        quota,
        ..LogOptions::new("/memory")
    };
    let storage: Arc<dyn Storage> = Arc::new(LogStorage::open(runtime, options).await.unwrap().0);
    let registry = Registry::new(storage.clone(), runtime.clone(), kinds::built_in());
    let store = registry.preferred_store("", "configmaps").unwrap();
    (
        registry,
        store,
        SystemDoors::of(&storage).door(SystemWriter::Startup),
    )
}

fn tree(store: &Store, name: &str, bytes: usize) -> Tree {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"text": "x".repeat(bytes)}});
    let (row, text) = (&store.row, object.to_string());
    let decoded = decode_json(&row.schema, row.ty, text.as_bytes(), Strictness::Report).unwrap();
    let mut tree = decoded.tree;
    apply_defaults(&mut tree);
    tree
}

/// An account drops a node's additions to objects of others, and uncharged ones, once the objects are deleted,
/// although the account is never full.
#[test]
fn node_growth_forgets_what_others_have_deleted() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime().with_disk(Arc::new(MemDisk::new()));
    simulation.run(async move {
        let (registry, store, door) = store(&runtime).await;
        let context = |user| RequestContext::internal(user, runtime.clone());
        let tenant = context(UserInfo::named("tester", [UserInfo::MASTERS]));
        let node = context(UserInfo::node("n"));
        let scope = Scope::of("ns");
        let (create, update) = (CreateOptions::default(), UpdateOptions::default());
        let delete = DeleteOptions::default();
        for number in 0..300 {
            let name = &*format!("a{}", (number * 7_919) % 1_000);
            let made = store.create(&tenant, &scope, tree(&store, name, 2_000), &create, door);
            made.await.unwrap();
            let target = Target {
                scope: &scope,
                name,
                part: ObjectPart::Main,
            };
            let change = Replacement(tree(&store, name, 2_100));
            let written = store.update(&node, target, &change, &update, door);
            written.await.unwrap();
            let deleted = store.delete(&tenant, &scope, name, &delete, door);
            deleted.await.unwrap();
        }
        let accounts = registry.node_growth().accounts.lock();
        let objects = accounts["n"].objects.len();
        assert!((1..=8).contains(&objects), "{objects}");
    });
}
