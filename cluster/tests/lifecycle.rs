//! A cluster starts and its parts work together.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use cluster::{Cluster, Selection};
use k8s_openapi::List;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret, ServiceAccount};
use machinery_client::{ApiResource, Client, DeleteOptions};
use machinery_meta::ObjectKey;
use machinery_runtime::Runtime;
use serde_json::json;
use std::time::Duration;

/// A guard against hanging, not an assertion: everything here takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(20);

async fn until<T, F: Future<Output = Option<T>>>(runtime: &Runtime, what: &str, look: impl Fn() -> F) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            runtime.sleep(LOOK_EVERY).await;
        }
    };
    runtime
        .timeout(PATIENCE, looking)
        .await
        .unwrap_or_else(|_| panic!("waited in vain until {what}"))
}

async fn pods(client: &Client) -> Vec<Pod> {
    let list: List<Pod> = client
        .list_as(&ApiResource::of::<Pod>(), "default", &[])
        .await
        .unwrap();
    list.items
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_of_a_secret_lives_and_ends_with_its_account() {
    let cluster = Cluster::builder()
        .controllers(Selection::Default)
        .start()
        .await
        .unwrap();
    let (client, runtime) = (cluster.admin(), cluster.runtime().clone());
    let (accounts, secrets) = (ApiResource::of::<ServiceAccount>(), ApiResource::of::<Secret>());
    let (bot, key) = (
        ObjectKey::new("default", "bot"),
        ObjectKey::new("default", "bot-token"),
    );
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"},
        "secrets": [{"name": "bot-token"}]});
    client.create(&accounts, "default", &account).await.unwrap();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "bot-token", "annotations": {"kubernetes.io/service-account.name": "bot"}}});
    client.create(&secrets, "default", &secret).await.unwrap();
    let filled = until(&runtime, "the token is there", || async {
        let live: Secret = client.get_as(&secrets, &key).await.unwrap();
        let data = live.data.clone().unwrap_or_default();
        data.contains_key("token").then_some(live)
    })
    .await;
    let data = filled.data.unwrap();
    assert_eq!(data["namespace"].0, b"default");
    assert_eq!(
        data["ca.crt"].0,
        cluster.server().pki().cluster.certificate_pem().as_bytes()
    );
    let token = String::from_utf8(data["token"].0.clone()).unwrap();
    let review =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let reviews = ApiResource::of::<TokenReview>();
    let reviewed = async || {
        let answer = client.create(&reviews, "", &review).await.unwrap();
        let status = serde_json::from_slice::<TokenReview>(&answer)
            .unwrap()
            .status
            .unwrap();
        status.user.and_then(|user| user.username)
    };
    assert_eq!(
        reviewed().await.as_deref(),
        Some("system:serviceaccount:default:bot")
    );
    // A Secret that goes leaves the account's list; an account that goes takes its Secrets along.
    let other = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "other", "annotations": {"kubernetes.io/service-account.name": "bot"}}});
    client.create(&secrets, "default", &other).await.unwrap();
    client
        .delete(&secrets, &key, &DeleteOptions::default())
        .await
        .unwrap();
    assert_eq!(reviewed().await, None);
    until(&runtime, "the account lists no Secret", || async {
        let live: ServiceAccount = client.get_as(&accounts, &bot).await.unwrap();
        live.secrets.unwrap_or_default().is_empty().then_some(())
    })
    .await;
    client
        .delete(&accounts, &bot, &DeleteOptions::default())
        .await
        .unwrap();
    let other = ObjectKey::new("default", "other");
    until(&runtime, "the other Secret is gone", || async {
        client.get(&secrets, &other).await.err()
    })
    .await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deployment_becomes_pods_on_a_node() {
    let cluster = Cluster::builder()
        .controllers(Selection::Default)
        .scheduler()
        .start()
        .await
        .unwrap();
    let (client, runtime) = (cluster.admin(), cluster.runtime().clone());
    let account = ObjectKey::new("default", "default");
    until(&runtime, "the default service account is there", || async {
        client
            .get(&ApiResource::of::<ServiceAccount>(), &account)
            .await
            .ok()
    })
    .await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {
        "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
        "capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}]}});
    client
        .create(&ApiResource::of::<Node>(), "", &node)
        .await
        .unwrap();
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    client
        .create(&ApiResource::of::<Deployment>(), "default", &deployment)
        .await
        .unwrap();
    until(&runtime, "three pods are bound", || async {
        let bound = pods(&client).await.into_iter().filter(|pod| {
            pod.spec
                .as_ref()
                .is_some_and(|spec| spec.node_name.as_deref() == Some("n1"))
        });
        (bound.count() == 3).then_some(())
    })
    .await;
    let ca = ObjectKey::new("default", "kube-root-ca.crt");
    until(&runtime, "the root CA is published", || async {
        client.get(&ApiResource::of::<ConfigMap>(), &ca).await.ok()
    })
    .await;
    cluster.shutdown().await;
}
