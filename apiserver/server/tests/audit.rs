//! The audit log: every request is in it, whatever its client does.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;
mod gate;

use apiserver_server::{AuditLogConfig, ServerConfig};
use apiserver_storage::{LogStorage, Storage};
use bytes::Bytes;
use common::{Cluster, config, post_head, start_on};
use gate::GatedStorage;
use http::Method;
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct Audited {
    cluster: Cluster,
    storage: Arc<GatedStorage>,
    folder: tempfile::TempDir,
}

fn log_of(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("audit.log")
}

async fn audited(policy: Option<&str>) -> Audited {
    let folder = tempfile::tempdir().unwrap();
    let policy = policy.map(|text| {
        let path = folder.path().join("policy.yaml");
        std::fs::write(&path, text).unwrap();
        path
    });
    let storage = Arc::new(GatedStorage::new(
        LogStorage::memory(&Runtime::real()).await.unwrap(),
    ));
    let config = ServerConfig {
        audit_log: Some(AuditLogConfig::new(log_of(&folder))),
        audit_policy_file: policy,
        ..config()
    };
    let cluster = start_on(config, Arc::clone(&storage) as Arc<dyn Storage>).await;
    Audited {
        cluster,
        storage,
        folder,
    }
}

impl Audited {
    /// The first event of which this is true, once it is there.
    async fn event(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let text = std::fs::read_to_string(log_of(&self.folder)).unwrap();
            let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            let mut events = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
            if let Some(found) = events.find(&is_it) {
                return found;
            }
            self.cluster.runtime.sleep(Duration::from_millis(5)).await;
        }
    }

    async fn event_of(&self, name: &str, stage: &str) -> Value {
        self.event(|event| event["objectRef"]["name"] == name && event["stage"] == stage)
            .await
    }
}

