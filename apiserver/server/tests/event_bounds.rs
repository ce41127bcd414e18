//! A namespace with too many events loses its own oldest ones, and no other's.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_server::{ExpiryBounds, ServerConfig};
use common::{Cluster, config, start_with};
use serde_json::{Value, json};
use std::time::Duration;

const MOST: u64 = 20;
const BYTES: u64 = 1 << 20;

async fn bounded() -> Cluster {
    let cluster = start_with(ServerConfig {
        events_per_namespace: ExpiryBounds {
            objects: MOST,
            bytes: BYTES,
        },
        ..config()
    })
    .await;
    for name in ["loud", "quiet"] {
        let namespace = json!({"metadata": {"name": name}}).to_string();
        cluster
            .admin()
            .post("/api/v1/namespaces", namespace)
            .await
            .is(201);
    }
    cluster
}

async fn create(cluster: &Cluster, namespace: &str, at: u32, message: &str) {
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "message": message,
        "metadata": {"name": format!("e{at:03}")},
        "involvedObject": {"namespace": namespace, "name": "web", "kind": "Pod"}
    });
    let path = format!("/api/v1/namespaces/{namespace}/events");
    cluster.admin().post(&path, event.to_string()).await.is(201);
}

async fn names(cluster: &Cluster, namespace: &str) -> Vec<String> {
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let list = cluster.admin().get(&path).await.is(200).json();
    let items = list["items"].as_array().unwrap();
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    items.iter().map(name).collect()
}

/// Waits until the names are these; a test that never sees them ends with its harness's time.
async fn until(cluster: &Cluster, namespace: &str, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
    loop {
        let found = names(cluster, namespace).await;
        if wanted(&found) {
            return found;
        }
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_loud_tenant_expire_early_and_others_stay() {
    let cluster = bounded().await;
    for at in 0..5 {
        create(&cluster, "quiet", at, "hush").await;
    }
    for at in 0..100 {
        create(&cluster, "loud", at, "again").await;
    }
    let last = "e099".to_owned();
    let kept = until(&cluster, "loud", |found| {
        found.len() as u64 <= MOST && found.contains(&last)
    })
    .await;
    let newest: Vec<String> = (100 - kept.len()..100).map(|at| format!("e{at:03}")).collect();
    assert_eq!(kept, newest, "the newest are kept");
    assert_eq!(names(&cluster, "quiet").await.len(), 5);
    let metrics = cluster.admin().get("/metrics").await.is(200).body;
    let expired = format!("knarr_events_expired_early_total {}", 100 - kept.len());
    assert!(metrics.contains(&expired), "{expired}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_many_bytes_expire_early() {
    let cluster = bounded().await;
    let message = "x".repeat(200 << 10);
    for at in 0..12 {
        create(&cluster, "loud", at, &message).await;
    }
    let kept = until(&cluster, "loud", |found| found.len() <= 5).await;
    assert_eq!(kept.last().map(String::as_str), Some("e011"));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_many_bytes_leave_the_small_ones() {
    let cluster = bounded().await;
    for at in 0..5 {
        create(&cluster, "loud", at, "hush").await;
    }
    let message = "x".repeat(200 << 10);
    for at in 5..17 {
        create(&cluster, "loud", at, &message).await;
    }
    let kept = until(&cluster, "loud", |found| found.len() <= 10).await;
    assert_eq!(kept[..5], ["e000", "e001", "e002", "e003", "e004"]);
    assert_eq!(kept.last().map(String::as_str), Some("e016"));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_without_a_namespace_count_for_default() {
    let cluster = bounded().await;
    for at in 0..60 {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("e{at:03}")},
            "involvedObject": {"name": "n1", "kind": "Node"}
        });
        let made = cluster
            .admin()
            .post("/api/v1/namespaces/default/events", event.to_string());
        made.await.is(201);
    }
    until(&cluster, "default", |found| found.len() as u64 <= MOST).await;
}

const LIMITS: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits:
    - {type: Namespace, qps: 1, burst: 2}
";

#[tokio::test(flavor = "multi_thread")]
async fn events_above_a_rate_are_refused_where_the_plugin_is_enabled() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("admission.yaml");
    std::fs::write(&file, LIMITS).unwrap();
    let enabled = ServerConfig {
        enable_admission_plugins: vec!["EventRateLimit".to_owned()],
        admission_control_config_file: Some(file),
        ..config()
    };
    let cluster = start_with(enabled).await;
    let event = |at: u32| {
        let name = format!("e{at:03}");
        let involved = json!({"namespace": "default", "name": "web", "kind": "Pod"});
        json!({"metadata": {"name": name}, "involvedObject": involved}).to_string()
    };
    let path = "/api/v1/namespaces/default/events";
    // Others come in between: at one second and more for each, a burst of two is over soon.
    let mut at = 0;
    let refused = loop {
        let answer = cluster.admin().post(path, event(at)).await;
        if answer.code != 201 {
            break answer;
        }
        at += 1;
    };
    assert!(at >= 2, "{at}");
    assert_eq!(refused.code, 429);
    assert!(!refused.headers.contains_key("retry-after"));
    let status = refused.json();
    assert_eq!(status["reason"], "TooManyRequests");
    let message = "Too many requests: limit reached on type Namespace for key default";
    assert_eq!(status["message"], message);
    assert_eq!(status.get("details"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_have_no_rate_unless_the_plugin_is_enabled() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("admission.yaml");
    std::fs::write(&file, LIMITS).unwrap();
    let cluster = start_with(ServerConfig {
        admission_control_config_file: Some(file),
        ..config()
    })
    .await;
    for at in 0..20 {
        create(&cluster, "default", at, "again").await;
    }
}
