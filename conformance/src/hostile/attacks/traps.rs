//! Attacks with objects that cost the server more than they look like, and by what others have installed ([`traps`](crate::hostile::traps)).

use super::Scene;
use crate::hostile::traps::{DEAR, DEAR_ITEMS, TRICKLING};
use anyhow::{Result, ensure};
use bytes::Bytes;
use http::{Method, header};
use http_body_util::BodyExt;
use machinery_runtime::Runtime;
use serde_json::json;
use std::time::Duration;

/// Services of an attacker's at a time.
const SERVICES: u64 = 25;
const PORTS: u16 = 1_000;
/// A body of a review has room for so many and few more.
const GROUPS: usize = 24_000;

/// Objects for which each rule of their definition is evaluated, over all that they may have.
pub(super) async fn dear_object(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let items: Vec<String> = (0..DEAR_ITEMS).map(|at| format!("item-{at}")).collect();
    let name = format!("dear-{:x}", runtime.random_u64());
    let object = json!({"apiVersion": "dear.example/v1", "kind": "Dear", "metadata": {"name": name}, "spec": {"items": items}});
    client.send_json(Method::POST, DEAR, object.to_string()).await?;
    let one = format!("{DEAR}/{name}");
    for turn in 0..10 {
        let items: Vec<String> = (0..DEAR_ITEMS).map(|at| format!("{turn}-{}", at / 2)).collect();
        let patch = json!({"spec": {"items": items}});
        client.send_json(Method::PATCH, &one, patch.to_string()).await?;
    }
    client
        .call(Method::DELETE, &one, &[], Bytes::new())
        .await
        .map(drop)
}

/// A write for which a webhook is called that never answers.
pub(super) async fn silent_webhook(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let secrets = format!("/api/v1/namespaces/{}/secrets", scene.mallory.namespace);
    let name = format!("s-{:x}", runtime.random_u64());
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"k": "v".repeat(500_000)}});
    client
        .send_json(Method::POST, &secrets, secret.to_string())
        .await?;
    let one = format!("{secrets}/{name}");
    client
        .call(Method::DELETE, &one, &[], Bytes::new())
        .await
        .map(drop)
}

/// A review of a user in as many groups as its body has room for.
pub(super) async fn many_groups(scene: Scene, _: Runtime) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let namespace = scene.mallory.namespace;
    let groups: Vec<String> = (0..GROUPS).map(|at| format!("g{at}")).collect();
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview", "metadata": {"namespace": namespace},
        "spec": {"user": "x", "groups": groups, "resourceAttributes": {"namespace": namespace, "verb": "get", "resource": "pods"}}});
    let path = format!("/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews");
    let content = [(header::CONTENT_TYPE, "application/json")];
    let answer = client
        .open(Method::POST, &path, &content, review.to_string().into())
        .await?;
    let status = answer.status();
    answer.into_body().collect().await?;
    ensure!(status.is_success(), "{status}");
    Ok(())
}

/// Services of many ports come and go, and pods of which there are none are behind them.
pub(super) async fn many_ports(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let services = format!("/api/v1/namespaces/{}/services", scene.mallory.namespace);
    let name = format!("ports-{}", runtime.random_u64() % SERVICES);
    // Another client may have deleted it.
    let one = format!("{services}/{name}");
    let _ = client.call(Method::DELETE, &one, &[], Bytes::new()).await;
    let ports: Vec<_> = (1..=PORTS)
        .map(|port| json!({"name": format!("p{port}"), "port": port}))
        .collect();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"selector": {"app": "none"}, "ports": ports}});
    client
        .send_json(Method::POST, &services, service.to_string())
        .await
        .map(drop)
}

/// A request that is passed on to an extension, whose answer comes a byte at a time.
pub(super) async fn trickling_answer(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let answer = client.open(Method::GET, TRICKLING, &[], Bytes::new()).await?;
    let status = answer.status();
    let whole = answer.into_body().collect();
    let read = runtime.timeout(Duration::from_secs(30), whole).await;
    ensure!(status.is_success(), "{status}");
    if let Ok(read) = read {
        read?;
    }
    Ok(())
}
