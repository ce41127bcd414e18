//! The audit log: every request is in it, whatever its client does.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;
mod gate;

use apiserver_server::{AuditLogConfig, AuditMode, ServerConfig};
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

    async fn event_of(&self, verb: &str, name: &str, stage: &str) -> Value {
        let is_it = |event: &Value| {
            event["verb"] == verb && event["objectRef"]["name"] == name && event["stage"] == stage
        };
        self.event(is_it).await
    }
}

fn config_map(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_records_a_write_whose_client_left() {
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
    let received = server.event_of("delete", "left", "RequestReceived").await;
    assert_eq!(received["responseStatus"], Value::Null);
    let complete = server.event_of("delete", "left", "ResponseComplete").await;
    assert_eq!(complete["responseStatus"]["code"], 200, "what became of it");
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
async fn audit_records_a_client_that_left_while_sending() {
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
async fn audit_records_failed_authentication() {
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
    assert_eq!(event["responseStatus"]["message"], "Unauthorized");
    assert_eq!(event["responseStatus"]["reason"], "Unauthorized");
    assert_eq!(event["user"], json!({}));
}

const EVERYTHING: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n";
const PATCH_TYPE: (&str, &str) = ("content-type", "application/merge-patch+json");

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "strange": 1}, "spec": {"containers": [{"name": "c", "image": "x"}]}})
}

impl Audited {
    /// The last event of the request that calls itself so.
    async fn complete(&self, audit_id: &str) -> Value {
        self.event(|event| event["auditID"] == audit_id && event["stage"] == "ResponseComplete")
            .await
    }

