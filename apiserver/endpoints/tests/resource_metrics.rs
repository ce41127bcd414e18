//! `metrics.k8s.io`: usage of what exists, in every form, as metrics-server answers.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use common::Api;
use common::access::{tenant, updater};
use http::Method;
use machinery_runtime::Runtime;
use serde_json::{Value, json};

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";
const PODS: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods";

async fn api() -> Api {
    let api = Api::new(Runtime::real()).await;
    for name in ["node", "other"] {
        let node =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": name}}});
        create(&api, "/api/v1/nodes", &node).await;
    }
    for (name, phase) in [("web", "Running"), ("waits", "Pending"), ("fresh", "Running")] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": [{"name": "a", "image": "i"}]},
        });
        create(&api, "/api/v1/namespaces/default/pods", &pod).await;
        let status = json!({"status": {"phase": phase}}).to_string();
        let path = format!("/api/v1/namespaces/default/pods/{name}/status");
        let merge = ("application/merge-patch+json", JSON);
        api.ask(Method::PATCH, &path, merge, status)
            .await
            .json(200)
            .unwrap();
    }
    api
}

async fn create(api: &Api, path: &str, object: &Value) {
    let made = api
        .ask(Method::POST, path, (JSON, JSON), object.to_string())
        .await;
    made.json(201).unwrap();
}

async fn get(api: &Api, path: &str, accept: &str, code: u16) -> Value {
    let answer = api.ask(Method::GET, path, (JSON, accept), "").await;
    answer.json(code).unwrap()
}

/// An object without the time of the request.
fn timeless(mut object: Value) -> Value {
    let created = object["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("creationTimestamp");
    assert!(created.is_some_and(|created| created.is_string()));
    object
}

#[tokio::test]
async fn pod_metrics_are_those_of_running_pods_that_were_measured() {
    let api = api().await;
    let web = json!({
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
        "timestamp": "2026-01-01T00:00:00Z",
        "window": "15.013s",
        "containers": [
            {"name": "a", "usage": {"cpu": "1500u", "memory": "1Mi"}},
            {"name": "b", "usage": {"cpu": "1000000001n", "memory": "1k"}},
        ],
    });
    let mut list = get(&api, &format!("{METRICS}/pods"), JSON, 200).await;
    assert_eq!(list["kind"], "PodMetricsList");
    assert_eq!(list["apiVersion"], "metrics.k8s.io/v1beta1");
    let items = list["items"].as_array_mut().unwrap();
    assert_eq!(items.len(), 1);
    assert_eq!(timeless(items[0].take()), web);
    let mut one = timeless(get(&api, &format!("{PODS}/web"), JSON, 200).await);
    let meta = one.as_object_mut().unwrap();
    assert_eq!(meta.remove("kind").unwrap(), "PodMetrics");
    assert_eq!(meta.remove("apiVersion").unwrap(), "metrics.k8s.io/v1beta1");
    assert_eq!(one, web);
    for (name, message) in [
        ("waits", "podmetrics.metrics.k8s.io \"default/waits\" not found"),
        ("fresh", "podmetrics.metrics.k8s.io \"default/fresh\" not found"),
        ("none", "pods \"none\" not found"),
    ] {
        let refused = get(&api, &format!("{PODS}/{name}"), JSON, 404).await;
        assert_eq!(refused["message"], message);
    }
}

#[tokio::test]
async fn node_metrics_are_selected_by_labels_and_names() {
    let api = api().await;
    let nodes = format!("{METRICS}/nodes");
    for (query, expected) in [
        ("", 1),
        ("?labelSelector=zone%3Dnode", 1),
        ("?labelSelector=zone%3Dother", 0),
        ("?fieldSelector=metadata.name%3Dnode", 1),
        ("?fieldSelector=metadata.name%21%3Dnode", 0),
        ("?limit=1", 1),
    ] {
        let list = get(&api, &format!("{nodes}{query}"), JSON, 200).await;
        assert_eq!(list["items"].as_array().unwrap().len(), expected, "{query}");
    }
    let one = get(&api, &format!("{nodes}/node"), JSON, 200).await;
    assert_eq!(one["usage"], json!({"cpu": "250m", "memory": "3Gi"}));
    let bogus = get(&api, &format!("{nodes}?fieldSelector=spec.x%3Dy"), JSON, 400).await;
    assert!(bogus["message"].as_str().unwrap().contains("spec.x"), "{bogus}");
    let post = api.ask(Method::POST, &nodes, (JSON, JSON), "{}").await;
    post.json(405).unwrap();
}

#[tokio::test]
async fn metrics_come_in_every_form() {
    let api = api().await;
    let table = get(&api, PODS, TABLE, 200).await;
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let columns: Vec<_> = columns.map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "cpu", "memory", "Window"]);
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(
        rows[0]["cells"],
        json!(["web", "1001500001n", "1049576", "15.013s"])
    );
    assert_eq!(rows[0]["object"]["kind"], "PartialObjectMetadata");
    let empty = get(&api, &format!("{PODS}?labelSelector=app%3Dnone"), TABLE, 200).await;
    assert_eq!(
        (&empty["columnDefinitions"], &empty["rows"]),
        (&json!([]), &json!([]))
    );
    let node = get(&api, &format!("{METRICS}/nodes/node"), TABLE, 200).await;
    assert_eq!(
        node["rows"][0]["cells"],
        json!(["node", "250m", "3Gi", "15.013s"])
    );
    let metadata = get(&api, PODS, METADATA, 200).await;
    assert_eq!(metadata["kind"], "PartialObjectMetadataList");
    assert_eq!(metadata["items"][0]["metadata"]["name"], "web");
    for path in [PODS.to_owned(), format!("{PODS}/web")] {
        let answer = api
            .ask(
                Method::GET,
                &path,
                (JSON, "application/vnd.kubernetes.protobuf"),
                "",
            )
            .await;
        assert_eq!(
            (answer.code, &answer.body[..4]),
            (200, b"k8s\0".as_slice()),
            "{path}"
        );
        let answer = api.ask(Method::GET, &path, (JSON, "application/yaml"), "").await;
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(text.contains("window: 15.013s"), "{text}");
    }
}

#[tokio::test]
async fn metrics_are_for_those_who_may_read_them() {
    let api = api().await;
    let all = format!("{METRICS}/pods");
    for (user, path, code) in [
        (tenant(), PODS, 200),
        (tenant(), all.as_str(), 403),
        (updater(), PODS, 403),
    ] {
        let answer = api.sent_by(user).ask(Method::GET, path, (JSON, JSON), "").await;
        assert_eq!(answer.code, code, "{path}");
    }
}
