//! Rights of a kubelet, over HTTP.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_auth::pki::KUBELET_CLIENT;
use bytes::Bytes;
use common::{Ask, Cluster, start};
use http::Method;
use serde_json::{Value, json};

fn node(cluster: &Cluster) -> Ask<'_> {
    cluster
        .admin()
        .header("impersonate-user", "system:node:n1")
        .header("impersonate-group", "system:nodes")
}

async fn patch_node(cluster: &Cluster, body: &Value) -> u16 {
    let ask = node(cluster).header("content-type", "application/merge-patch+json");
    let body = Bytes::from(body.to_string());
    let answer = ask.send(Method::PATCH, "/api/v1/nodes/n1", body).await;
    answer.code.as_u16()
}

async fn cluster_with_node() -> Cluster {
    let cluster = start().await;
    let own = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    node(&cluster)
        .post("/api/v1/nodes", own.to_string())
        .await
        .is(201);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    cluster.admin().post(accounts, account.to_string()).await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn node_neither_owns_itself_nor_taints_itself() {
    let cluster = cluster_with_node().await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"});
    let change = json!({"metadata": {"ownerReferences": [owner]}});
    assert_eq!(patch_node(&cluster, &change).await, 403);
    assert_eq!(patch_node(&cluster, &json!({"spec": {"taints": []}})).await, 403);
    assert_eq!(
        patch_node(&cluster, &json!({"metadata": {"labels": {"a": "b"}}})).await,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn node_gets_tokens_and_secrets_of_its_pods_only() {
    let cluster = cluster_with_node().await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "s", "secret": {"secretName": "mine"}}]}});
    let pods = "/api/v1/namespaces/default/pods";
    let pod = cluster.admin().post(pods, pod.to_string()).await.is(201).json();
    let secrets = "/api/v1/namespaces/default/secrets";
    for name in ["mine", "other"] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        cluster.admin().post(secrets, secret.to_string()).await.is(201);
    }
    node(&cluster).get(&format!("{secrets}/mine")).await.is(200);
    node(&cluster).get(&format!("{secrets}/other")).await.is(403);
    let ask = |spec: Value| {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
        node(&cluster).post(path, body.to_string())
    };
    let refused = ask(json!({})).await.is(403).json();
    assert_eq!(
        refused["message"],
        r#"serviceaccounts "default" is forbidden: node requested token not bound to a pod"#
    );
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"]});
    ask(json!({"boundObjectRef": bound})).await.is(201);
    ask(json!({"boundObjectRef": bound, "audiences": ["vault"]}))
        .await
        .is(403);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelet_client_may_nothing_but_reach_kubelets() {
    let cluster = start().await;
    let identity = &cluster.server.pki().kubelet_client;
    cluster.as_identity(identity).get("/api/v1/nodes").await.is(200);
    cluster
        .as_identity(identity)
        .get("/api/v1/namespaces/default/secrets")
        .await
        .is(403);
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": KUBELET_CLIENT, "resourceAttributes":
            {"verb": "create", "resource": "nodes", "subresource": "proxy", "name": "n1"}}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer = cluster
        .admin()
        .post(path, review.to_string())
        .await
        .is(201)
        .json();
    assert_eq!(answer["status"]["allowed"], true);
}
