//! Audit events that a webhook is sent (`--audit-webhook-config-file`).

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;
mod review_server;
mod tls_server;

use apiserver_server::{AuditMode, AuditTruncateConfig, AuditWebhookConfig, ServerConfig};
use common::{Cluster, config, start_with};
use machinery_runtime::Runtime;
use review_server::ReviewServer;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Writes of ConfigMaps alone.
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: \
    [{level: RequestResponse, verbs: [create], resources: [{resources: [configmaps]}]}]";

/// A configuration whose events go to a server of the test.
fn with_webhook(
    server: &ReviewServer,
    folder: &Path,
    edit: impl FnOnce(&mut AuditWebhookConfig),
) -> ServerConfig {
    let (kubeconfig, policy) = (folder.join("kubeconfig"), folder.join("policy"));
    server.kubeconfig(&kubeconfig);
    std::fs::write(&policy, POLICY).unwrap();
    let mut webhook = AuditWebhookConfig::new(kubeconfig);
    webhook.initial_backoff = Duration::from_millis(1);
    edit(&mut webhook);
    ServerConfig {
        audit_webhook: Some(webhook),
        audit_policy_file: Some(policy),
        ..config()
    }
}

fn config_map(name: &str, data: &str) -> String {
    json!({"metadata": {"name": name}, "data": {"text": data}}).to_string()
}

/// Events that came, of all lists.
fn events(server: &ReviewServer) -> Vec<Value> {
    let mut events = Vec::new();
    for list in server.seen() {
        assert_eq!(
            (&list["kind"], &list["apiVersion"]),
            (&json!("EventList"), &json!("audit.k8s.io/v1"))
        );
        events.extend(list["items"].as_array().unwrap().clone());
    }
    events
}

