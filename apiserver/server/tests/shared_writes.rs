//! Writes of clients in the server's own process: the stored object is shared, and the write passes what all others pass.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_endpoints::Body;
use common::{Cluster, start};
use http::{Method, Request};
use http_body_util::BodyExt;
use machinery_meta::{SharedEvent, SharedEvents, UserInfo};
use serde_json::{Value, json};
use tower::Service;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Code and object of the answer, and what is shared.
async fn send(
    cluster: &Cluster,
    user: UserInfo,
    (method, path): (Method, &str),
    body: &Value,
) -> (u16, Value, Option<Value>) {
    let shared = SharedEvents::default();
    let kind = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(Body::from(body.to_string()))
        .unwrap();
    request.extensions_mut().insert(shared.clone());
    let answer = cluster.server.service_as(user).call(request).await.unwrap();
    let code = answer.status().as_u16();
    let answer = answer.into_body().collect().await.unwrap().to_bytes();
    let mut events = shared.take();
    assert!(events.len() <= 1, "{events:?}");
    let object = events.pop_front().map(|event| match event {
        SharedEvent::Set(object) => {
            let json: Value = serde_json::from_slice(&object.json.concat()).unwrap();
            assert_eq!(json["metadata"]["resourceVersion"], object.revision.to_string());
            assert_eq!(json["metadata"]["name"], &*object.header.key.name);
            json
        }
        other => panic!("{other:?}"),
    });
    (code, serde_json::from_slice(&answer).unwrap(), object)
}

fn admin() -> UserInfo {
    UserInfo::named("admin", [UserInfo::MASTERS])
}

#[tokio::test]
async fn shared_write_is_the_object_of_its_answer() {
    let cluster = start().await;
    let map = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    let (code, made, shared) = send(&cluster, admin(), (Method::POST, MAPS), &map).await;
    assert_eq!((code, shared.as_ref()), (201, Some(&made)));
    let path = format!("{MAPS}/a");
    let patch = json!({"data": {"k": "w"}});
    let (code, patched, shared) = send(&cluster, admin(), (Method::PATCH, &path), &patch).await;
    assert_eq!((code, shared.as_ref()), (200, Some(&patched)));
    assert_eq!(patched["data"]["k"], "w");
    let (code, put, shared) = send(&cluster, admin(), (Method::PUT, &path), &map).await;
    assert_eq!((code, shared.as_ref()), (200, Some(&put)));
    assert_eq!(put["data"]["k"], "v");
}

#[tokio::test]
async fn shared_write_shares_nothing_that_is_not_stored() {
    let cluster = start().await;
    let map = json!({"metadata": {"name": "a"}});
    let stranger = UserInfo::named("stranger", [UserInfo::AUTHENTICATED]);
    let (code, _, shared) = send(&cluster, stranger, (Method::POST, MAPS), &map).await;
    assert_eq!((code, shared), (403, None));
    let dry = format!("{MAPS}?dryRun=All");
    let (code, _, shared) = send(&cluster, admin(), (Method::POST, &dry), &map).await;
    assert_eq!((code, shared), (201, None));
    let wrong = json!({"metadata": {"name": "A"}});
    let (code, _, shared) = send(&cluster, admin(), (Method::POST, MAPS), &wrong).await;
    assert_eq!((code, shared), (422, None));
    let indented = format!("{MAPS}?pretty=true");
    let (code, made, shared) = send(&cluster, admin(), (Method::POST, &indented), &map).await;
    assert_eq!((code, shared), (201, None), "{made}");
    let (code, _, shared) = send(&cluster, admin(), (Method::POST, MAPS), &map).await;
    assert_eq!((code, shared), (409, None));
}
