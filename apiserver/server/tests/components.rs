//! Every loop of the server outlives a panic: it is down and says so, begins again, and works.
//!
//! The loops come from the registry of components, so that a new one fails here until it is looked at; what is spawned
//! without supervision is listed with the reason.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_server::{AuditLogConfig, ExpiryBounds, ServerConfig};
use apiserver_storage::LogStorage;
use bytes::Bytes;
use common::{Cluster, config, start_in};
use http::Method;
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const PAUSE: Duration = Duration::from_millis(5);
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// The proof that a component works again.
#[derive(Clone, Copy, PartialEq)]
enum Proof {
    /// It does what only it does.
    Authorizes,
    Audits,
    Listens,
    ServesDefinitions,
    RegistersVersions,
    KeepsSchemas,
    RepairsAddresses,
    RecordsEvents,
    ExpiresEvents,
    /// It waits for longer than a test can; that it runs again has to do.
    Runs,
}

const PROOFS: [(&str, Proof); 22] = [
    ("API services", Proof::RegistersVersions),
    ("audit", Proof::Audits),
    ("authorities of extensions", Proof::Runs),
    ("authorization-feed", Proof::Authorizes),
    ("certificate-renewal", Proof::Runs),
    ("component events", Proof::RecordsEvents),
    ("configurations of admission", Proof::Runs),
    ("custom resource definitions", Proof::ServesDefinitions),
    ("early expiry", Proof::ExpiresEvents),
    ("file-reload", Proof::Runs),
    ("flow control limits", Proof::Runs),
    ("flow control objects", Proof::KeepsSchemas),
    ("kubernetes service", Proof::Runs),
    ("listener", Proof::Listens),
    ("node port repair", Proof::Runs),
    ("resource metrics", Proof::Runs),
    ("service address repair", Proof::RepairsAddresses),
    ("storage compaction", Proof::Runs),
    ("storage expiry", Proof::Runs),
    ("storage room", Proof::Runs),
    ("storage scrub", Proof::Runs),
    ("stored object counts", Proof::Runs),
];

/// Tasks of the server that belong to one request, connection or object, or end by themselves.
const SHORT_LIVED: [&str; 15] = [
    "additional-latency",
    // Ends when its batch is sent or dropped.
    "audit-webhook",
    "connection",
    // Begins again by itself.
    "definition cleanup",
    "definition renewal",
    "discovery of an issuer",
    "egress-connection",
    "mutation",
    "paced-body",
    // Ends when the step is done.
    "start-up step",
    "tunnel",
    // Ends once all objects are named.
    "unenforced objects",
    // Begun by each watch that finds a share spent.
    "unread-memory",
    "service-connection",
    "websocket",
];

async fn cluster(folder: &TempDir) -> Cluster {
    let scope = Runtime::real().child_scope();
    let storage = LogStorage::memory(scope.runtime()).await.unwrap();
    let config = ServerConfig {
        audit_log: Some(AuditLogConfig::new(folder.path().join("audit.log"))),
        cert_dir: Some(folder.path().join("pki")),
        events_per_namespace: ExpiryBounds {
            objects: 0,
            bytes: 1 << 20,
        },
        ..config()
    };
    start_in(scope, config, Arc::new(storage)).await
}

/// The sweep ends as soon as it has looked at everything.
const ENDS: &str = "time to live sweep";

fn names(cluster: &Cluster) -> Vec<&'static str> {
    let all = cluster.runtime.components().all();
    all.iter()
        .map(|(name, _)| *name)
        .filter(|name| *name != ENDS)
        .collect()
}

async fn until<T>(cluster: &Cluster, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look().await {
            return found;
        }
        cluster.runtime.sleep(PAUSE).await;
    }
}

