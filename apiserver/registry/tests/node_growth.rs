//! Growth of the store by one node is bounded, whatever the node writes and wherever.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_registry::options::{CreateOptions, DeleteOptions, UpdateOptions};
use apiserver_registry::{
    Door, ObjectPart, Registry, RegistryError, Replacement, RequestContext, Scope, Store, SystemDoors,
    SystemWriter, Target, kinds,
};
use apiserver_storage::{LogOptions, LogStorage, Quota, Storage};
use futures::future::join_all;
use machinery_meta::UserInfo;
use machinery_runtime::{MemDisk, Runtime, Simulation};
use machinery_schema::{Strictness, Tree, apply_defaults, decode_json};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Three of them are within the bound of a node, which is 1 MiB here, and four are not.
const LARGE: usize = 300_000;

struct World {
    runtime: Runtime,
    storage: Arc<dyn Storage>,
    registry: Registry,
    /// Skips admission.
    door: Door<'static>,
}

/// A user's view of one kind.
struct Client<'a> {
    world: &'a World,
    store: Store,
    ctx: RequestContext,
}

fn story<S>(tell: impl FnOnce(World) -> S + Send + 'static)
where
    S: Future<Output = ()> + Send + 'static,
{
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime().with_disk(Arc::new(MemDisk::new()));
    simulation.run(async move {
        let options = LogOptions {
            quota: Quota {
                store_bytes: 64 << 20,
                namespace_bytes: 16 << 20,
                system_namespaces: Vec::new(),
            },
            ..LogOptions::new("/memory")
        };
        let storage: Arc<dyn Storage> = Arc::new(LogStorage::open(&runtime, options).await.unwrap().0);
        let world = World {
            registry: Registry::new(storage.clone(), runtime.clone(), kinds::built_in()),
            door: SystemDoors::of(&storage).door(SystemWriter::Startup),
            storage,
            runtime,
        };
        tell(world).await;
    });
}

impl World {
    fn client(&self, user: UserInfo) -> Client<'_> {
        Client {
            world: self,
            store: self.registry.preferred_store("", "configmaps").unwrap(),
            ctx: RequestContext::internal(user, self.runtime.clone()),
        }
    }

    /// The same objects after another start.
    fn restarted(&self) -> Self {
        let storage = Arc::clone(&self.storage);
        Self {
            door: SystemDoors::of(&storage).door(SystemWriter::Startup),
            registry: Registry::new(storage.clone(), self.runtime.clone(), kinds::built_in()),
            storage,
            runtime: self.runtime.clone(),
        }
    }

    fn node(&self, name: &str) -> Client<'_> {
        self.client(UserInfo::node(name))
    }

    fn admin(&self) -> Client<'_> {
        self.client(UserInfo::named("tester", [UserInfo::MASTERS]))
    }
}

fn object(name: &str, bytes: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"text": "x".repeat(bytes)}})
}

impl Client<'_> {
    fn tree(&self, object: &Value) -> Tree {
        let (row, text) = (&self.store.row, object.to_string());
        let decoded = decode_json(&row.schema, row.ty, text.as_bytes(), Strictness::Report).unwrap();
        let mut tree = decoded.tree;
        apply_defaults(&mut tree);
        row.strategy.defaults(&mut tree);
        tree
    }

    async fn create_as(
        &self,
        namespace: &str,
        object: &Value,
        options: CreateOptions,
    ) -> Result<(), RegistryError> {
        let (tree, scope) = (self.tree(object), Scope::of(namespace));
        let made = self
            .store
            .create(&self.ctx, &scope, tree, &options, self.world.door);
        made.await.map(drop)
    }

    async fn create(&self, namespace: &str, name: &str, bytes: usize) -> Result<(), RegistryError> {
        let object = object(name, bytes);
        self.create_as(namespace, &object, CreateOptions::default()).await
    }

    async fn update(&self, namespace: &str, name: &str, bytes: usize) -> Result<(), RegistryError> {
        let scope = Scope::of(namespace);
        let target = Target {
            scope: &scope,
            name,
            part: ObjectPart::Main,
        };
        let change = Replacement(self.tree(&object(name, bytes)));
        let options = UpdateOptions::default();
        let written = self
            .store
            .update(&self.ctx, target, &change, &options, self.world.door);
        written.await.map(drop)
    }

    async fn delete(&self, namespace: &str, name: &str) {
        let (scope, options) = (Scope::of(namespace), DeleteOptions::default());
        let deleted = self
            .store
            .delete(&self.ctx, &scope, name, &options, self.world.door);
        deleted.await.unwrap();
    }
}

#[track_caller]
fn refused(answer: Result<(), RegistryError>) -> String {
    match answer {
        Err(RegistryError::Forbidden { detail, .. }) => detail,
        other => panic!("{other:?}"),
    }
}

