//! Repair of services' addresses and ports that the test breaks, with upstream's events.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_registry::kinds::core::service::{NodePorts, repair};
use apiserver_registry::options::{CreateOptions, DeleteOptions, ListOptions, RevisionMatch};
use apiserver_registry::{Door, Registry, RequestContext, Scope, Store, SystemDoors, SystemWriter, kinds};
use apiserver_storage::{Key, LogStorage, ReadAt, Storage, Write};
use machinery_meta::UserInfo;
use machinery_runtime::{Runtime, Simulation};
use machinery_schema::{Ref, Strictness, Tree, apply_defaults, decode_json};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The key of upstream's bitmap of node ports.
const BITMAP: &str = "/registry/ranges/servicenodeports";
/// A time longer than the loop needs after a change, shorter than its rounds.
const A_MOMENT: Duration = Duration::from_secs(1);
const A_ROUND: Duration = Duration::from_secs(181);

struct World {
    runtime: Runtime,
    registry: Registry,
    storage: Arc<dyn Storage>,
    /// Skips admission.
    door: Door<'static>,
    ctx: RequestContext,
}

/// Runs a story on a registry with one range of addresses and ten node ports; `before` is done before repair begins.
fn story<S, B>(before: impl FnOnce(Arc<World>) -> B, after: impl FnOnce(Arc<World>) -> S)
where
    B: Future<Output = ()> + Send + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    let made = simulation.run({
        let runtime = runtime.clone();
        async move { LogStorage::memory(&runtime).await.unwrap() }
    });
    let storage: Arc<dyn Storage> = Arc::new(made);
    let ports = NodePorts::new(30_000, 30_009);
    let registry = Registry::with_node_ports(storage.clone(), runtime.clone(), kinds::built_in(), ports);
    let user = UserInfo::named("tester", [UserInfo::MASTERS]);
    let ctx = RequestContext::internal(user, runtime.clone());
    let world = Arc::new(World {
        runtime,
        registry,
        door: SystemDoors::of(&storage).door(SystemWriter::Startup),
        storage,
        ctx,
    });
    let (before, after) = (before(world.clone()), after(world.clone()));
    simulation.run(async move {
        let range = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/24"]}});
        world
            .create(("networking.k8s.io", "servicecidrs"), "", &range)
            .await;
        before.await;
        repair::start(&world.registry).await.unwrap();
        after.await;
    });
}

impl World {
    fn store(&self, (group, plural): (&str, &str)) -> Store {
        self.registry.preferred_store(group, plural).unwrap()
    }

    fn tree(store: &Store, object: &Value) -> Tree {
        let mut object = object.clone();
        object["apiVersion"] = json!(store.row.gvk.api_version());
        object["kind"] = json!(store.row.gvk.kind);
        let text = object.to_string();
        let decoded = decode_json(
            &store.row.schema,
            store.row.ty,
            text.as_bytes(),
            Strictness::Report,
        );
        let mut tree = decoded.unwrap().tree;
        apply_defaults(&mut tree);
        store.row.strategy.defaults(&mut tree);
        tree
    }

    async fn create(&self, resource: (&str, &str), namespace: &str, object: &Value) {
        let store = self.store(resource);
        let tree = Self::tree(&store, object);
        let options = CreateOptions::default();
        let made = store
            .create(&self.ctx, &Scope::of(namespace), tree, &options, self.door)
            .await;
        made.unwrap();
    }

    /// A service as no server would have let it in.
    async fn smuggle(&self, name: &str, spec: Value) {
        let store = self.store(("", "services"));
        let object = json!({"metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
            "spec": spec});
        let record = store.encode(&Self::tree(&store, &object)).unwrap();
        let key = Key::parse(&store.row.key("default", name)).unwrap();
        self.storage
            .commit(vec![Write::create(key, record)])
            .await
            .unwrap();
    }

    async fn address(&self, name: &str, parent: (&str, &str), labels: Value) {
        let object = json!({"metadata": {"name": name, "labels": labels},
            "spec": {"parentRef": {"resource": parent.0, "namespace": "default", "name": parent.1}}});
        self.create(("networking.k8s.io", "ipaddresses"), "", &object)
            .await;
    }

    async fn get(&self, resource: (&str, &str), namespace: &str, name: &str) -> Option<Tree> {
        let store = self.store(resource);
        let entry = store
            .get(&Scope::of(namespace), name, RevisionMatch::MostRecent)
            .await
            .ok()?;
        Some(store.decode(&entry).unwrap())
    }

    /// Owner of this address.
    async fn owner(&self, address: &str) -> Option<String> {
        let object = self
            .get(("networking.k8s.io", "ipaddresses"), "", address)
            .await?;
        let part = |field| object.str_at(&["spec", "parentRef", field]).to_owned();
        Some(format!("{}/{}", part("resource"), part("name")))
    }

