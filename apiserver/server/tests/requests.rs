//! Bad input and clients that leave: every one gets its answer, and nothing acknowledged is lost.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_server::ServerConfig;
use apiserver_storage::{LogStorage, Storage};
use bytes::Bytes;
use common::{Cluster, config, post_head, start, start_on, start_with};
use http::Method;
use http_body_util::{BodyExt, Full};
use machinery_runtime::Runtime;
use serde_json::json;
use std::sync::Arc;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str) -> String {
    json!({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":name}}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn debug_pages_and_metrics_of_health_and_admission_are_there() {
    let cluster = start().await;
    let admin = || cluster.admin();
    for path in ["/statusz", "/flagz", "/metrics/slis"] {
        cluster.nobody().get(path).await.is(403);
    }
    let page = admin().get("/statusz").await.is(200).body;
    assert!(
        page.starts_with("\napiserver statusz\nWarning: ") && page.contains("\nBinary version: 1.37"),
        "{page}"
    );
    let form = "application/json;as=Statusz;v=v1beta1;g=config.k8s.io";
    let status = admin()
        .header("accept", form)
        .get("/statusz")
        .await
        .is(200)
        .json();
    assert_eq!(status["kind"], "Statusz");
    assert_eq!(status["emulationVersion"], "1.37");
    let refused = admin().header("accept", "application/json").get("/statusz").await;
    let words = "application/json, application/yaml, text/plain";
    assert!(
        refused.is(406).json()["message"]
            .as_str()
            .unwrap()
            .ends_with(words)
    );
    admin().get("/flagz").await.is(200);
    admin().get("/readyz").await.is(200);
    let checks = admin().get("/metrics/slis").await.is(200).body;
    for line in [
        r#"kubernetes_healthcheck{name="etcd",type="readyz"} 1"#,
        r#"kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} "#,
    ] {
        assert!(checks.contains(line), "{checks}");
    }
    let pod = r#"{"metadata":{"name":"p"},"spec":{"serviceAccountName":"none","containers":[{"name":"c","image":"i"}]}}"#;
    admin().post("/api/v1/namespaces/default/pods", pod).await.is(403);
    let metrics = admin().get("/metrics").await.body;
    for line in [
        r#"step_admission_duration_seconds_count{operation="CREATE",rejected="true",type="admit"} 1"#,
        r#"controller_admission_duration_seconds_count{name="ServiceAccount",operation="CREATE",rejected="true",type="admit"} 1"#,
    ] {
        let line = format!("apiserver_admission_{line}");
        assert!(metrics.contains(&line), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fresh_server_has_default_objects() {
    let cluster = start().await;
    let count = |list: serde_json::Value| list["items"].as_array().unwrap().len();
    assert_eq!(
        count(cluster.admin().get("/api/v1/namespaces").await.is(200).json()),
        4
    );
    let roles = cluster
        .admin()
        .get("/apis/rbac.authorization.k8s.io/v1/clusterroles")
        .await
        .is(200)
        .json();
    assert_eq!(count(roles), 78);
    let service = cluster
        .admin()
        .get("/api/v1/namespaces/default/services/kubernetes")
        .await
        .is(200)
        .json();
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
    let endpoints = cluster
        .admin()
        .get("/api/v1/namespaces/default/endpoints/kubernetes")
        .await
        .is(200)
        .json();
    assert_eq!(
        endpoints["subsets"][0]["ports"][0]["port"],
        cluster.address.port()
    );
    let verbose = cluster.nobody().get("/readyz?verbose").await.is(200).body;
    assert!(
        verbose.contains("[+]etcd ok\n") && verbose.ends_with("readyz check passed\n"),
        "{verbose}"
    );
    let keys = cluster.admin().get("/openid/v1/jwks").await.is(200).json();
    assert_eq!(keys["keys"][0]["alg"], "ES256");
}

/// Over HTTP/2, where a body after the answer to HEAD breaks the stream.
#[tokio::test(flavor = "multi_thread")]
async fn head_request_gets_no_body() {
    let cluster = start().await;
    let mut sender = cluster.http2().await;
    let request = http::Request::head("https://test/healthz").body(Full::default());
    let response = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-length"], "2");
    assert!(
        response
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes()
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_bounded() {
    let cluster = start().await;
    let large = Bytes::from(vec![b' '; (3 << 20) + 1]);
    let refused = cluster.admin().post(CONFIG_MAPS, large).await.is(413).json();
    assert_eq!(refused["reason"], "RequestEntityTooLarge");
    // As upstream's router, which has no handler that would read it.
    for (path, code) in [
        (format!("{CONFIG_MAPS}/a"), 405),
        ("/api/v1/namespaces/default/nothings".to_owned(), 404),
        ("/apis/made.up/v1/things".to_owned(), 404),
        ("/made/up".to_owned(), 404),
        ("/version".to_owned(), 405),
    ] {
        let large = Bytes::from(vec![b' '; 4 << 20]);
        cluster.admin().post(&path, large).await.is(code);
    }
    let tight = start_with(apiserver_server::ServerConfig {
        body_memory_bytes: 2_048,
        ..config()
    })
    .await;
    // The beginning of a body, 64 KiB, is not counted.
    let large = vec![b' '; 128 << 10];
    let answer = tight.admin().post(CONFIG_MAPS, large).await.is(429);
    assert_eq!(answer.headers["retry-after"], "1");
    tight.admin().post(CONFIG_MAPS, config_map("small")).await.is(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_requests_get_upstreams_answers() {
    let cluster = start().await;
    let send = |form: &'static str, body: &'static str| {
        cluster
            .admin()
            .header("content-type", form)
            .send(Method::POST, CONFIG_MAPS, Bytes::from(body))
    };
    assert_eq!(
        send("application/json", "{").await.is(400).json()["reason"],
        "BadRequest"
    );
    assert_eq!(
        send("application/xml", "<a/>").await.is(415).json()["reason"],
        "UnsupportedMediaType"
    );
    let accept = cluster
        .admin()
        .header("accept", "application/xml")
        .get(CONFIG_MAPS)
        .await
        .is(406)
        .json();
    assert_eq!(accept["reason"], "NotAcceptable");
    let timeout = cluster
        .admin()
        .get("/api/v1/namespaces?timeout=x")
        .await
        .is(400)
        .json();
    assert_eq!(timeout["reason"], "BadRequest");
    cluster.admin().get("/no/such/path").await.is(404);
    cluster
        .admin()
        .get(&format!("/api/v1/pods?x={}", "y".repeat(40_000)))
        .await
        .is(200);
    let gone = json!({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}).to_string();
    let missing = cluster
        .admin()
        .post("/api/v1/namespaces/nowhere/configmaps", gone)
        .await
        .is(404)
        .json();
    assert_eq!(missing["message"], r#"namespaces "nowhere" not found"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_leaving_during_body_changes_nothing() {
    let cluster = start().await;
    let body = config_map("half");
    let half = &body[..body.len() / 2];
    drop(cluster.sent(post_head(CONFIG_MAPS, &body) + half).await);
    cluster.admin().get(&format!("{CONFIG_MAPS}/half")).await.is(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_leaving_after_body_changes_all_or_nothing() {
    let cluster = start().await;
    for at in 0..20 {
        let body = config_map(&format!("left-{at}"));
        drop(cluster.sent(post_head(CONFIG_MAPS, &body) + &body).await);
    }
    let list = cluster.admin().get(CONFIG_MAPS).await.is(200).json();
    for item in list["items"].as_array().unwrap() {
        assert!(item["metadata"]["uid"].is_string());
    }
    // The server answers as before.
    cluster
        .admin()
        .post(CONFIG_MAPS, config_map("after"))
        .await
        .is(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_server_ends_it() {
    let cluster = start().await;
    let (address, runtime) = (cluster.address, cluster.runtime.clone());
    cluster.server.shutdown().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    drop(runtime);
}

#[tokio::test(flavor = "multi_thread")]
async fn unenforced_warning_is_sent_for_every_form() {
    let cluster = start().await;
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let ingress = |name: &str| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name},
            "spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}})
        .to_string()
    };
    let told = |answer: &common::Answer| {
        let mut warnings = answer.headers.get_all("warning").iter();
        warnings.any(|own| {
            own.to_str()
                .unwrap()
                .contains("stored but not enforced by this server yet")
        })
    };
    assert!(told(
        &cluster.admin().post(ingresses, ingress("posted")).await.is(201)
    ));
    let apply = async || {
        let ask = cluster
            .admin()
            .header("content-type", "application/apply-patch+yaml");
        let path = format!("{ingresses}/applied?fieldManager=test");
        ask.send(Method::PATCH, &path, Bytes::from(ingress("applied")))
            .await
    };
    assert!(told(&apply().await.is(201)));
    assert!(!told(&apply().await.is(200)), "only what is new is told of");
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
            "containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "a", "emptyDir": {}},
                {"name": "b", "nfs": {"server": "s", "path": "/"}}]}}}});
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let answer = cluster.admin().post(sets, set.to_string()).await.is(201);
    let volume = "spec.template.spec.volumes[1].nfs: stored but not enforced by this server yet";
    assert!(answer.headers["warning"].to_str().unwrap().contains(volume));
    let asks = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asks"}, "spec": {
        "restartPolicy": "Never", "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
        "initContainers": [{"name": "side", "image": "i", "restartPolicy": "Always"}],
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"ephemeral-storage": "1Gi"}},
            "restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]}],
        "volumes": [{"name": "a", "emptyDir": {"sizeLimit": "1Mi"}},
            {"name": "b", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "c", "iscsi": {"targetPortal": "t", "iqn": "iqn.2001-04.com.example:s", "lun": 0}}]}});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    cluster.admin().post(accounts, account.to_string()).await.is(201);
    let pods = "/api/v1/namespaces/default/pods";
    let answer = cluster.admin().post(pods, asks.to_string()).await.is(201);
    let told_of: Vec<&str> = answer
        .headers
        .get_all("warning")
        .iter()
        .map(|own| own.to_str().unwrap())
        .collect();
    assert_eq!(told_of.len(), 1, "{told_of:?}");
    assert!(
        told_of[0].contains("spec.volumes[2].iscsi: stored"),
        "{told_of:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unenforced_objects_that_guard_are_refused_however_they_come() {
    let storage: Arc<dyn Storage> = Arc::new(LogStorage::memory(&Runtime::real()).await.unwrap());
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let policy = |name: &str, ingress: serde_json::Value| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": ingress}})
        .to_string()
    };
    let patch = async |cluster: &Cluster, kind: &str, path: &str, body: String| {
        let ask = cluster.admin().header("content-type", kind);
        ask.send(Method::PATCH, path, Bytes::from(body)).await
    };
    let (apply, merge) = ("application/apply-patch+yaml", "application/merge-patch+json");
    let path = |name: &str| format!("{policies}/{name}");
    let applied = |name: &str| format!("{policies}/{name}?fieldManager=test");

    // Two servers on one storage, of which one has the flag.
    let allowing = start_on(
        ServerConfig {
            allow_unenforced: true,
            ..config()
        },
        Arc::clone(&storage),
    )
    .await;
    let stored = allowing.admin().post(policies, policy("closed", json!([]))).await;
    let warning = stored.is(201).headers["warning"].to_str().unwrap().to_owned();
    assert!(warning.contains("traffic is not filtered"), "{warning}");

    allowing
        .admin()
        .post(policies, policy("wide", json!([{}])))
        .await
        .is(201);

    let cluster = start_on(config(), storage).await;
    // The one that guards nothing is counted as the server starts.
    let counted = "knarr_unenforced_objects{group=\"networking.k8s.io\",resource=\"networkpolicies\"} 1\n";
    while !cluster.admin().get("/metrics").await.body.contains(counted) {
        cluster.runtime.sleep(std::time::Duration::from_millis(5)).await;
    }
    let refused = cluster
        .admin()
        .post(policies, policy("shut", json!([])))
        .await
        .is(403);
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("spec.policyTypes: Ingress"), "{message}");
    assert!(message.contains("--allow-unenforced"), "{message}");
    let shut = policy("shut", json!([]));
    patch(&cluster, apply, &applied("shut"), shut).await.is(403);
    cluster
        .admin()
        .post(policies, policy("open", json!([{}])))
        .await
        .is(201);
    let closing = json!({"spec": {"ingress": []}}).to_string();
    patch(&cluster, merge, &path("open"), closing).await.is(403);
    let closing = policy("open", json!([]));
    cluster
        .admin()
        .send(Method::PUT, &path("open"), closing.into())
        .await
        .is(403);
    // Stored earlier: labels and finalizers go, its rules stay.
    let labels = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    patch(&cluster, merge, &path("closed"), labels).await.is(200);
    let other = json!({"spec": {"podSelector": {"matchLabels": {"a": "b"}}}}).to_string();
    patch(&cluster, merge, &path("closed"), other).await.is(403);
    cluster
        .admin()
        .send(Method::DELETE, &path("closed"), Bytes::new())
        .await
        .is(200);
}