#[test]
fn node_growth_has_a_bound_in_all_namespaces_together() {
    story(async |world| {
        let (node, other, admin) = (world.node("n1"), world.node("n2"), world.admin());
        for namespace in ["a", "b", "c"] {
            node.create(namespace, "x", LARGE).await.unwrap();
        }
        let said = refused(node.create("d", "x", LARGE).await);
        assert!(
            said.starts_with("exceeded quota: storage, requested: bytes=30"),
            "{said}"
        );
        let ends = "limited: bytes=1048576; delete objects that node \"n1\" wrote to make room";
        assert!(said.ends_with(ends), "{said}");
        let dry = CreateOptions {
            dry_run: true,
            ..CreateOptions::default()
        };
        refused(node.create_as("d", &object("x", LARGE), dry).await);
        // What has no namespace counts as well.
        let mut role = object("x", 0);
        role["metadata"]["annotations"] = json!({"a": "m".repeat(200_000)});
        role["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
        role["kind"] = json!("ClusterRole");
        let mut roles = world.node("n1");
        roles.store = world
            .registry
            .preferred_store("rbac.authorization.k8s.io", "clusterroles")
            .unwrap();
        refused(roles.create_as("", &role, CreateOptions::default()).await);
        // Others have nothing to do with it; what does not grow passes.
        other.create("d", "y", LARGE).await.unwrap();
        admin.create("d", "z", LARGE).await.unwrap();
        node.update("a", "x", LARGE).await.unwrap();
        refused(node.update("d", "z", 3 * LARGE).await);
        // What it adds to another's object counts as far as it exceeds that.
        node.update("d", "z", 2 * LARGE - 2_000).await.unwrap();
        // What it takes away has room again, what others take away has not.
        node.update("a", "x", LARGE / 2).await.unwrap();
        node.create("d", "x", LARGE / 2).await.unwrap();
        admin.update("b", "x", LARGE / 2).await.unwrap();
        refused(node.create("d", "w", LARGE).await);
        node.delete("c", "x").await;
        node.create("d", "w", LARGE).await.unwrap();
    });
}

/// Statuses repeat what tenants wrote.
#[test]
fn node_growth_of_a_status_as_large_as_its_pod_is_no_growth() {
    story(async |world| {
        let (node, admin) = (world.node("n1"), world.admin());
        for at in 0..16 {
            let name = format!("x{at}");
            admin.create("a", &name, LARGE).await.unwrap();
            node.update("a", &name, 2 * LARGE - 2_000).await.unwrap();
        }
        // Smaller again it is no room for others.
        admin.update("a", "x0", 1_000).await.unwrap();
        node.create("b", "x", 3 * LARGE).await.unwrap();
        refused(node.create("c", "x", LARGE).await);
    });
}

#[test]
fn node_growth_of_namespaces_with_little_goes_on_when_the_account_is_full() {
    story(async |world| {
        let node = world.node("n1");
        node.create("full", "x", 3 * LARGE).await.unwrap();
        let mut at = 0;
        while node.create("full", &format!("s{at}"), 10_000).await.is_ok() {
            at += 1;
        }
        assert!(at < 16, "{at}");
        for name in ["x", "y", "z"] {
            node.create("b", name, 10_000).await.unwrap();
        }
        refused(node.create("b", "w", 100_000).await);
        // In all as much again.
        let mut namespaces = 0;
        while node.create(&format!("n{namespaces}"), "x", 60_000).await.is_ok() {
            namespaces += 1;
        }
        assert!((15..18).contains(&namespaces), "{namespaces}");
    });
}

#[test]
fn node_growth_is_given_back_by_deletions_of_others() {
    story(async |world| {
        let (node, admin) = (world.node("n1"), world.admin());
        for namespace in ["a", "b", "c"] {
            node.create(namespace, "x", LARGE).await.unwrap();
        }
        admin.delete("a", "x").await;
        node.create("d", "x", LARGE).await.unwrap();
        // One of the same name is another, and a full account is compared once in a while.
        admin.delete("b", "x").await;
        admin.create("b", "x", LARGE).await.unwrap();
        refused(node.create("e", "x", LARGE).await);
        world.runtime.sleep(Duration::from_secs(11)).await;
        node.create("e", "x", LARGE).await.unwrap();
        refused(node.create("f", "x", LARGE).await);
    });
}

#[test]
fn node_growth_of_writes_under_way_counts() {
    story(async |world| {
        let node = world.node("n1");
        let namespaces: Vec<String> = (0..8).map(|at| format!("n{at}")).collect();
        let all = namespaces
            .iter()
            .map(|namespace| node.create(namespace, "x", LARGE));
        let answers = join_all(all).await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 3);
        // Nothing is left reserved.
        node.create("m", "x", LARGE / 4).await.unwrap();
    });
}

#[test]
fn node_growth_lets_a_full_node_delete() {
    story(async |world| {
        let node = world.node("n1");
        let mut held = object("held", LARGE);
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        node.create_as("a", &held, CreateOptions::default())
            .await
            .unwrap();
        let mut bytes = 2 * LARGE;
        node.create("a", "x", bytes).await.unwrap();
        // Less is left than a mark takes.
        for step in [20_000, 1_000, 40] {
            while node.update("a", "x", bytes + step).await.is_ok() {
                bytes += step;
            }
        }
        node.delete("a", "held").await;
    });
}

fn pod(node: &str, note: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"note": note}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
}