    async fn remove_address(&self, name: &str) {
        let store = self.store(("networking.k8s.io", "ipaddresses"));
        let options = DeleteOptions::default();
        store
            .delete(&self.ctx, &Scope::Cluster, name, &options, self.door)
            .await
            .unwrap();
    }

    /// A node port is taken from the others without a service, or given back.
    async fn clear_bitmap(&self) {
        let key = Key::parse(BITMAP).unwrap();
        let found = self.storage.get(&key, ReadAt::Latest).await.unwrap();
        let entry = found.entry.unwrap();
        let write = Write::delete(entry.key.clone(), entry.revision);
        self.storage.commit(vec![write]).await.unwrap();
    }

    /// A node port for a new service, if it can be had.
    async fn takes_port(&self, name: &str, port: i64) -> bool {
        let store = self.store(("", "services"));
        let object = json!({"metadata": {"name": name},
            "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}});
        let tree = Self::tree(&store, &object);
        let options = CreateOptions::default();
        store
            .create(&self.ctx, &Scope::of("default"), tree, &options, self.door)
            .await
            .is_ok()
    }

    /// Warning events: object, reason and message.
    async fn warnings(&self) -> Vec<String> {
        let store = self.store(("", "events"));
        let page = store
            .list(&Scope::Cluster, &ListOptions::default())
            .await
            .unwrap();
        let told = page.entries.iter().map(|entry| {
            let event = store.decode(entry).unwrap();
            let text = |path: &[&str]| event.str_at(path).to_owned();
            format!(
                "{} {}: {} ({}x, {})",
                text(&["involvedObject", "name"]),
                text(&["reason"]),
                text(&["message"]),
                event.get("count").and_then(Ref::as_i64).unwrap(),
                text(&["reportingComponent"]),
            )
        });
        let mut told: Vec<String> = told.collect();
        told.sort();
        told
    }
}

fn service(name: &str, address: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "clusterIP": address}})
}

fn managed() -> Value {
    json!({"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io", "ipaddress.kubernetes.io/ip-family": "IPv4"})
}

const ADDRESSES: &str = "1x, ipallocator-repair-controller";
const PORTS: &str = "1x, portallocator-repair-controller";

#[test]
fn repair_lost_address_is_restored() {
    story(
        async |world| {
            world
                .create(("", "services"), "default", &service("a", "10.96.0.7"))
                .await
        },
        async |world| {
            assert_eq!(world.warnings().await, Vec::<String>::new());
            world.remove_address("10.96.0.7").await;
            world.runtime.sleep(A_MOMENT).await;
            assert_eq!(world.owner("10.96.0.7").await.as_deref(), Some("services/a"));
            assert_eq!(
                world.warnings().await,
                [format!(
                    "a ClusterIPNotAllocated: Cluster IP [IPv4]: 10.96.0.7 is not allocated; repairing ({ADDRESSES})"
                )]
            );
        },
    );
}

#[test]
fn repair_address_of_another_owner_is_recreated() {
    story(
        async |world| {
            for (name, address) in [("a", "10.96.0.7"), ("b", "10.96.0.8"), ("c", "10.96.0.9")] {
                world
                    .create(("", "services"), "default", &service(name, address))
                    .await;
                world.remove_address(address).await;
            }
            world.address("10.96.0.7", ("pods", "p"), managed()).await;
            world
                .address("10.96.0.8", ("services", "nobody"), managed())
                .await;
            world.address("10.96.0.9", ("services", "c"), json!({})).await;
        },
        async |world| {
            let wrong = |ip: &str, name: &str| {
                format!(
                    "{name} ClusterIPNotAllocated: the ClusterIP [IPv4]: {ip} for Service default/{name} has a wrong \
                     reference; repairing ({ADDRESSES})"
                )
            };
            assert_eq!(world.owner("10.96.0.7").await.as_deref(), Some("services/a"));
            assert_eq!(world.owner("10.96.0.8").await.as_deref(), Some("services/b"));
            let relabelled = world
                .get(("networking.k8s.io", "ipaddresses"), "", "10.96.0.9")
                .await;
            let labels = relabelled.unwrap().at(&["metadata", "labels"]).map(Ref::to_json);
            assert_eq!(
                serde_json::from_str::<Value>(&labels.unwrap()).unwrap(),
                managed()
            );
            // Wrong labels are put right without a word.
            assert_eq!(
                world.warnings().await,
                [wrong("10.96.0.7", "a"), wrong("10.96.0.8", "b")]
            );
        },
    );
}

