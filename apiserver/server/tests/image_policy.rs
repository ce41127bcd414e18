//! The images of pods, decided by a backend (ImagePolicyWebhook).

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;
mod review_server;
mod tls_server;

use apiserver_server::{Server, ServerConfig};
use apiserver_storage::LogStorage;
use common::{config, start_with};
use futures::StreamExt;
use futures::future::Either;
use futures::stream::FuturesUnordered;
use machinery_runtime::Runtime;
use review_server::ReviewServer;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn configured(folder: &Path, plugin: &Value) -> ServerConfig {
    let path = folder.join("admission.yaml");
    let plugins = json!([{"name": "ImagePolicyWebhook", "configuration": plugin}]);
    let file = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins});
    std::fs::write(&path, file.to_string()).unwrap();
    ServerConfig {
        enable_admission_plugins: vec!["ImagePolicyWebhook".to_owned()],
        disable_admission_plugins: vec!["ServiceAccount".to_owned()],
        admission_control_config_file: Some(path),
        ..config()
    }
}

fn pod(name: &str, image: &str) -> String {
    let annotations = json!({"team.image-policy.k8s.io/ticket": "7", "other": "x"});
    let containers = json!([{"name": "c", "image": image}]);
    json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"containers": containers}})
        .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn image_policy_backend_decides_about_pods() {
    let answer = |review: &Value| {
        let images = review["spec"]["containers"].as_array().unwrap().clone();
        let status = match images.iter().find(|own| own["image"] != "signed") {
            Some(bad) => json!({"allowed": false, "reason": format!("{} is not signed", bad["image"])}),
            None => json!({"allowed": true}),
        };
        let kind =
            json!({"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "status": status});
        (200, kind)
    };
    let server = ReviewServer::start(&Runtime::real(), answer).await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    server.kubeconfig(&kubeconfig);
    let plugin = json!({"imagePolicy": {"kubeConfigFile": kubeconfig}});
    let cluster = start_with(configured(folder.path(), &plugin)).await;
    let refused = cluster
        .admin()
        .post(PODS, pod("bad", "other"))
        .await
        .is(403)
        .json();
    assert_eq!(
        refused["message"],
        "pods \"bad\" is forbidden: image policy webhook backend denied one or more images: \"other\" is not signed"
    );
    for name in ["a", "b"] {
        cluster.admin().post(PODS, pod(name, "signed")).await.is(201);
    }
    let seen = server.seen();
    assert_eq!(seen.len(), 2, "the answer is remembered");
    let spec = json!({
        "containers": [{"image": "signed"}],
        "annotations": {"team.image-policy.k8s.io/ticket": "7"},
        "namespace": "default",
    });
    assert_eq!(seen[1]["spec"], spec);
}

/// A ReplicaSet of large pods in one namespace, at a backend that does not answer for them, and one of another namespace.
#[tokio::test(flavor = "multi_thread")]
async fn image_policy_reviews_of_one_namespace_take_no_share_of_anothers() {
    let answer = |review: &Value| match review["spec"]["namespace"].as_str() {
        Some("red") => (0, Value::Null),
        _ => (200, json!({"kind": "ImageReview", "status": {"allowed": true}})),
    };
    let server = ReviewServer::start(&Runtime::real(), answer).await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    server.kubeconfig(&kubeconfig);
    let plugin = json!({"imagePolicy": {"kubeConfigFile": kubeconfig}});
    let cluster = start_with(configured(folder.path(), &plugin)).await;
    for name in ["red", "blue"] {
        let namespace = json!({"metadata": {"name": name}}).to_string();
        cluster
            .admin()
            .post("/api/v1/namespaces", namespace)
            .await
            .is(201);
    }
    let cluster = &cluster;
    let create = async |namespace: &str, number: usize| {
        let annotations = json!({"large.image-policy.k8s.io/x": "x".repeat(253 << 10), "n.image-policy.k8s.io/x": number.to_string()});
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        let pod =
            json!({"metadata": {"name": format!("p{number}"), "annotations": annotations}, "spec": spec});
        let controller = "system:serviceaccount:kube-system:replicaset-controller";
        let asking = cluster.admin().header("impersonate-user", controller);
        let asking = asking.header("impersonate-group", "system:masters");
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        asking.post(&path, pod.to_string()).await
    };
    // Four of the largest fill a share.
    let mut filling: FuturesUnordered<_> = (0..4).map(|number| create("red", number)).collect();
    let others = async {
        server.until_seen(4).await;
        create("red", 4).await.is(429);
        create("blue", 5).await.is(201);
    };
    let filling = async { while filling.next().await.is_some() {} };
    let (filling, others) = (std::pin::pin!(filling), std::pin::pin!(others));
    let first = futures::future::select(others, filling).await;
    assert!(
        matches!(first, Either::Left(_)),
        "the backend answers no review of red"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn image_policy_of_a_backend_that_fails_is_the_configurations() {
    let server = ReviewServer::start(&Runtime::real(), |_| (503, json!({}))).await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    server.kubeconfig(&kubeconfig);
    for (default_allow, code) in [(true, 201), (false, 403)] {
        let plugin = json!({"imagePolicy": {"kubeConfigFile": kubeconfig, "retryBackoff": 1, "defaultAllow": default_allow}});
        let cluster = start_with(configured(folder.path(), &plugin)).await;
        cluster.admin().post(PODS, pod("a", "x")).await.is(code);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn image_policy_without_a_configuration_is_no_start() {
    let starts = async |config: ServerConfig| {
        let runtime = Runtime::real();
        let storage = Arc::new(LogStorage::memory(&runtime).await.unwrap());
        let started = Server::builder(storage).config(config).start(&runtime).await;
        let error: Box<dyn std::error::Error> = Box::new(started.err().unwrap());
        error.source().unwrap().to_string()
    };
    let config = ServerConfig {
        admission_control_config_file: None,
        ..configured(tempfile::tempdir().unwrap().path(), &Value::Null)
    };
    let why = "couldn't init admission plugin \"ImagePolicyWebhook\": no config specified";
    assert_eq!(starts(config).await, why);
    let folder = tempfile::tempdir().unwrap();
    let plugin = json!({"imagePolicy": {"kubeConfigFile": "/no/such/kubeconfig"}});
    let why = starts(configured(folder.path(), &plugin)).await;
    assert!(why.contains("unable to read /no/such/kubeconfig"), "{why}");
}
