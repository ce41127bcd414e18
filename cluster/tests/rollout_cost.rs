//! Cost of a Deployment in one process, server, controllers and scheduler together, without sockets and without disk.
//!
//! `KNARR_PODS=400 cargo test -p cluster --test rollout_cost -- --ignored --nocapture` prints CPU time of the thread from the Deployment's
//! creation until all of its pods are Ready, and the writes. It is one run of the simulator, on one thread, so `perf record` shows its parts.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]
#![allow(clippy::print_stdout, reason = "figures are what it is for")]

use cluster::{Cluster, Selection};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use machinery_client::{ApiResource, Client, Patch};
use machinery_meta::ObjectKey;
use machinery_runtime::{Runtime, Simulation};
use serde_json::{Value, json};
use std::time::Duration;

const PODS_OF_A_NODE: usize = 100;
/// Reports of kubelets under way.
const AT_ONCE: usize = 16;
const LOOK_EVERY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(600);
const NAMESPACE: &str = "rollout";

/// CPU time of this thread.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the knob of a measurement, which has no config"
)]
fn pods() -> usize {
    std::env::var("KNARR_PODS").map_or(100, |text| text.parse().unwrap())
}

async fn until<F: Future<Output = bool>>(runtime: &Runtime, what: &str, look: impl Fn() -> F) {
    let looking = async {
        while !look().await {
            runtime.sleep(LOOK_EVERY).await;
        }
    };
    let ended = runtime.timeout(PATIENCE, looking).await;
    ended.unwrap_or_else(|_| panic!("waited in vain until {what}"));
}

async fn make_nodes(client: &Client, count: usize) {
    let nodes = ApiResource::of::<Node>();
    for number in 0..count {
        let room = json!({"cpu": "64", "memory": "256Gi", "pods": PODS_OF_A_NODE.to_string()});
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{number}")},
            "status": {"allocatable": room, "capacity": room, "conditions": conditions}});
        client.create(&nodes, "", &node).await.unwrap();
    }
    until(client.runtime(), "no node has a taint", || async {
        let live: Value = client.list_as(&nodes, "", &[]).await.unwrap();
        let all = live["items"].as_array().unwrap();
        all.iter().all(|node| node["spec"]["taints"].is_null())
    })
    .await;
}

/// A Deployment whose pods are as those of usual charts.
fn deployment(replicas: usize) -> Value {
    let labels = json!({"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web"});
    let probe = json!({"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10});
    let container = json!({"name": "web", "image": "registry.example.com/web:1.2.3",
        "ports": [{"name": "http", "containerPort": 8080}],
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
        "readinessProbe": probe, "livenessProbe": probe});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "large", "namespace": NAMESPACE},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}})
}

/// A kubelet's one report of a pod.
async fn make_ready(client: &Client, number: usize, name: &str) {
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let conditions = ["Initialized", "Ready", "ContainersReady"].map(condition);
    let address = format!("10.{}.{}.{}", number >> 16, (number >> 8) & 255, number & 255);
    let container = json!({"name": "web", "ready": true, "restartCount": 0, "image": "registry.example.com/web:1.2.3",
        "imageID": "", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}});
    let body = json!({"status": {"phase": "Running", "conditions": conditions, "containerStatuses": [container],
        "hostIP": "192.0.2.1", "podIP": address, "podIPs": [{"ip": address}]}});
    let pods = ApiResource::of::<Pod>();
    let key = ObjectKey::new(NAMESPACE, name);
    client
        .patch(&pods, &key, "status", &Patch::Strategic, &body)
        .await
        .unwrap();
}

/// Names of all pods, once they have a node.
async fn bound(client: &Client, count: usize) -> Option<Vec<String>> {
    let live: Value = client
        .list_as(&ApiResource::of::<Pod>(), NAMESPACE, &[])
        .await
        .unwrap();
    let pods = live["items"].as_array().unwrap();
    let is_bound = |pod: &Value| pod["spec"]["nodeName"].is_string();
    (pods.len() == count && pods.iter().all(is_bound)).then(|| {
        let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
        pods.iter().map(name).collect()
    })
}

async fn roll_out(runtime: Runtime, count: usize) -> (Duration, String) {
    let built = Cluster::builder()
        .runtime(runtime.clone())
        .keys(cluster::known_keys(&runtime).unwrap())
        .controllers(Selection::Default)
        .scheduler();
    let cluster = built.start().await.unwrap();
    let client = cluster.admin();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    client
        .create(&ApiResource::of::<Namespace>(), "", &namespace)
        .await
        .unwrap();
    until(&runtime, "the service account is there", || async {
        let account = ObjectKey::new(NAMESPACE, "default");
        client
            .get(&ApiResource::of::<ServiceAccount>(), &account)
            .await
            .is_ok()
    })
    .await;
    make_nodes(&client, count.div_ceil(PODS_OF_A_NODE)).await;
    let begun = cpu();
    let deployments = ApiResource::of::<Deployment>();
    client
        .create(&deployments, NAMESPACE, &deployment(count))
        .await
        .unwrap();
    until(&runtime, "all pods are bound", || async {
        bound(&client, count).await.is_some()
    })
    .await;
    let names = bound(&client, count).await.unwrap();
    let reports = names
        .iter()
        .enumerate()
        .map(|(number, name)| make_ready(&client, number, name));
    futures::stream::iter(reports)
        .for_each_concurrent(AT_ONCE, |report| report)
        .await;
    until(&runtime, "all pods are Ready", || async {
        let key = ObjectKey::new(NAMESPACE, "large");
        let live: Value = client.get_as(&deployments, &key).await.unwrap();
        live["status"]["readyReplicas"] == count
    })
    .await;
    let spent = cpu() - begun;
    let metrics = client.get_path("/metrics", &[]).await.unwrap();
    let metrics = String::from_utf8(metrics.to_vec()).unwrap();
    cluster.shutdown().await;
    (spent, metrics)
}

/// Requests that change something, by what they are.
fn writes(metrics: &str) -> Vec<String> {
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"));
    let changes = lines.filter(|line| {
        !["GET", "LIST", "WATCH"]
            .iter()
            .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
    });
    changes.map(str::to_owned).collect()
}

#[test]
#[ignore = "measures, and asserts nothing about it"]
fn cost_of_a_deployment() {
    let count = pods();
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    let (spent, metrics) = simulation.run(roll_out(runtime, count));
    writes(&metrics).iter().for_each(|line| println!("{line}"));
    println!(
        "a Deployment of {count} pods: {spent:?}, {:?} a pod",
        spent / u32::try_from(count).unwrap()
    );
}
