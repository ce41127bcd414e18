//! Shares of namespaces in the cluster's addresses and in the ports of nodes.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_registry::kinds::core::service::NodePorts;
use apiserver_registry::options::{CreateOptions, UpdateOptions};
use apiserver_registry::{
    Door, ObjectPart, Registry, RegistryError, Replacement, RequestContext, Scope, Store, SystemDoors,
    SystemWriter, Target, kinds,
};
use apiserver_storage::{LogStorage, Storage};
use machinery_meta::UserInfo;
use machinery_runtime::{Runtime, Simulation};
use machinery_schema::{Strictness, Tree, apply_defaults, decode_json};
use serde_json::{Value, json};
use std::sync::Arc;

/// The addresses of a namespace in a range of 254, and the ports of one among 300.
const ADDRESSES: usize = 64;
const PORTS: usize = 75;

struct World {
    runtime: Runtime,
    registry: Registry,
    /// Skips admission.
    door: Door<'static>,
}

/// Runs a story on a registry with one range of addresses and 300 node ports.
fn story<S>(range: &'static str, tell: impl FnOnce(World) -> S + Send + 'static)
where
    S: Future<Output = ()> + Send + 'static,
{
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let storage: Arc<dyn Storage> = Arc::new(LogStorage::memory(&runtime).await.unwrap());
        let ports = NodePorts::new(30_000, 30_299);
        let world = World {
            registry: Registry::with_node_ports(storage.clone(), runtime.clone(), kinds::built_in(), ports),
            door: SystemDoors::of(&storage).door(SystemWriter::Startup),
            runtime,
        };
        let cidr = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": [range]}});
        let made = world
            .create(("networking.k8s.io", "servicecidrs"), "", cidr)
            .await;
        made.0.unwrap();
        tell(world).await;
    });
}

impl World {
    fn tree(store: &Store, mut object: Value) -> Tree {
        object["apiVersion"] = json!(store.row.gvk.api_version());
        object["kind"] = json!(store.row.gvk.kind);
        let (row, text) = (&store.row, object.to_string());
        let decoded = decode_json(&row.schema, row.ty, text.as_bytes(), Strictness::Report);
        let mut tree = decoded.unwrap().tree;
        apply_defaults(&mut tree);
        row.strategy.defaults(&mut tree);
        tree
    }

    /// Creates an object, and reports whether that was heavy work.
    async fn create(
        &self,
        (group, plural): (&str, &str),
        namespace: &str,
        object: Value,
    ) -> (Result<(), RegistryError>, bool) {
        let store = self.registry.preferred_store(group, plural).unwrap();
        let ctx = self.ctx();
        let (tree, scope) = (Self::tree(&store, object), Scope::of(namespace));
        let options = CreateOptions::default();
        let made = store.create(&ctx, &scope, tree, &options, self.door).await;
        (made.map(drop), ctx.weight.is_heavy())
    }

    fn ctx(&self) -> RequestContext {
        let user = UserInfo::named("tester", [UserInfo::MASTERS]);
        RequestContext::internal(user, self.runtime.clone())
    }

    async fn service(&self, namespace: &str, name: &str) -> Result<(), RegistryError> {
        let service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
        self.create(("", "services"), namespace, service).await.0
    }

    /// A service with so many node ports and no more addresses than one.
    async fn ports(&self, namespace: &str, name: &str, count: usize) -> Result<(), RegistryError> {
        self.create(("", "services"), namespace, with_ports(name, count))
            .await
            .0
    }