async fn until_json(cluster: &Cluster, path: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    until(cluster, async || {
        let answer = cluster.admin().get(path).await;
        let json = (answer.code == 200).then(|| answer.json());
        json.filter(|json| is_right(json))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn component_panic_is_reported_and_the_component_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = cluster(&folder).await;
    let known: Vec<&str> = PROOFS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names(&cluster), known, "each component has its proof");
    let address = with_service(&cluster).await;
    for name in &known {
        cluster.runtime.components().break_down(name);
        let is_down = async || {
            let all = cluster.runtime.components().all();
            let of_name = all.into_iter().find(|(own, _)| own == name);
            of_name.and_then(|(_, down)| down)
        };
        until(&cluster, is_down).await;
    }
    // Each time it fails it is down for longer.
    let unready = until(&cluster, async || {
        cluster.runtime.components().break_down("flow control limits");
        let answer = cluster.admin().get("/readyz?verbose").await;
        (answer.code == 500).then_some(answer)
    });
    let unready = unready.await.body;
    assert!(
        unready.contains("[-]component/flow-control-limits failed"),
        "{unready}"
    );
    for name in &known {
        until(&cluster, async || {
            let all = cluster.runtime.components().all();
            all.contains(&(*name, None)).then_some(())
        })
        .await;
    }
    for (name, proof) in PROOFS {
        prove(&cluster, &folder, proof, &address).await;
        let metric = format!("knarr_component_restarts_total{{component=\"{name}\"}} ");
        let metrics = cluster.admin().get("/metrics").await.is(200).body;
        assert!(metrics.contains(&metric), "{metric}");
    }
    cluster.admin().get("/readyz").await.is(200);
}

/// A service whose address is recorded.
async fn with_service(cluster: &Cluster) -> String {
    let spec = json!({"ports": [{"port": 80}], "selector": {"app": "x"}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": spec});
    let made = cluster
        .admin()
        .post(SERVICES, service.to_string())
        .await
        .is(201)
        .json();
    let address = made["spec"]["clusterIP"].as_str().unwrap();
    format!("{ADDRESSES}/{address}")
}

/// Six of 200 KiB are more than the bound.
async fn expires_events(cluster: &Cluster) {
    const EVENTS: &str = "/api/v1/namespaces/kube-public/events";
    for at in 0..6 {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "message": "x".repeat(200 << 10),
            "metadata": {"name": format!("e{at}")},
            "involvedObject": {"namespace": "kube-public", "name": "web", "kind": "Pod"}
        });
        cluster.admin().post(EVENTS, event.to_string()).await.is(201);
    }
    let is_bounded = |list: &Value| list["items"].as_array().is_some_and(|items| items.len() < 6);
    until_json(cluster, EVENTS, is_bounded).await;
}

async fn prove(cluster: &Cluster, folder: &TempDir, proof: Proof, address: &str) {
    match proof {
        Proof::Runs => {}
        Proof::Listens => drop(cluster.admin().get("/livez").await.is(200)),
        Proof::Authorizes => authorizes(cluster).await,
        Proof::Audits => audits(cluster, folder).await,
        Proof::ServesDefinitions => drop(until_json(cluster, &define(cluster).await, |_| true).await),
        Proof::RegistersVersions => {
            define(cluster).await;
            let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1.knarr.test";
            until_json(cluster, path, |_| true).await;
        }
        Proof::KeepsSchemas => keeps_schemas(cluster).await,
        Proof::ExpiresEvents => expires_events(cluster).await,
        Proof::RepairsAddresses => {
            let delete = cluster.admin().send(Method::DELETE, address, Bytes::new());
            let before = delete.await.is(200).json();
            let is_new = |json: &Value| json["metadata"]["uid"] != before["details"]["uid"];
            until_json(cluster, address, is_new).await;
        }
        Proof::RecordsEvents => {
            for (name, _) in PROOFS {
                let path = "/api/v1/namespaces/default/events";
                let told = format!("Component {name} failed");
                let is_told = |event: &Value| {
                    event["reason"] == "ComponentRestarted"
                        && event["involvedObject"]["name"] == "kubernetes"
                        && event["message"].as_str().unwrap().starts_with(&told)
                };
                until_json(cluster, path, |list| {
                    list["items"].as_array().unwrap().iter().any(is_told)
                })
                .await;
            }
        }
    }
}

async fn authorizes(cluster: &Cluster) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "anna"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "anna"}],
    });
    cluster.admin().post(BINDINGS, binding.to_string()).await.is(201);
    let authority = &cluster.server.pki().cluster;
    let anna = authority.client("anna", None, cluster.runtime.now()).unwrap();
    until(cluster, async || {
        let answer = cluster.as_identity(&anna).get(SERVICES).await;
        (answer.code == 200).then_some(())
    })
    .await;
}

async fn audits(cluster: &Cluster, folder: &TempDir) {
    let path = "/api/v1/namespaces/default/configmaps/told-after-the-panic";
    cluster.admin().get(path).await.is(404);
    until(cluster, async || {
        let text = std::fs::read_to_string(folder.path().join("audit.log")).unwrap();
        text.contains(path).then_some(())
    })
    .await;
}

/// A definition, made once; the path of its objects.
async fn define(cluster: &Cluster) -> String {
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.knarr.test"},
        "spec": {
            "group": "knarr.test", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    let made = cluster.admin().post(DEFINITIONS, definition.to_string()).await;
    assert!([201, 409].contains(&made.code.as_u16()), "{}", made.body);
    "/apis/knarr.test/v1/namespaces/default/boats".to_owned()
}

async fn keeps_schemas(cluster: &Cluster) {
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "dangling"},
        "spec": {"priorityLevelConfiguration": {"name": "missing"}, "matchingPrecedence": 50},
    });
    cluster.admin().post(SCHEMAS, schema.to_string()).await.is(201);
    let is_told = |json: &Value| json["status"]["conditions"][0]["status"] == "True";
    until_json(cluster, &format!("{SCHEMAS}/dangling"), is_told).await;
}

/// The names of tasks that are spawned without supervision, in the sources of a crate.
fn spawned(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            spawned(&path, found);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        // Tests stand at the end of a file or in one of their own.
        let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for call in product.split(".spawn(").skip(1) {
            let name = call
                .trim_start()
                .strip_prefix('"')
                .and_then(|rest| rest.split('"').next());
            found.extend(name.map(str::to_owned));
        }
    }
}

#[test]
fn component_loops_are_supervised() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = BTreeSet::new();
    for part in ["server", "registry", "admission", "auth", "egress", "endpoints"] {
        spawned(&root.join(part).join("src"), &mut found);
    }
    let listed: BTreeSet<String> = SHORT_LIVED.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(
        found, listed,
        "a loop is kept by `Runtime::keep` or `supervise`; what ends by itself is listed here"
    );
}