#[test]
fn repair_unused_addresses_are_released_after_a_grace_period() {
    story(
        async |world| {
            world
                .create(("", "services"), "default", &service("a", "10.96.0.7"))
                .await;
            world.address("10.96.0.20", ("services", "gone"), managed()).await;
            world.address("10.96.0.21", ("services", "gone"), json!({})).await;
            world.address("10.96.0.22", ("services", "a"), managed()).await;
            world.address("10.96.0.23", ("gateways", "g"), managed()).await;
        },
        async |world| {
            assert!(
                world.owner("10.96.0.20").await.is_some(),
                "its service may be about to come"
            );
            world.runtime.sleep(A_ROUND).await;
            for (address, left) in [
                ("10.96.0.7", true),
                ("10.96.0.20", false),
                // Without labels it does not count as made for a service.
                ("10.96.0.21", true),
                ("10.96.0.22", false),
                ("10.96.0.23", false),
            ] {
                assert_eq!(world.owner(address).await.is_some(), left, "{address}");
            }
            assert_eq!(
                world.warnings().await,
                [
                    format!(
                        "10.96.0.20 IPAddressNotAllocated: IPAddress: 10.96.0.20 for Service default/gone appears to \
                         have leaked: cleaning up ({ADDRESSES})"
                    ),
                    format!(
                        "10.96.0.22 IPAddressWrongReference: IPAddress: 10.96.0.22 for Service default/a has a wrong \
                         reference; cleaning up ({ADDRESSES})"
                    ),
                    format!(
                        "10.96.0.23 IPAddressNotAllocated: IPAddress 10.96.0.23 appears to have been modified, not \
                         referencing a Service &ParentReference{{Group:,Resource:gateways,Namespace:default,Name:g,}}: \
                         cleaning up ({ADDRESSES})"
                    ),
                ]
            );
        },
    );
}

#[test]
fn repair_reports_problems_that_need_a_user() {
    story(
        async |world| {
            world
                .create(("", "services"), "default", &service("a", "10.96.0.7"))
                .await;
            let at =
                |address: &str| json!({"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address]});
            world.smuggle("twin", at("10.96.0.7")).await;
            world.smuggle("far", at("192.0.2.9")).await;
        },
        async |world| {
            let expected = |times: u32| {
                [
                    format!(
                        "far ClusterIPOutOfRange: Cluster IP [IPv4]: 192.0.2.9 is not within any configured Service \
                         CIDR; please recreate service ({times}x, ipallocator-repair-controller)"
                    ),
                    format!(
                        "twin ClusterIPAlreadyAllocated: Cluster IP [IPv4]:10.96.0.7 was assigned to multiple \
                         services; please recreate service ({times}x, ipallocator-repair-controller)"
                    ),
                ]
            };
            assert_eq!(world.warnings().await, expected(1));
            assert_eq!(world.owner("10.96.0.7").await.as_deref(), Some("services/a"));
            world.runtime.sleep(A_ROUND).await;
            assert_eq!(world.warnings().await, expected(2), "the same again counts");
        },
    );
}

#[test]
fn ports_that_services_have_are_taken_again() {
    story(
        async |world| {
            assert!(world.takes_port("a", 30_001).await);
            world.clear_bitmap().await;
            let port = |port: i64| json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
            world.smuggle("far", port(31_000)).await;
            world.smuggle("twin", port(30_001)).await;
        },
        async |world| {
            assert_eq!(
                world.warnings().await,
                [
                    format!("a PortNotAllocated: Port 30001 is not allocated; repairing ({PORTS})"),
                    format!(
                        "far PortOutOfRange: Port 31000 is not within the port range 30000-30009; please recreate \
                         service ({PORTS})"
                    ),
                    format!(
                        "twin PortAlreadyAllocated: Port 30001 was assigned to multiple services; please recreate \
                         service ({PORTS})"
                    ),
                ]
            );
            assert!(!world.takes_port("b", 30_001).await);
            assert!(world.takes_port("c", 30_002).await);
        },
    );
}

#[test]
fn repair_leaked_port_is_released_after_three_rounds() {
    story(
        async |world| {
            assert!(world.takes_port("a", 30_001).await);
            // The service goes, its port does not come back.
            let store = world.store(("", "services"));
            let key = Key::parse(&store.row.key("default", "a")).unwrap();
            let entry = world
                .storage
                .get(&key, ReadAt::Latest)
                .await
                .unwrap()
                .entry
                .unwrap();
            let write = Write::delete(key, entry.revision);
            world.storage.commit(vec![write]).await.unwrap();
        },
        async |world| {
            for round in 1..3 {
                assert!(!world.takes_port("b", 30_001).await, "round {round}");
                world.runtime.sleep(A_ROUND).await;
            }
            assert!(world.takes_port("c", 30_001).await);
        },
    );
}
