//! Conversion webhooks of custom kinds, called over HTTPS by a real server.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;
mod tls_server;
mod webhook_server;

use bytes::Bytes;
use common::{Answer, Cluster, start};
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::time::Duration;
use webhook_server::HookServer;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/boats.hooks.example";
const MERGE: &str = "application/merge-patch+json";

fn boats(version: &str) -> String {
    format!("/apis/hooks.example/{version}/namespaces/default/boats")
}

struct World {
    cluster: Cluster,
    hooks: HookServer,
}

impl World {
    /// Boats that are stored in `v1`.
    async fn new(path: &str) -> Self {
        let cluster = start().await;
        let hooks = HookServer::start(&cluster.runtime).await;
        let world = Self { cluster, hooks };
        let text = json!({"type": "string"});
        let version = |name: &str, stored: bool, fields: &[&str]| {
            let properties: serde_json::Map<String, Value> = fields
                .iter()
                .map(|own| ((*own).to_owned(), text.clone()))
                .collect();
            let selectable: Vec<Value> = fields
                .iter()
                .map(|own| json!({"jsonPath": format!(".{own}")}))
                .collect();
            json!({"name": name, "served": true, "storage": stored, "selectableFields": selectable,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}})
        };
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boats.hooks.example"},
            "spec": {"group": "hooks.example", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
                "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": world.hooks.client(path), "conversionReviewVersions": ["v1", "v1beta1"]}},
                "versions": [version("v1", true, &["hostPort"]), version("v2", false, &["host", "port"])]}});
        let made = world
            .cluster
            .admin()
            .post(DEFINITIONS, definition.to_string())
            .await
            .is(201);
        assert!(made.headers.get("warning").is_none());
        while world.cluster.admin().get(&boats("v2")).await.code != 200 {
            world.cluster.runtime.sleep(Duration::from_millis(5)).await;
        }
        world
    }

    async fn make(&self, version: &str, name: &str, members: Value) -> Answer {
        let mut boat = json!({"apiVersion": format!("hooks.example/{version}"), "kind": "Boat", "metadata": {"name": name}});
        boat.as_object_mut()
            .unwrap()
            .extend(members.as_object().unwrap().clone());
        self.cluster.admin().post(&boats(version), boat.to_string()).await
    }

    async fn patch(&self, path: &str, kind: &'static str, patch: Value) -> Answer {
        let ask = self.cluster.admin().header("content-type", kind);
        ask.send(Method::PATCH, path, Bytes::from(patch.to_string()))
            .await
    }

    async fn hosts(&self, query: &str) -> Vec<String> {
        let list = self
            .cluster
            .admin()
            .get(&format!("{}{query}", boats("v2")))
            .await
            .is(200)
            .json();
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|own| {
                assert_eq!(own["apiVersion"], "hooks.example/v2");
                own["host"].as_str().unwrap().to_owned()
            })
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conversion_webhook_serves_one_object_in_two_versions() {
    let world = World::new("/convert").await;
    let made = world
        .make("v1", "a", json!({"hostPort": "alpha:80"}))
        .await
        .is(201)
        .json();
    assert!(
        world.hooks.seen("/convert").is_empty(),
        "it is written as it is stored"
    );
    let path = format!("{}/a", boats("v2"));
    let shown = world.cluster.admin().get(&path).await.is(200).json();
    assert_eq!(
        (&shown["host"], &shown["port"], &shown["hostPort"]),
        (&json!("alpha"), &json!("80"), &Value::Null)
    );
    assert_eq!(shown["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(
        shown["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    // What is written in another version is stored in its own, and answered in that of the request.
    let changed = world
        .patch(&path, MERGE, json!({"port": "443"}))
        .await
        .is(200)
        .json();
    assert_eq!(
        (&changed["apiVersion"], &changed["port"]),
        (&json!("hooks.example/v2"), &json!("443"))
    );
    let stored = world
        .cluster
        .admin()
        .get(&format!("{}/a", boats("v1")))
        .await
        .is(200)
        .json();
    assert_eq!(stored["hostPort"], "alpha:443");
    world
        .make("v2", "b", json!({"host": "beta", "port": "1"}))
        .await
        .is(201);
    let stored = world
        .cluster
        .admin()
        .get(&format!("{}/b", boats("v1")))
        .await
        .is(200)
        .json();
    assert_eq!(stored["hostPort"], "beta:1");
    assert_eq!(world.hosts("").await, ["alpha", "beta"]);
    assert_eq!(world.hosts("?fieldSelector=host%3Dbeta").await, ["beta"]);
    // Written in one version, it is found by the fields of the other.
    let path_of_both = format!("{}?fieldSelector=hostPort%3Dbeta:1", boats("v1"));
    let found = world.cluster.admin().get(&path_of_both).await.is(200).json();
    assert_eq!(found["items"][0]["metadata"]["name"], "b");
    let wrong = format!("{}?fieldSelector=hostPort%3Dx", boats("v2"));
    world.cluster.admin().get(&wrong).await.is(400);
    // What was converted is kept: no further calls for the same states.
    let before = world.hooks.seen("/convert").len();
    assert_eq!(world.hosts("").await.len(), 2);
    assert_eq!(world.hooks.seen("/convert").len(), before);
    let name = "apiserver_conversion_webhook_request_total{failure_type=\"\",result=\"success\"}";
    assert!(world.cluster.admin().get("/metrics").await.body.contains(name));
    let deleted = world
        .cluster
        .admin()
        .send(Method::DELETE, &path, Bytes::new())
        .await;
    deleted.is(200);
    assert_eq!(world.hosts("").await, ["beta"]);
}

/// Objects stay in the version in which they were written last: a list has them from both.
#[tokio::test(flavor = "multi_thread")]
async fn conversion_webhook_converts_lists_of_objects_in_several_versions() {
    let world = World::new("/convert").await;
    world
        .make("v1", "a", json!({"hostPort": "alpha:80"}))
        .await
        .is(201);
    let stored = json!([{"op": "replace", "path": "/spec/versions/0/storage", "value": false},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": true}]);
    world
        .patch(DEFINITION, "application/json-patch+json", stored)
        .await
        .is(200);
    // From when the other version is stored, making one needs no conversion.
    for at in 0.. {
        let before = world.hooks.seen("/convert").len();
        world
            .make("v2", &format!("b{at}"), json!({"host": "beta", "port": "1"}))
            .await
            .is(201);
        if world.hooks.seen("/convert").len() == before {
            break;
        }
        world.cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
    let hosts = world.hosts("").await;
    assert_eq!(
        (
            hosts.first().map(String::as_str),
            hosts.last().map(String::as_str)
        ),
        (Some("alpha"), Some("beta"))
    );
    let list = world.cluster.admin().get(&boats("v1")).await.is(200).json();
    for own in list["items"].as_array().unwrap() {
        assert_eq!(own["apiVersion"], "hooks.example/v1");
        assert!(own["hostPort"].is_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conversion_webhook_converts_what_watchers_see() {
    let world = World::new("/convert").await;
    world
        .make("v1", "a", json!({"hostPort": "alpha:80"}))
        .await
        .is(201);
    let mut sender = world.cluster.http2().await;
    let path = format!("https://test{}?watch=true&fieldSelector=host%3Dbeta", boats("v2"));
    let request = http::Request::get(path)
        .body(http_body_util::Full::new(Bytes::new()))
        .unwrap();
    let mut events = sender.send_request(request).await.unwrap().into_body();
    world.make("v1", "b", json!({"hostPort": "beta:1"})).await.is(201);
    let path = format!("{}/b", boats("v1"));
    world
        .patch(&path, MERGE, json!({"hostPort": "beta:2"}))
        .await
        .is(200);
    world
        .patch(&path, MERGE, json!({"hostPort": "gamma:2"}))
        .await
        .is(200);
    let mut text = String::new();
    while text.lines().count() < 3 || !text.ends_with('\n') {
        let frame = events.frame().await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    let seen: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let seen: Vec<_> = seen
        .iter()
        .map(|own| {
            (
                own["type"].as_str().unwrap(),
                own["object"]["host"].as_str().unwrap(),
                own["object"]["port"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("ADDED", "beta", "1"),
            ("MODIFIED", "beta", "2"),
            ("DELETED", "beta", "2")
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn conversion_webhook_that_fails_fails_requests_of_other_versions_alone() {
    for (path, why) in [
        ("/convert-refused", "failed: no such boat"),
        (
            "/broken",
            "failed: an error on the server (\"it broke\") has prevented the request from succeeding",
        ),
        (
            "/convert-renamed",
            "returned invalid converted object at index 0: must have the same name: a != another",
        ),
        ("/text", "failed: "),
    ] {
        let world = World::new(path).await;
        world
            .make("v1", "a", json!({"hostPort": "alpha:80"}))
            .await
            .is(201);
        let shown = world
            .cluster
            .admin()
            .get(&format!("{}/a", boats("v2")))
            .await
            .is(500)
            .json();
        let message = shown["message"].as_str().unwrap();
        let begin = format!("conversion webhook for hooks.example/v1, Kind=Boat {why}");
        assert!(message.starts_with(&begin), "{message}");
        world.cluster.admin().get(&boats("v2")).await.is(500);
        world.cluster.admin().get(&boats("v1")).await.is(200);
        // Its objects and the definition can go.
        world
            .cluster
            .admin()
            .send(Method::DELETE, DEFINITION, Bytes::new())
            .await
            .is(200);
        while world.cluster.admin().get(DEFINITION).await.code == 200 {
            world.cluster.runtime.sleep(Duration::from_millis(5)).await;
        }
    }
}