    fn ask(&self, audit_id: &str) -> common::Ask<'_> {
        self.cluster.admin().header("audit-id", audit_id)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_of_a_write_has_the_decoded_object_and_its_name() {
    let server = audited(Some(EVERYTHING)).await;
    let pods = "/api/v1/namespaces/default/pods";
    let account = json!({"metadata": {"name": "default"}}).to_string();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    server.ask("account").post(accounts, account).await;
    server.ask("pod").post(pods, pod("p").to_string()).await.is(201);
    let event = server.complete("pod").await;
    assert_eq!(event["objectRef"]["name"], "p", "{event}");
    let sent = &event["requestObject"];
    assert_eq!(
        (&sent["kind"], &sent["apiVersion"]),
        (&json!("Pod"), &json!("v1"))
    );
    assert_eq!(sent["spec"]["restartPolicy"], "Always");
    assert_eq!(sent["metadata"], json!({"name": "p"}), "unknown fields are gone");
    let token = server.ask("token");
    token
        .post(&format!("{accounts}/default/token"), "{}")
        .await
        .is(201);
    let event = server.complete("token").await;
    assert_eq!(event["requestObject"]["spec"]["expirationSeconds"], 3600);
    let mut update = server.cluster.admin().get(&format!("{pods}/p")).await.json();
    update["metadata"]["labels"] = json!({"a": "b"});
    let body = Bytes::from(update.to_string());
    let put = server.ask("put").header("content-type", "application/json");
    put.send(Method::PUT, &format!("{pods}/p"), body).await.is(200);
    let event = server.complete("put").await;
    for member in ["uid", "resourceVersion"] {
        assert_eq!(event["objectRef"][member], update["metadata"][member]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_of_deletes_and_patches_has_what_was_sent_in_one_line() {
    let server = audited(Some(EVERYTHING)).await;
    server
        .ask("create")
        .post(CONFIG_MAPS, config_map("c"))
        .await
        .is(201);
    let own = format!("{CONFIG_MAPS}/c");
    // A line of its own that looks like an event.
    let forged = "{\"data\":\n{\"kind\":\"Event\",\"auditID\":\"forged\"}\n}";
    let patching = server.ask("patch").header(PATCH_TYPE.0, PATCH_TYPE.1);
    patching
        .send(Method::PATCH, &own, Bytes::from_static(forged.as_bytes()))
        .await
        .is(200);
    let event = server.complete("patch").await;
    assert_eq!(event["requestObject"]["data"]["auditID"], "forged");
    let applying = server
        .ask("apply")
        .header("content-type", "application/apply-patch+yaml");
    let yaml = Bytes::from_static(b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: d}\n");
    let path = format!("{CONFIG_MAPS}/d?fieldManager=x");
    applying.send(Method::PATCH, &path, yaml).await.is(201);
    let event = server.complete("apply").await;
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}});
    assert_eq!(event["requestObject"], applied);
    let deleting = server.ask("delete").header("content-type", "application/json");
    let options =
        Bytes::from_static(br#"{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}"#);
    let deleted = deleting.send(Method::DELETE, &own, options).await.is(200).json();
    let event = server.complete("delete").await;
    assert_eq!(event["requestObject"]["kind"], "DeleteOptions");
    assert_eq!(event["requestObject"]["apiVersion"], "meta.k8s.io/__internal");
    assert_eq!(event["requestObject"]["propagationPolicy"], "Background");
    let status = &event["responseStatus"];
    assert_eq!(
        (&status["status"], &status["details"]),
        (&json!("Success"), &deleted["details"])
    );
    assert_eq!(status["code"], 200);
    assert_eq!(event["responseObject"], deleted);
    let text = std::fs::read_to_string(log_of(&server.folder)).unwrap();
    assert!(
        text.lines()
            .all(|line| line.starts_with(r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","#))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_of_an_answer_in_no_acceptable_form_has_its_code_alone() {
    let server = audited(Some(EVERYTHING)).await;
    let asked = server.ask("image").header("accept", "image/png");
    asked.get(CONFIG_MAPS).await.is(406);
    let event = server.complete("image").await;
    assert_eq!(event["responseStatus"], json!({"metadata": {}, "code": 406}));
    assert_eq!(event["responseObject"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_of_a_slow_request_has_the_time_each_part_took() {
    let server = audited(None).await;
    let cluster = &server.cluster;
    let begun = server.storage.close_gate("/registry/configmaps/default/slow");
    let mut stream = cluster.connect(Some(&cluster.admin)).await;
    let body = config_map("slow");
    let head = post_head(CONFIG_MAPS, &body);
    let head = head.replace(
        "\r\n\r\n",
        "\r\nImpersonate-User: anna\r\nImpersonate-Group: system:masters\r\n\r\n",
    );
    let request = head + &body;
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    begun.await.unwrap();
    cluster.runtime.sleep(Duration::from_millis(501)).await;
    server.storage.open_gate();
    let complete = server.event_of("create", "slow", "ResponseComplete").await;
    let total = complete["annotations"]["apiserver.latency.k8s.io/total"].as_str();
    assert!(total.is_some_and(|total| total.ends_with('s')), "{complete}");
    let annotated = |part: &&str| {
        let took = complete["annotations"][format!("apiserver.latency.k8s.io/{part}")].as_str();
        took.is_some_and(|took| took.ends_with('s'))
    };
    let parts = ["authentication", "authorization", "impersonation", "etcd"];
    let found: Vec<&str> = parts.into_iter().filter(annotated).collect();
    assert_eq!(found, parts, "{complete}");
    cluster.admin().get(CONFIG_MAPS).await.is(200);
    let list = |event: &Value| event["verb"] == "list" && event["stage"] == "ResponseComplete";
    let quick = server.event(list).await["annotations"]
        .as_object()
        .unwrap()
        .clone();
    assert!(!quick.contains_key("apiserver.latency.k8s.io/total"), "{quick:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_of_refused_streams_says_why_when_they_begin() {
    let server = audited(Some(EVERYTHING)).await;
    let refused = server.ask("watch").header("impersonate-user", "anna");
    let watch = format!("{CONFIG_MAPS}?watch=true");
    let refused = refused.get(&watch).await.is(403).json();
    let log = "/api/v1/namespaces/default/pods/none/log";
    // Answers in protobuf say as much.
    let protobuf = server
        .ask("log")
        .header("accept", "application/vnd.kubernetes.protobuf");
    protobuf.get(log).await.is(404);
    for (id, reason) in [("watch", "Forbidden"), ("log", "NotFound")] {
        let started = |event: &Value| event["auditID"] == id && event["stage"] == "ResponseStarted";
        let event = server.event(started).await;
        assert_eq!(event["responseStatus"]["reason"], reason, "{event}");
        assert_eq!(
            event["responseStatus"]["details"],
            event["responseObject"]["details"]
        );
        assert!(event["responseStatus"]["details"]["kind"].is_string());
    }
    assert_eq!(server.complete("watch").await["responseObject"], refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_says_whence_requests_came_and_which_were_deprecated() {
    let server = audited(None).await;
    let ask = server.ask("old").header("x-forwarded-for", "1.2.3.4, 5.6.7.8");
    let ask = ask
        .header("x-real-ip", "9.9.9.9")
        .header("user-agent", "x".repeat(1_100));
    ask.get("/api/v1/namespaces/default/endpoints").await.is(200);
    let event = server.complete("old").await;
    assert_eq!(
        event["sourceIPs"],
        json!(["1.2.3.4", "5.6.7.8", "9.9.9.9", "127.0.0.1"])
    );
    assert_eq!(event["userAgent"], "x".repeat(1_024) + "...TRUNCATED");
    assert_eq!(event["annotations"]["k8s.io/deprecated"], "true");
    let metrics = server.cluster.admin().get("/metrics").await.body;
    for line in [
        "apiserver_audit_level_total{level=\"Metadata\"} ",
        "apiserver_audit_event_total ",
    ] {
        let count = metrics.lines().find_map(|own| own.strip_prefix(line)).unwrap();
        assert_ne!(count, "0", "{line}");
    }
    assert!(metrics.contains("apiserver_audit_requests_rejected_total 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_has_no_documents_and_texts() {
    let server = audited(Some(EVERYTHING)).await;
    server.ask("version").get("/version").await.is(200);
    server.ask("groups").get("/apis").await.is(200);
    assert_eq!(server.complete("version").await["responseObject"], Value::Null);
    let groups = server.complete("groups").await;
    assert!(groups["responseObject"]["groups"].is_array(), "{groups}");
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_names_the_impersonated_user() {
    let server = audited(None).await;
    let ask = server.cluster.admin().header("impersonate-user", "anna");
    ask.get(&format!("{CONFIG_MAPS}/hers")).await.is(403);
    let event = server.event_of("get", "hers", "ResponseComplete").await;
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
async fn audit_policy_decides_levels_and_stages() {
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

/// Reads the log as a server that is killed now would leave it.
#[tokio::test(flavor = "multi_thread")]
async fn audit_of_a_request_is_written_before_it_goes_on_and_before_its_answer() {
    let server = audited(None).await;
    let stages = |name: &str| {
        let text = std::fs::read_to_string(log_of(&server.folder)).unwrap();
        let of_it = |line: &&str| line.contains("\"username\":\"admin\"") && line.contains(name);
        text.lines().filter(of_it).count()
    };
    let admin = || server.cluster.admin();
    for at in 0..50 {
        let name = format!("answered-{at}-");
        let path = format!("{CONFIG_MAPS}/{name}x");
        admin().get(&path).await.is(404);
        assert_eq!(stages(&name), 2, "{name}");
    }
    admin().post(CONFIG_MAPS, config_map("held")).await.is(201);
    let begun = server.storage.close_gate("/registry/configmaps/default/held");
    let path = format!("{CONFIG_MAPS}/held");
    let deleting = admin().send(Method::DELETE, &path, Bytes::new());
    let look = async {
        begun.await.unwrap();
        assert_eq!(stages("configmaps/held"), 1);
        server.storage.open_gate();
    };
    futures::join!(deleting, look).0.is(200);
    assert_eq!(stages("configmaps/held"), 2);
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

/// A cluster whose audit log takes nothing: the policy leaves paths out, so that requests to these succeed.
async fn without_room(mode: AuditMode) -> (Cluster, tempfile::TempDir) {
    const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: \
        [{level: None, nonResourceURLs: ['/readyz*', /metrics]}, {level: Metadata}]";
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.yaml");
    std::fs::write(&policy, POLICY).unwrap();
    let config = ServerConfig {
        audit_log: Some(AuditLogConfig {
            mode,
            ..AuditLogConfig::new("/dev/full".into())
        }),
        audit_policy_file: Some(policy),
        ..config()
    };
    let storage = LogStorage::memory(&Runtime::real()).await.unwrap();
    (start_on(config, Arc::new(storage)).await, folder)
}

#[tokio::test]
async fn audit_log_that_takes_no_line_refuses_requests_in_mode_blocking_strict_alone() {
    for (mode, code, rejected) in [
        (AuditMode::Batch, 201, 0),
        (AuditMode::Blocking, 201, 0),
        (AuditMode::BlockingStrict, 500, 1),
    ] {
        let (cluster, _folder) = without_room(mode).await;
        let get = async |path: &str| {
            let answer = cluster.admin().get(path).await;
            (answer.code.as_u16(), answer.body)
        };
        let created = cluster.admin().post(CONFIG_MAPS, config_map("one")).await;
        let text = created.body;
        assert_eq!(created.code.as_u16(), code, "{mode:?}: {text}");
        if rejected > 0 {
            let told = "Internal Server Error: \"/api/v1/namespaces/default/configmaps\": failed to store audit event\n";
            assert_eq!(text, told);
        }
        let (_, metrics) = get("/metrics").await;
        let line = format!("apiserver_audit_requests_rejected_total {rejected}\n");
        assert!(metrics.contains(&line), "{mode:?}");
        // In mode batch the writer may not have had its turn.
        while get("/readyz/audit-log").await.0 == 200 {
            cluster.runtime.sleep(Duration::from_millis(5)).await;
        }
        let (_, metrics) = get("/metrics").await;
        assert!(
            metrics.contains("apiserver_audit_error_total{plugin=\"log\"}"),
            "{mode:?}"
        );
        assert_eq!(get("/readyz").await.0, 200);
    }
}
