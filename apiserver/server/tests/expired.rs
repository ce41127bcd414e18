//! Compacted history is gone for good, and each way of requesting it is answered with 410.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use common::{Cluster, start};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn write(cluster: &Cluster, name: &str) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    cluster
        .admin()
        .post(CONFIG_MAPS, object.to_string())
        .await
        .is(201);
}

/// A first page of two, after which the history up to now is compacted.
async fn with_a_past() -> (Cluster, Value) {
    let cluster = start().await;
    for name in ["a", "b", "c", "d", "e"] {
        write(&cluster, name).await;
    }
    let path = format!("{CONFIG_MAPS}?limit=2");
    let page = cluster.admin().get(&path).await.is(200).json();
    write(&cluster, "f").await;
    let storage = cluster.storage.clone();
    let now = storage.current_revision().await.unwrap();
    storage.compact(now).await.unwrap();
    while storage.compacted_revision().await.unwrap() < now {
        cluster.runtime.sleep(std::time::Duration::from_millis(5)).await;
    }
    (cluster, page)
}

fn revision(page: &Value) -> &str {
    page["metadata"]["resourceVersion"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_revision_list_is_gone() {
    let (cluster, page) = with_a_past().await;
    let path = format!(
        "{CONFIG_MAPS}?resourceVersion={}&resourceVersionMatch=Exact",
        revision(&page)
    );
    let gone = cluster.admin().get(&path).await.is(410).json();
    assert_eq!((&gone["reason"], &gone["code"]), (&json!("Expired"), &json!(410)));
    let path = format!(
        "{CONFIG_MAPS}?resourceVersion={}&resourceVersionMatch=NotOlderThan",
        revision(&page)
    );
    let newer = cluster.admin().get(&path).await.is(200).json();
    let items = newer["items"].as_array().unwrap();
    assert!(
        items.iter().any(|item| item["metadata"]["name"] == "f"),
        "what is newer is given"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_continue_token_of_refusal_continues() {
    let (cluster, page) = with_a_past().await;
    let next = |token: &Value| format!("{CONFIG_MAPS}?limit=100&continue={}", token.as_str().unwrap());
    let path = next(&page["metadata"]["continue"]);
    let gone = cluster.admin().get(&path).await.is(410).json();
    assert_eq!(gone["reason"], "Expired");
    let rest = cluster
        .admin()
        .get(&next(&gone["metadata"]["continue"]))
        .await
        .is(200)
        .json();
    let last = page["items"][1]["metadata"]["name"].as_str().unwrap();
    let names = rest["items"].as_array().unwrap().iter();
    let names: Vec<&str> = names
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect();
    assert!(
        names.iter().all(|name| *name > last),
        "it goes on behind {last}: {names:?}"
    );
    assert!(names.contains(&"f"), "as things are now: {names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_revision_watch_gets_error_and_ends() {
    let (cluster, page) = with_a_past().await;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", revision(&page));
    let told = cluster.admin().get(&path).await.is(200).json();
    assert_eq!(told["type"], "ERROR", "one event, and the end of the watch");
    let status = &told["object"];
    assert_eq!(
        (&status["reason"], &status["code"]),
        (&json!("Expired"), &json!(410))
    );
    let message = status["message"].as_str().unwrap();
    let begins = format!("too old resource version: {} (", revision(&page));
    assert!(message.starts_with(&begins), "{message}");
}
