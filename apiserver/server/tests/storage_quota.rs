//! Two tenants on one server: one fills its share of the store, the other goes on; deletions make room.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_auth::pki::Identity;
use apiserver_server::SYSTEM_NAMESPACES;
use apiserver_storage::{LogOptions, LogStorage, Quota, Storage};
use bytes::Bytes;
use common::{Answer, Cluster, config, start_on};
use http::Method;
use machinery_runtime::{MemDisk, Runtime};
use serde_json::{Value, json};
use std::sync::Arc;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const SHARE: u64 = 400_000;

async fn storage(runtime: &Runtime, store_bytes: u64, namespace_bytes: u64) -> Arc<LogStorage> {
    let options = LogOptions {
        quota: Quota {
            store_bytes,
            namespace_bytes,
            system_namespaces: SYSTEM_NAMESPACES.map(Box::from).to_vec(),
        },
        ..LogOptions::new("/memory")
    };
    Arc::new(LogStorage::open(runtime, options).await.unwrap().0)
}

/// Two namespaces, each with a user of its name who may do everything in it.
async fn tenants(cluster: &Cluster) -> [Identity; 2] {
    let mut identities = Vec::new();
    for name in ["loud", "quiet"] {
        let made =
            async |path: String, object: Value| cluster.admin().post(&path, object.to_string()).await.is(201);
        made(
            "/api/v1/namespaces".to_owned(),
            json!({"metadata": {"name": name}}),
        )
        .await;
        let account = json!({"metadata": {"name": "default"}});
        made(format!("/api/v1/namespaces/{name}/serviceaccounts"), account).await;
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
        });
        made(format!("{RBAC}/namespaces/{name}/rolebindings"), binding).await;
        let now = cluster.runtime.now();
        let identity = cluster.server.pki().cluster.client(name, None, now).unwrap();
        // The binding counts a moment later.
        let path = format!("/api/v1/namespaces/{name}/configmaps");
        while cluster.as_identity(&identity).get(&path).await.code != 200 {
            cluster.runtime.sleep(std::time::Duration::from_millis(5)).await;
        }
        identities.push(identity);
    }
    identities.try_into().unwrap()
}

async fn send(cluster: &Cluster, who: &Identity, method: Method, path: &str, body: &Value) -> Answer {
    let content = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = if body.is_null() {
        Bytes::new()
    } else {
        body.to_string().into()
    };
    cluster
        .as_identity(who)
        .header("content-type", content)
        .send(method, path, body)
        .await
}

fn config_maps(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps{name}")
}

fn config_map(name: &str, bytes: usize) -> Value {
    json!({"metadata": {"name": name}, "data": {"text": "x".repeat(bytes)}})
}

/// Creates config maps until one is refused; how many there are, and the answer.
async fn fill(cluster: &Cluster, who: &Identity, namespace: &str, bytes: usize) -> (usize, Answer) {
    for at in 0.. {
        let object = config_map(&format!("c{at}"), bytes);
        let answer = send(cluster, who, Method::POST, &config_maps(namespace, ""), &object).await;
        if answer.code != 201 {
            return (at, answer);
        }
    }
    unreachable!("a tenant has no bound");
}

fn pod(name: &str, finalizers: &[&str]) -> Value {
    json!({
        "metadata": {"name": name, "finalizers": finalizers},
        "spec": {"nodeName": "n1", "containers": [{"name": "a", "image": "a"}]},
    })
}

fn statuses(message: &str) -> Value {
    json!({"status": {"message": message}})
}