/// Makes a pod in a namespace, with a note of so many bytes, and a status of the node's of so many.
async fn run_pod(world: &World, namespace: &str, (note, status): (usize, usize)) {
    let mut admin = world.admin();
    admin.store = world.registry.preferred_store("", "pods").unwrap();
    let mut object = pod("n1", &"n".repeat(note));
    admin
        .create_as(namespace, &object, CreateOptions::default())
        .await
        .unwrap();
    object["status"] = json!({"phase": "Running", "message": "m".repeat(status)});
    let mut node = world.node("n1");
    node.store = world.registry.preferred_store("", "pods").unwrap();
    let scope = Scope::of(namespace);
    let target = Target {
        scope: &scope,
        name: "p",
        part: ObjectPart::Status,
    };
    let change = Replacement(node.tree(&object));
    let options = UpdateOptions::default();
    let written = node
        .store
        .update(&node.ctx, target, &change, &options, world.door);
    written.await.unwrap();
}

#[test]
fn node_growth_is_known_again_after_a_start() {
    story(async |world| {
        for namespace in ["a", "b", "c"] {
            run_pod(&world, namespace, (0, LARGE)).await;
        }
        refused(world.node("n1").create("d", "x", LARGE).await);
        let world = world.restarted();
        refused(world.node("n1").create("d", "x", LARGE).await);
        world.node("n2").create("d", "x", LARGE).await.unwrap();
    });
}

#[test]
fn node_growth_of_statuses_as_large_as_their_pods_is_none_after_a_start() {
    story(async |world| {
        for at in 0..16 {
            run_pod(&world, &format!("n{at}"), (LARGE / 3, LARGE / 3)).await;
        }
        let world = world.restarted();
        world.node("n1").create("a", "x", 3 * LARGE).await.unwrap();
    });
}

#[test]
fn node_growth_by_its_own_objects_is_known_again_after_a_start() {
    story(async |world| {
        let mut node = world.node("n1");
        node.store = world.registry.preferred_store("", "nodes").unwrap();
        let own = |name: &str| {
            let note = json!({"note": "x".repeat(200_000)});
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": note}})
        };
        node.create_as("", &own("n1"), CreateOptions::default())
            .await
            .unwrap();
        let mut admin = world.admin();
        admin.store = world.registry.preferred_store("", "nodes").unwrap();
        admin
            .create_as("", &own("n2"), CreateOptions::default())
            .await
            .unwrap();
        let world = world.restarted();
        let node = world.node("n1");
        node.create("a", "x", 2 * LARGE).await.unwrap();
        refused(node.create("b", "x", LARGE).await);
    });
}

/// Without a bound a bearer of a token could fill what all objects without a namespace may take (half of the store).
#[test]
fn bearer_of_a_bootstrap_token_has_the_bound_of_a_node() {
    story(async |world| {
        let bearer = world.client(UserInfo::named(
            "system:bootstrap:abcdef",
            ["system:bootstrappers"],
        ));
        for namespace in ["a", "b", "c"] {
            bearer.create(namespace, "x", LARGE).await.unwrap();
        }
        let said = refused(bearer.create("d", "x", LARGE).await);
        let ends = "delete objects that user \"system:bootstrap:abcdef\" wrote to make room";
        assert!(said.ends_with(ends), "{said}");
        // Others have accounts of their own, or none.
        let other = world.client(UserInfo::named(
            "system:bootstrap:ghijkl",
            ["system:bootstrappers"],
        ));
        other.create("d", "y", LARGE).await.unwrap();
        let anna = world.client(UserInfo::named("anna", [UserInfo::AUTHENTICATED]));
        for at in 0..5 {
            anna.create("e", &format!("x{at}"), LARGE).await.unwrap();
        }
    });
}

/// After a start, too, a node has what its static pods take.
#[test]
fn node_growth_knows_mirror_pods_after_a_start() {
    story(async |world| {
        let pod = |name: &str, owner: Value| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name,
                "annotations": {"kubernetes.io/config.mirror": "hash", "a": "x".repeat(250_000)}, "ownerReferences": owner},
                "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}})
        };
        let owned =
            json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u", "controller": true}]);
        let mut node = world.node("n1");
        node.store = world.registry.preferred_store("", "pods").unwrap();
        for name in ["a", "b", "c"] {
            node.create_as("static", &pod(name, owned.clone()), CreateOptions::default())
                .await
                .unwrap();
        }
        let restarted = world.restarted();
        let node = restarted.node("n1");
        node.create("d", "x", 100_000).await.unwrap();
        refused(node.create("d", "y", LARGE).await);
        // One that another made so is not charged.
        let admin = world.admin();
        let mut pods = world.admin();
        pods.store = world.registry.preferred_store("", "pods").unwrap();
        for name in ["x", "y", "z"] {
            let mut own = pod(name, json!([]));
            own["spec"]["nodeName"] = json!("n2");
            pods.create_as("d", &own, CreateOptions::default()).await.unwrap();
        }
        drop(admin);
        let again = world.restarted();
        again.node("n2").create("d", "w", LARGE).await.unwrap();
        again.node("n2").create("d", "v", LARGE).await.unwrap();
    });
}