async fn metric(cluster: &Cluster, line: &str) -> u64 {
    let metrics = cluster.admin().get("/metrics").await.body;
    let value = metrics.lines().find_map(|own| own.strip_prefix(line));
    value.map_or(0, |value| value.trim().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_webhook_is_sent_a_batch_that_is_full() {
    let server = ReviewServer::start(&Runtime::real(), |_| (200, json!("whatever"))).await;
    let folder = tempfile::tempdir().unwrap();
    let cluster = start_with(with_webhook(&server, folder.path(), |own| own.batch.max_size = 4)).await;
    for name in ["a", "b"] {
        cluster
            .admin()
            .post(CONFIG_MAPS, config_map(name, ""))
            .await
            .is(201);
    }
    while events(&server).len() < 4 {
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
    let events = events(&server);
    let found: Vec<_> = events
        .iter()
        .map(|event| {
            (
                event["stage"].as_str().unwrap(),
                event["objectRef"]["name"].as_str(),
            )
        })
        .collect();
    let of = |name| [("RequestReceived", None), ("ResponseComplete", Some(name))];
    assert_eq!(found, [of("a"), of("b")].concat());
    assert_eq!(events[1]["responseObject"]["kind"], "ConfigMap");
    assert_eq!(events[0]["kind"], Value::Null, "the list has it");
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_webhook_has_what_waits_before_the_server_ends() {
    let server = ReviewServer::start(&Runtime::real(), |_| (200, json!({}))).await;
    let folder = tempfile::tempdir().unwrap();
    let cluster = start_with(with_webhook(&server, folder.path(), |_| {})).await;
    cluster
        .admin()
        .post(CONFIG_MAPS, config_map("a", ""))
        .await
        .is(201);
    assert_eq!(events(&server), Vec::<Value>::new(), "the batch waits for more");
    cluster.server.shutdown().await;
    assert_eq!(events(&server).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_webhook_that_fails_refuses_requests_in_mode_blocking_strict_alone() {
    for (mode, code, rejected) in [
        (AuditMode::Batch, 201, 0),
        (AuditMode::Blocking, 201, 0),
        (AuditMode::BlockingStrict, 500, 1),
    ] {
        let answered = Arc::new(AtomicU16::new(503));
        let own = Arc::clone(&answered);
        let answer = move |_: &Value| (own.load(Ordering::Acquire), json!({"kind": "Status"}));
        let server = ReviewServer::start(&Runtime::real(), answer).await;
        let folder = tempfile::tempdir().unwrap();
        let edit = |own: &mut AuditWebhookConfig| {
            own.mode = mode;
            own.batch.max_size = 1;
        };
        let cluster = start_with(with_webhook(&server, folder.path(), edit)).await;
        let created = cluster.admin().post(CONFIG_MAPS, config_map("a", "")).await;
        assert_eq!(created.code.as_u16(), code, "{mode:?}: {}", created.body);
        let failed = "apiserver_audit_error_total{plugin=\"webhook\"} ";
        while metric(&cluster, failed).await == 0 {
            cluster.runtime.sleep(Duration::from_millis(5)).await;
        }
        let refused = metric(&cluster, "apiserver_audit_requests_rejected_total ").await;
        assert_eq!(refused, rejected, "{mode:?}");
        assert!(server.seen().len() >= 5, "each is sent five times");
        answered.store(200, Ordering::Release);
        cluster
            .admin()
            .post(CONFIG_MAPS, config_map("b", ""))
            .await
            .is(201);
    }
}

/// The answer is longer than anything that is read of it.
#[tokio::test(flavor = "multi_thread")]
async fn audit_webhook_counts_by_the_code_of_its_answer() {
    let server = ReviewServer::start(&Runtime::real(), |_| (201, json!("x".repeat(1 << 20)))).await;
    let folder = tempfile::tempdir().unwrap();
    let edit = |own: &mut AuditWebhookConfig| own.mode = AuditMode::Blocking;
    let cluster = start_with(with_webhook(&server, folder.path(), edit)).await;
    for name in ["a", "b"] {
        cluster
            .admin()
            .post(CONFIG_MAPS, config_map(name, ""))
            .await
            .is(201);
    }
    assert_eq!(events(&server).len(), 4, "none was sent again");
    let failed = "apiserver_audit_error_total{plugin=\"webhook\"} ";
    assert_eq!(metric(&cluster, failed).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_webhook_has_large_events_without_their_objects_where_they_are_bounded() {
    let server = ReviewServer::start(&Runtime::real(), |_| (200, json!({}))).await;
    let folder = tempfile::tempdir().unwrap();
    let edit = |own: &mut AuditWebhookConfig| {
        own.mode = AuditMode::Blocking;
        own.truncate = Some(AuditTruncateConfig {
            max_event_size: 2_000,
            ..AuditTruncateConfig::default()
        });
    };
    let cluster = start_with(with_webhook(&server, folder.path(), edit)).await;
    let large = config_map("large", &"x".repeat(3_000));
    cluster.admin().post(CONFIG_MAPS, large).await.is(201);
    cluster
        .admin()
        .post(CONFIG_MAPS, config_map("small", "x"))
        .await
        .is(201);
    let long = format!("{CONFIG_MAPS}?pretty={}", "y".repeat(2_000));
    cluster.admin().post(&long, config_map("long", "")).await.is(201);
    let ends: Vec<_> = events(&server)
        .into_iter()
        .filter(|event| event["stage"] == "ResponseComplete")
        .map(|event| {
            let is_truncated = event["annotations"]["audit.k8s.io/truncated"] == "true";
            (
                event["objectRef"]["name"].clone(),
                event["requestObject"].is_null(),
                is_truncated,
            )
        })
        .collect();
    assert_eq!(
        ends,
        [(json!("large"), true, true), (json!("small"), false, false)]
    );
    let failed = "apiserver_audit_error_total{plugin=\"truncate\"} ";
    assert_eq!(
        metric(&cluster, failed).await,
        2,
        "both events of the long address"
    );
}