#[tokio::test(flavor = "multi_thread")]
async fn storage_quota_of_a_tenant_is_nobody_elses() {
    let runtime = Runtime::real().with_disk(Arc::new(MemDisk::new()));
    let storage = storage(&runtime, 0, SHARE).await;
    let cluster = start_on(config(), storage.clone()).await;
    let [loud, quiet] = tenants(&cluster).await;
    let pods = "/api/v1/namespaces/loud/pods";
    let path = |name: &str| format!("{pods}/{name}");
    cluster
        .admin()
        .post(pods, pod("p", &["example.com/a", "example.com/b"]).to_string())
        .await
        .is(201);
    let (count, refused) = fill(&cluster, &loud, "loud", 50_000).await;
    assert!((5..8).contains(&count), "{count}");
    let status = refused.is(403).json();
    let message = status["message"].as_str().unwrap();
    let begins = format!("configmaps \"c{count}\" is forbidden: exceeded quota: storage, requested: bytes=5");
    assert!(message.starts_with(&begins), "{message}");
    let ends = format!(", limited: bytes={SHARE}; delete objects of namespace \"loud\" to make room");
    assert!(message.ends_with(&ends), "{message}");
    assert_eq!(status["reason"], "Forbidden");
    assert_eq!(
        status["details"],
        json!({"name": format!("c{count}"), "kind": "configmaps"})
    );
    // A dry run says the same, an administrator's create too.
    let object = config_map(&format!("c{count}"), 50_000);
    let dry = format!("{}?dryRun=All", config_maps("loud", ""));
    let again = send(&cluster, &loud, Method::POST, &dry, &object).await.is(403);
    assert_eq!(again.json()["message"], message);
    cluster
        .admin()
        .post(&config_maps("loud", ""), object.to_string())
        .await
        .is(403);
    // What does not grow passes, what does not: for a user; a status may grow for the system.
    let ask = async |method, path: String, body: Value| send(&cluster, &loud, method, &path, &body).await;
    let large = config_map("c0", 90_000);
    ask(Method::PUT, config_maps("loud", "/c0"), large.clone())
        .await
        .is(403);
    ask(Method::PUT, config_maps("loud", "/c0?dryRun=All"), large)
        .await
        .is(403);
    ask(Method::PUT, config_maps("loud", "/c0"), config_map("c0", 50_000))
        .await
        .is(200);
    let long = statuses(&"m".repeat(60_000));
    ask(Method::PATCH, path("p/status"), long.clone()).await.is(403);
    let kubelet = |length: usize| {
        let body = statuses(&"m".repeat(length)).to_string();
        let ask = cluster
            .admin()
            .header("content-type", "application/merge-patch+json");
        async move { ask.send(Method::PATCH, &path("p/status"), body.into()).await }
    };
    kubelet(60_000).await.is(200);
    kubelet(600_000).await.is(403);
    // An event says what is wrong.
    let event = json!({"metadata": {"name": "e"}, "message": "full",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "loud"}});
    ask(Method::POST, "/api/v1/namespaces/loud/events".to_owned(), event)
        .await
        .is(201);
    // The other tenant, and the system, go on.
    let other = config_map("c", 200_000);
    send(&cluster, &quiet, Method::POST, &config_maps("quiet", ""), &other)
        .await
        .is(201);
    for namespace in SYSTEM_NAMESPACES {
        let large = config_map("large", 500_000).to_string();
        cluster
            .admin()
            .post(&config_maps(namespace, ""), large)
            .await
            .is(201);
    }
    // A graceful deletion is a change that grows; so is taking a finalizer.
    ask(Method::DELETE, path("p"), Value::Null).await.is(200);
    let one = json!({"metadata": {"finalizers": ["example.com/a"], "annotations": {"a": "b"}}});
    ask(Method::PATCH, path("p"), one).await.is(200);
    let more = json!({"metadata": {"annotations": {"a": "m".repeat(3_000)}}});
    ask(Method::PATCH, path("p"), more).await.is(403);
    let wide = json!({"metadata": {"name": "wide", "labels": {"knarr.dev/storage-quota-bytes": "200k"}}});
    let made = cluster.admin().post("/api/v1/namespaces", wide.to_string()).await;
    made.is(201);
    let metrics = cluster.admin().get("/metrics").await.is(200).body;
    for expected in [
        format!("knarr_storage_namespace_quota_bytes {SHARE}"),
        "knarr_storage_namespace_own_quota_bytes{namespace=\"wide\"} 200000".to_owned(),
        "knarr_storage_namespace_used_bytes{expiring=\"true\",namespace=\"loud\"}".to_owned(),
        "knarr_storage_quota_refused_writes_total{quota=\"namespace\"} ".to_owned(),
    ] {
        assert!(metrics.contains(&expected), "{expected}");
    }
    // Deletions make room: the whole of what the status took beyond the share first.
    for name in ["/c0", "/c1", "/c2"] {
        ask(Method::DELETE, config_maps("loud", name), Value::Null)
            .await
            .is(200);
    }
    ask(Method::POST, config_maps("loud", ""), config_map("c0", 10_000))
        .await
        .is(201);
    assert_eq!(storage.miscounted(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn storage_quota_bounds_what_a_service_says_as_it_gives_its_address_back() {
    let runtime = Runtime::real().with_disk(Arc::new(MemDisk::new()));
    let storage = storage(&runtime, 0, SHARE).await;
    let cluster = start_on(config(), storage.clone()).await;
    let [loud, _] = tenants(&cluster).await;
    let ask = async |method, path: &str, body: Value| send(&cluster, &loud, method, path, &body).await;
    let services = "/api/v1/namespaces/loud/services";
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    ask(Method::POST, services, service.clone()).await.is(201);
    fill(&cluster, &loud, "loud", 50_000).await;
    let used = storage.usage().bytes;
    let large = "m".repeat(100_000);
    let own = format!("{services}/s");
    let dry = format!("{own}?dryRun=All");
    let external = json!({
        "metadata": {"annotations": {"example.com/a": large}},
        "spec": {"type": "ExternalName", "externalName": "a.example", "clusterIP": null, "clusterIPs": null,
            "ipFamilies": null, "ipFamilyPolicy": null, "internalTrafficPolicy": null},
    });
    ask(Method::PATCH, &dry, external.clone()).await.is(403);
    ask(Method::PATCH, &own, external).await.is(403);
    assert!(storage.usage().bytes < used + 10_000);
    // The address is its own still, and goes with it.
    assert_eq!(
        ask(Method::GET, &own, Value::Null).await.is(200).json()["spec"]["type"],
        "ClusterIP"
    );
    ask(Method::DELETE, &own, Value::Null).await.is(200);
    ask(Method::POST, services, service).await.is(201);
    assert_eq!(storage.miscounted(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn storage_quota_lets_finalizers_go_and_nothing_grow_meanwhile() {
    let runtime = Runtime::real().with_disk(Arc::new(MemDisk::new()));
    let storage = storage(&runtime, 0, SHARE).await;
    let cluster = start_on(config(), storage.clone()).await;
    let [loud, _] = tenants(&cluster).await;
    let own = config_maps("loud", "/kept");
    let manager = format!("{own}?fieldManager={}", "m".repeat(128));
    let dry = format!("{manager}&dryRun=All");
    let ask = async |method, path: &str, body: Value| send(&cluster, &loud, method, path, &body).await;
    let (one, two) = (
        json!(["example.com/a"]),
        json!(["example.com/a", "example.com/b"]),
    );
    let kept = json!({"metadata": {"name": "kept", "finalizers": two}});
    ask(Method::POST, &config_maps("loud", ""), kept).await.is(201);
    fill(&cluster, &loud, "loud", 50_000).await;
    let usage = storage.usage();
    let used = usage.largest.iter().find(|own| own.namespace == "loud").unwrap();
    let text = "x".repeat(50_000 + usize::try_from(SHARE - used.lasting_bytes).unwrap() - 100);
    let c0 = config_maps("loud", "/c0");
    ask(Method::PATCH, &c0, json!({"data": {"text": text}}))
        .await
        .is(200);
    ask(Method::DELETE, &own, Value::Null).await.is(200);
    ask(Method::DELETE, &own, json!({"propagationPolicy": "Orphan"}))
        .await
        .is(200);
    // What such a policy adds, no client can.
    let again = json!({"metadata": {"finalizers": ["example.com/a", "foregroundDeletion"]}});
    ask(Method::PATCH, &own, again).await.is(422);
    let large = json!({"metadata": {"finalizers": one}, "data": {"text": "x".repeat(20_000)}});
    let small = json!({"metadata": {"finalizers": one, "annotations": {"a": "b"}}});
    for (change, code) in [(large, 403), (small, 200)] {
        ask(Method::PATCH, &dry, change.clone()).await.is(code);
        ask(Method::PATCH, &manager, change).await.is(code);
    }
    // The record of field managers has no room, and is the server's to drop.
    let left = ask(Method::GET, &own, Value::Null).await.is(200).json();
    assert_eq!(left["metadata"]["managedFields"], Value::Null);
    let none = json!({"metadata": {"finalizers": null}});
    ask(Method::PATCH, &own, none).await.is(200);
    ask(Method::GET, &own, Value::Null).await.is(404);
    assert_eq!(storage.miscounted(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn storage_quota_of_a_tenant_is_no_nodes_to_fill() {
    let runtime = Runtime::real().with_disk(Arc::new(MemDisk::new()));
    let storage = storage(&runtime, 32 << 20, 4 << 20).await;
    let cluster = start_on(config(), storage.clone()).await;
    let [loud, _] = tenants(&cluster).await;
    let pki = &cluster.server.pki().cluster;
    let node = pki
        .client("system:node:n1", Some("system:nodes"), runtime.now())
        .unwrap();
    let made = json!({"metadata": {"name": "n1"}});
    let own = send(&cluster, &node, Method::POST, "/api/v1/nodes", &made).await;
    let uid = own.is(201).json()["metadata"]["uid"].clone();
    let pods = "/api/v1/namespaces/loud/pods";
    for name in ["p0", "p1", "p2"] {
        cluster
            .admin()
            .post(pods, pod(name, &[]).to_string())
            .await
            .is(201);
    }
    // A node may add 1 MiB here, which three such statuses are not.
    let status = async |name: &str, bytes: usize| {
        let path = format!("{pods}/{name}/status");
        send(
            &cluster,
            &node,
            Method::PATCH,
            &path,
            &statuses(&"m".repeat(bytes)),
        )
        .await
    };
    status("p0", 450_000).await.is(200);
    status("p1", 450_000).await.is(200);
    let refused = status("p2", 450_000).await.is(403).json();
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("exceeded quota: storage"), "{message}");
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": true});
    let mut mirror = pod("m", &[]);
    mirror["metadata"] = json!({"name": "m", "ownerReferences": [owner], "annotations":
        {"kubernetes.io/config.mirror": "a", "example.com/a": "m".repeat(200_000)}});
    send(&cluster, &node, Method::POST, pods, &mirror).await.is(403);
    mirror["metadata"]["annotations"]["example.com/a"] = json!("short");
    send(&cluster, &node, Method::POST, pods, &mirror).await.is(201);
    status("p2", 1_000).await.is(200);
    let object = config_map("c", 500_000);
    send(&cluster, &loud, Method::POST, &config_maps("loud", ""), &object)
        .await
        .is(201);
    assert_eq!(storage.miscounted(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn storage_quota_is_counted_again_at_a_start() {
    let runtime = Runtime::real().with_disk(Arc::new(MemDisk::new()));
    let before = start_on(config(), storage(&runtime, 0, SHARE).await).await;
    let [loud, _] = tenants(&before).await;
    let (count, _) = fill(&before, &loud, "loud", 50_000).await;
    before.server.shutdown().await;
    let storage = storage(&runtime, 0, SHARE).await;
    let cluster = start_on(config(), storage.clone()).await;
    let object = config_map("more", 50_000).to_string();
    cluster
        .admin()
        .post(&config_maps("loud", ""), object.clone())
        .await
        .is(403);
    let first = config_maps("loud", "/c0");
    cluster
        .admin()
        .send(Method::DELETE, &first, Bytes::new())
        .await
        .is(200);
    cluster
        .admin()
        .post(&config_maps("loud", ""), object)
        .await
        .is(201);
    assert!(count > 0 && storage.miscounted().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn storage_quota_of_the_whole_store_spares_the_system() {
    let runtime = Runtime::real().with_disk(Arc::new(MemDisk::new()));
    let storage = storage(&runtime, 8 << 20, 0).await;
    let cluster = start_on(config(), storage.clone()).await;
    let [loud, quiet] = tenants(&cluster).await;
    let ready = async || cluster.admin().get("/readyz/storage-space").await.code.as_u16();
    assert_eq!(ready().await, 200);
    let (count, refused) = fill(&cluster, &loud, "loud", 500_000).await;
    // In etcd's words and as upstream passes them on: without a reason.
    let status = refused.is(500).json();
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with("etcdserver: mvcc: database space exceeded"),
        "{message}"
    );
    assert!(status.get("reason").is_none(), "{status}");
    let object = config_map("c", 500_000);
    send(&cluster, &quiet, Method::POST, &config_maps("quiet", ""), &object)
        .await
        .is(500);
    // A server that deletes must be reached.
    assert_eq!(ready().await, 500);
    cluster.admin().get("/readyz").await.is(200);
    let metrics = cluster.admin().get("/metrics").await.is(200).body;
    assert!(metrics.contains("knarr_storage_quota_full 1"));
    let made = async |path: &str, object: Value| cluster.admin().post(path, object.to_string()).await.is(201);
    made(&config_maps("kube-system", ""), config_map("c", 100_000)).await;
    made("/api/v1/namespaces", json!({"metadata": {"name": "new"}})).await;
    let lease = json!({"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1"}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    made(leases, lease).await;
    let node = json!({"metadata": {"name": "n1"}});
    made("/api/v1/nodes", node).await;
    let last = config_maps("loud", &format!("/c{}", count - 1));
    send(&cluster, &loud, Method::DELETE, &last, &Value::Null)
        .await
        .is(200);
    assert_eq!(ready().await, 200);
    let smaller = config_map("c", 100_000);
    send(
        &cluster,
        &quiet,
        Method::POST,
        &config_maps("quiet", ""),
        &smaller,
    )
    .await
    .is(201);
    assert_eq!(storage.miscounted(), Vec::<String>::new());
    assert!(storage.usage().bytes <= 8 << 20);
}

/// No other tenant's watches and continue tokens end early because one tenant changes an object again and again.
#[tokio::test(flavor = "multi_thread")]
async fn storage_past_of_a_tenant_has_a_share() {
    let runtime = Runtime::real().with_disk(Arc::new(MemDisk::new()));
    let options = LogOptions {
        kept_log_bytes: 4 << 20,
        ..LogOptions::new("/memory")
    };
    let storage = Arc::new(LogStorage::open(&runtime, options).await.unwrap().0);
    let cluster = start_on(config(), storage.clone()).await;
    let [loud, quiet] = tenants(&cluster).await;
    let own = |namespace| config_maps(namespace, "/c");
    for (who, namespace) in [(&loud, "loud"), (&quiet, "quiet")] {
        let object = config_map("c", 10);
        let made = send(&cluster, who, Method::POST, &config_maps(namespace, ""), &object).await;
        made.is(201);
    }
    let put = async |who, namespace, bytes: usize| {
        let object = config_map("c", 100_000 + bytes);
        send(&cluster, who, Method::PUT, &own(namespace), &object).await
    };
    let mut refused = None;
    for round in 0..60 {
        let answer = put(&loud, "loud", round).await;
        if answer.code != 200 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("a tenant writes the past of all").is(429);
    assert_eq!(refused.headers["retry-after"], "30");
    let status = refused.json();
    assert_eq!(status["reason"], "TooManyRequests");
    assert_eq!(status["details"]["retryAfterSeconds"], 30);
    assert_eq!(
        status["message"],
        "Too many requests: the objects of namespace \"loud\" changed by more bytes than its share of the kept history, \
         please try again later"
    );
    put(&quiet, "quiet", 0).await.is(200);
    send(&cluster, &loud, Method::DELETE, &own("loud"), &Value::Null)
        .await
        .is(200);
    let metrics = cluster.admin().get("/metrics").await.is(200).body;
    assert!(
        metrics.contains("knarr_storage_past_refused_writes_total 1"),
        "{metrics}"
    );
}