    /// Creates services until one is refused, and returns how many there are.
    async fn fill(&self, namespace: &str) -> (usize, String) {
        let mut count = 0;
        loop {
            match self.service(namespace, &format!("s{count}")).await {
                Ok(()) => count += 1,
                Err(RegistryError::Forbidden { detail, .. }) => return (count, detail),
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    async fn namespace(&self, name: &str, label: &str, value: &str) {
        let object = json!({"metadata": {"name": name, "labels": {label: value}}});
        self.create(("", "namespaces"), "", object).await.0.unwrap();
    }
}

fn with_ports(name: &str, count: usize) -> Value {
    let port = |at: usize| json!({"name": format!("p{at}"), "port": 1 + at});
    let ports: Vec<Value> = (0..count).map(port).collect();
    json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": ports}})
}

#[track_caller]
fn refused(answer: Result<(), RegistryError>) -> String {
    match answer {
        Err(RegistryError::Forbidden { detail, .. }) => detail,
        other => panic!("{other:?}"),
    }
}

#[test]
fn namespace_has_a_share_of_the_cluster_addresses() {
    story("10.96.0.0/24", async |world| {
        let (count, said) = world.fill("a").await;
        assert_eq!(count, ADDRESSES);
        let expected = "exceeded the share of namespace a in the cluster's cluster IPs: requested 1, used 64, limited 64; \
                        the label knarr.dev/cluster-ip-quota of the Namespace sets another";
        assert_eq!(said, expected);
        // One without an address has its place, and so have others.
        let headless =
            json!({"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}});
        world.create(("", "services"), "a", headless).await.0.unwrap();
        world.service("b", "x").await.unwrap();
        world.namespace("few", "knarr.dev/cluster-ip-quota", "3").await;
        assert_eq!(world.fill("few").await.0, 3);
        world.namespace("all", "knarr.dev/cluster-ip-quota", "0").await;
        for namespace in ["all", "kube-system"] {
            for at in 0..ADDRESSES + 2 {
                world.service(namespace, &format!("s{at}")).await.unwrap();
            }
        }
    });
}

/// Each namespace that comes has at most half of what those before it have left, so that no few of them take all.
#[test]
fn namespaces_leave_addresses_and_ports_to_others() {
    story("10.96.0.0/24", async |world| {
        let mut counts = Vec::new();
        for namespace in ["a", "b", "c", "d", "e", "f"] {
            counts.push(world.fill(namespace).await.0);
        }
        assert_eq!(counts, [64, 64, 63, 31, 16, 8]);
        world.service("late", "x").await.unwrap();
        world.namespace("more", "knarr.dev/cluster-ip-quota", "5").await;
        assert_eq!(world.fill("more").await.0, 5, "the administrator has said so");
    });
    story("10.96.0.0/16", async |world| {
        for namespace in ["a", "b"] {
            world.ports(namespace, "x", PORTS).await.unwrap();
        }
        world.ports("c", "x", PORTS - 1).await.unwrap();
        let said = refused(world.ports("d", "x", PORTS / 2 + 2).await);
        assert!(said.contains("requested 39, used 0, limited 38"), "{said}");
        world.ports("d", "x", PORTS / 2 + 1).await.unwrap();
    });
}

#[test]
fn namespace_has_a_share_of_the_node_ports() {
    story("10.96.0.0/16", async |world| {
        world.ports("a", "x", PORTS - 5).await.unwrap();
        world.ports("b", "x", 1).await.unwrap();
        let said = refused(world.ports("a", "y", 6).await);
        assert!(
            said.contains("node ports: requested 6, used 70, limited 75"),
            "{said}"
        );
        world.ports("a", "y", 5).await.unwrap();
        refused(world.ports("a", "z", 1).await);
        world.ports("b", "z", 1).await.unwrap();
        // A change that takes no more passes, one that does not is refused.
        let change = async |count: usize| {
            let store = world.registry.preferred_store("", "services").unwrap();
            let (ctx, scope) = (world.ctx(), Scope::of("a"));
            let target = Target {
                scope: &scope,
                name: "y",
                part: ObjectPart::Main,
            };
            let change = Replacement(World::tree(&store, with_ports("y", count)));
            let options = UpdateOptions::default();
            let written = store.update(&ctx, target, &change, &options, world.door).await;
            written.map(drop)
        };
        change(5).await.unwrap();
        refused(change(6).await);
        change(4).await.unwrap();
        world.ports("a", "z", 1).await.unwrap();
    });
}

#[test]
fn service_address_is_looked_for_in_a_full_range_among_the_heavy_work() {
    story("10.96.0.0/28", async |world| {
        let service =
            |at: usize| json!({"metadata": {"name": format!("s{at}")}, "spec": {"ports": [{"port": 80}]}});
        for at in 0..14 {
            world.service("a", &format!("s{at}")).await.unwrap();
        }
        let (full, is_heavy) = world.create(("", "services"), "a", service(14)).await;
        assert!(matches!(full, Err(RegistryError::Internal(_))), "{full:?}");
        assert!(is_heavy);
    });
}

#[test]
fn namespace_refuses_shares_that_nobody_could_read() {
    story("10.96.0.0/24", async |world| {
        for label in ["knarr.dev/cluster-ip-quota", "knarr.dev/node-port-quota"] {
            for value in ["many", "-1", "1Gi"] {
                let object = json!({"metadata": {"name": "a", "labels": {label: value}}});
                let made = world.create(("", "namespaces"), "", object).await.0;
                assert!(
                    matches!(made, Err(RegistryError::Invalid { .. })),
                    "{value}: {made:?}"
                );
            }
        }
    });
}
