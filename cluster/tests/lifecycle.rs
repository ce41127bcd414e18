//! A cluster starts and its parts work together.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use cluster::{Cluster, Selection};
use k8s_openapi::List;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, ServiceAccount};
use machinery_client::{ApiResource, Client};
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
async fn a_deployment_becomes_pods_on_a_node() {
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