fn config_map(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_tells_of_a_write_whose_client_hung_up() {
    let server = audited(None).await;
    let cluster = &server.cluster;
    cluster
        .admin()
        .post(CONFIG_MAPS, config_map("left"))
        .await
        .is(201);
    let begun = server.storage.close_gate("/registry/configmaps/default/left");
    let mut stream = cluster.connect(Some(&cluster.admin)).await;
    let head = format!("DELETE {CONFIG_MAPS}/left HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    begun.await.unwrap();
    drop(stream);
    cluster.admin().get("/readyz").await.is(200);
    server.storage.open_gate();
    let received = server.event_of("left", "RequestReceived").await;
    assert_eq!(received["responseStatus"], Value::Null);
    let complete = server.event_of("left", "ResponseComplete").await;
    assert_eq!(complete["responseStatus"]["code"], 200, "what became of it");
    assert_eq!(complete["verb"], "delete");
    assert_eq!(complete["auditID"], received["auditID"]);
    assert_eq!(complete["annotations"]["authorization.k8s.io/decision"], "allow");
    // So do the counters.
    let deleted = "apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"\",\
                   resource=\"configmaps\",scope=\"resource\",subresource=\"\",verb=\"DELETE\",version=\"v1\"} 1";
    while !cluster.admin().get("/metrics").await.body.contains(deleted) {
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_tells_of_a_client_that_left_while_sending() {
    let server = audited(None).await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let head = post_head(path, &" ".repeat(1_000));
    let stream = server.cluster.sent(head).await;
    let is_review = |event: &Value| event["objectRef"]["resource"] == "selfsubjectaccessreviews";
    server.event(is_review).await;
    drop(stream);
    let last = server
        .event(|event| is_review(event) && event["stage"] == "ResponseComplete")
        .await;
    // As the server saw it: a body that broke off, or a client that went first.
    let code = last["responseStatus"]["code"].as_u64().unwrap();
    assert!([400, 499].contains(&code), "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_tells_who_failed_to_authenticate() {
    let server = audited(None).await;
    server
        .cluster
        .nobody()
        .token("wrong")
        .get("/api/v1/secrets")
        .await
        .is(401);
    let event = server.event(|event| event["responseStatus"]["code"] == 401).await;
    assert_eq!(event["stage"], "ResponseStarted");
    assert_eq!(
        event["responseStatus"]["message"],
        "Authentication failed, attempted: bearer"
    );
    assert_eq!(event["user"], json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_names_the_impersonated_user() {
    let server = audited(None).await;
    let ask = server.cluster.admin().header("impersonate-user", "anna");
    ask.get(&format!("{CONFIG_MAPS}/hers")).await.is(403);
    let event = server.event_of("hers", "ResponseComplete").await;
    assert_eq!(event["user"]["username"], "admin");
    assert_eq!(event["impersonatedUser"]["username"], "anna");
    assert_eq!(event["responseStatus"]["reason"], "Forbidden");
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "forbid");
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_of_a_watch_has_a_beginning_and_an_end() {
    let server = audited(None).await;
    let watch = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=1");
    server.cluster.admin().get(&watch).await.is(200);
    let stage = |stage: &'static str| {
        server.event(move |event| {
            event["verb"] == "watch"
                && event["stage"] == stage
                && event["objectRef"]["resource"] == "configmaps"
        })
    };
    let started = stage("ResponseStarted").await;
    let complete = stage("ResponseComplete").await;
    assert_eq!(started["responseStatus"]["code"], 200);
    assert!(started["stageTimestamp"].as_str() < complete["stageTimestamp"].as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_policy_decides_what_is_told() {
    const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  resources: [{resources: [secrets]}]
- level: RequestResponse
  omitManagedFields: true
  resources: [{resources: [configmaps]}]
- level: Metadata
"#;
    let server = audited(Some(POLICY)).await;
    let admin = || server.cluster.admin();
    admin().get("/api/v1/namespaces/default/secrets/x").await.is(404);
    admin().post(CONFIG_MAPS, config_map("told")).await.is(201);
    let form = "application/vnd.kubernetes.protobuf";
    let own = format!("{CONFIG_MAPS}/told");
    admin().header("accept", form).get(&own).await.is(200);
    let patch = Bytes::from_static(br#"{"data":{"a":"b"}}"#);
    let patching = admin().header("content-type", "application/merge-patch+json");
    patching.send(Method::PATCH, &own, patch).await.is(200);
    let created = server.event(|event| event["verb"] == "create").await;
    assert_eq!(created["stage"], "ResponseComplete");
    assert_eq!(created["requestObject"]["metadata"]["name"], "told");
    assert_eq!(created["responseObject"]["kind"], "ConfigMap");
    assert!(created["responseObject"]["metadata"]["uid"].is_string());
    let got = server
        .event(|event| event["verb"] == "get" && event["objectRef"]["name"] == "told")
        .await;
    assert_eq!(got["responseObject"]["metadata"]["name"], "told");
    let patched = server.event(|event| event["verb"] == "patch").await;
    assert_eq!(patched["requestObject"], json!({"data": {"a": "b"}}));
    assert_eq!(
        patched["responseObject"]["metadata"]["managedFields"],
        Value::Null
    );
    let text = std::fs::read_to_string(log_of(&server.folder)).unwrap();
    assert!(!text.contains("\"secrets\"") && !text.contains("RequestReceived"));
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_log_is_complete_after_shutdown() {
    let server = audited(None).await;
    for at in 0..100 {
        server
            .cluster
            .admin()
            .post(CONFIG_MAPS, config_map(&format!("c-{at}")))
            .await
            .is(201);
    }
    let Audited { cluster, folder, .. } = server;
    cluster.server.shutdown().await;
    let text = std::fs::read_to_string(log_of(&folder)).unwrap();
    let created = text.lines().filter(|line| {
        line.contains("\"verb\":\"create\"")
            && line.contains("ResponseComplete")
            && line.contains("\"code\":201")
    });
    let own = created.filter(|line| line.contains("\"username\":\"admin\""));
    assert_eq!(own.count(), 100);
}
