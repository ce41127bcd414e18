//! The scheduler at work on a server: what it writes to pods.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use cluster::{Cluster, Selection};
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use machinery_client::{ApiResource, Client, DeleteOptions, Patch};
use machinery_meta::ObjectKey;
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::borrow::Cow;
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

/// A server with the scheduler and what a pod of the namespace `default` needs.
async fn started() -> (Cluster, Client, Runtime) {
    let cluster = Cluster::builder()
        .controllers(Selection::Default)
        .scheduler()
        .start()
        .await
        .unwrap();
    let (client, runtime) = (cluster.admin(), cluster.runtime().clone());
    let account = ObjectKey::new("default", "default");
    until(&runtime, "the default service account is there", || async {
        let accounts = ApiResource::of::<ServiceAccount>();
        client.get(&accounts, &account).await.ok()
    })
    .await;
    (cluster, client, runtime)
}

async fn make_node(client: &Client, name: &str) {
    let room = json!({"cpu": "4", "memory": "16Gi", "pods": "110"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {
        "allocatable": room, "capacity": room, "conditions": [{"type": "Ready", "status": "True"}]}});
    let nodes = ApiResource::of::<Node>();
    client.create(&nodes, "", &node).await.unwrap();
    let key = ObjectKey::cluster(name);
    until(client.runtime(), "the node has no taint", || async {
        let live: Node = client.get_as(&nodes, &key).await.unwrap();
        let taints = live.spec.and_then(|spec| spec.taints).unwrap_or_default();
        taints.is_empty().then_some(())
    })
    .await;
}

async fn make_pod(client: &Client, name: &str, rest: Value) {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (key, value) in rest.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    let pods = ApiResource::of::<Pod>();
    client.create(&pods, "default", &pod).await.unwrap();
}

async fn nominate(client: &Client, name: &str, node: &str) {
    let body = json!({"status": {"nominatedNodeName": node}});
    let key = ObjectKey::new("default", name);
    let pods = ApiResource::of::<Pod>();
    client
        .patch(&pods, &key, "status", &Patch::Merge, &body)
        .await
        .unwrap();
}

async fn status(client: &Client, name: &str) -> PodStatus {
    let key = ObjectKey::new("default", name);
    let pod: Pod = client.get_as(&ApiResource::of::<Pod>(), &key).await.unwrap();
    pod.status.unwrap()
}

/// Reason and message of `PodScheduled`.
fn scheduled(status: &PodStatus) -> Option<(String, String)> {
    let mut all = status.conditions.iter().flatten();
    let own = all.find(|one| one.type_ == "PodScheduled" && one.status == "False")?;
    Some((own.reason.clone()?, own.message.clone()?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nomination_ends_where_preempting_helps_nowhere() {
    let (cluster, client, runtime) = started().await;
    let gated = json!({"schedulingGates": [{"name": "example.com/wait"}],
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "9"}}}]});
    make_pod(&client, "big", gated).await;
    nominate(&client, "big", "gone").await;
    make_node(&client, "n1").await;
    let open = json!({"spec": {"schedulingGates": null}});
    let (pods, key) = (ApiResource::of::<Pod>(), ObjectKey::new("default", "big"));
    client.patch(&pods, &key, "", &Patch::Merge, &open).await.unwrap();
    until(&runtime, "nothing is promised to the pod", || async {
        let now = status(&client, "big").await;
        let (reason, _) = scheduled(&now)?;
        (reason == "Unschedulable" && now.nominated_node_name.is_none()).then_some(())
    })
    .await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nomination_ends_where_binding_is_refused_and_the_reason_is_upstreams() {
    let (cluster, client, runtime) = started().await;
    let (roles, role) = (
        ApiResource::of::<ClusterRole>(),
        ObjectKey::cluster("system:kube-scheduler"),
    );
    let live: Value = client.get_as(&roles, &role).await.unwrap();
    let rules = live["rules"].as_array().unwrap().iter();
    let binds = |rule: &&Value| rule["resources"].to_string().contains("pods/binding");
    let others: Vec<&Value> = rules.filter(|rule| !binds(rule)).collect();
    let body = json!({"rules": others});
    client
        .patch(&roles, &role, "", &Patch::Merge, &body)
        .await
        .unwrap();
    make_pod(
        &client,
        "p",
        json!({"schedulingGates": [{"name": "example.com/wait"}]}),
    )
    .await;
    nominate(&client, "p", "n1").await;
    make_node(&client, "n1").await;
    let open = json!({"spec": {"schedulingGates": null}});
    let (pods, key) = (ApiResource::of::<Pod>(), ObjectKey::new("default", "p"));
    client.patch(&pods, &key, "", &Patch::Merge, &open).await.unwrap();
    let message = until(&runtime, "nothing is promised to the pod", || async {
        let now = status(&client, "p").await;
        let (reason, message) = scheduled(&now)?;
        (reason == "SchedulerError" && now.nominated_node_name.is_none()).then_some(message)
    })
    .await;
    assert_eq!(
        message,
        "running Bind plugin \"DefaultBinder\": pods \"p\" is forbidden: User \"system:kube-scheduler\" cannot create \
         resource \"pods/binding\" in API group \"\" in the namespace \"default\""
    );
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victim_says_which_scheduler_preempts_it() {
    let (cluster, client, runtime) = started().await;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "high"}, "value": 1000});
    let kind = ApiResource::of::<PriorityClass>();
    client.create(&kind, "", &class).await.unwrap();
    make_node(&client, "n1").await;
    let wants = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}]);
    let low = json!({"containers": wants, "terminationGracePeriodSeconds": 600});
    make_pod(&client, "low", low).await;
    let key = ObjectKey::new("default", "low");
    until(&runtime, "the first pod has its node", || async {
        let pod: Pod = client.get_as(&ApiResource::of::<Pod>(), &key).await.ok()?;
        pod.spec?.node_name
    })
    .await;
    make_pod(
        &client,
        "high",
        json!({"containers": wants, "priorityClassName": "high"}),
    )
    .await;
    until(&runtime, "the node is promised to the second pod", || async {
        status(&client, "high").await.nominated_node_name
    })
    .await;
    let message = until(&runtime, "the first pod has to go", || async {
        let now = status(&client, "low").await;
        let mut all = now.conditions.into_iter().flatten();
        all.find(|one| one.type_ == "DisruptionTarget")?.message
    })
    .await;
    assert_eq!(
        message,
        "default-scheduler: preempting to accommodate a higher priority pod"
    );
    cluster.shutdown().await;
}

/// The kind of the scheduler's policy.
fn policies() -> ApiResource {
    ApiResource {
        group: Cow::Borrowed("knarr.dev"),
        version: Cow::Borrowed("v1"),
        plural: Cow::Borrowed("schedulerpolicies"),
        kind: Cow::Borrowed("SchedulerPolicy"),
        namespaced: false,
    }
}

/// The policy's status, once its condition has the reason.
async fn policy_is(client: &Client, runtime: &Runtime, policy: &str, reason: &str) -> Value {
    let key = ObjectKey::cluster("default");
    until(runtime, "the policy is as wanted", || async {
        let live: Value = client.get_as(&policies(), &key).await.ok()?;
        let ready = live["status"]["conditions"][0].clone();
        let is = live["status"]["policy"] == *policy && ready["reason"] == *reason;
        (is && live["status"]["observedGeneration"] == live["metadata"]["generation"]).then_some(ready)
    })
    .await
}

/// The nodes of pods that are made one after the other.
async fn nodes_of(client: &Client, runtime: &Runtime, names: &[&str]) -> Vec<String> {
    let mut nodes = Vec::new();
    for name in names {
        make_pod(client, name, json!({})).await;
        let key = ObjectKey::new("default", *name);
        let node = until(runtime, "the pod has its node", || async {
            let pod: Pod = client.get_as(&ApiResource::of::<Pod>(), &key).await.ok()?;
            pod.spec?.node_name
        });
        nodes.push(node.await);
    }
    nodes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_changes_at_run_time() {
    let (cluster, client, runtime) = started().await;
    for node in ["n1", "n2", "n3"] {
        make_node(&client, node).await;
    }
    let policy = |policy: &str| {
        json!({"apiVersion": "knarr.dev/v1", "kind": "SchedulerPolicy", "metadata": {"name": "default"},
            "spec": {"policy": policy}})
    };
    let (kind, key) = (policies(), ObjectKey::cluster("default"));
    let error = client.create(&kind, "", &policy("Best")).await.unwrap_err();
    let problem = "spec.policy: Unsupported value: \"Best\"";
    assert!(
        error.is_invalid() && error.to_string().contains(problem),
        "{error}"
    );
    client.create(&kind, "", &policy("RoundRobin")).await.unwrap();
    let ready = policy_is(&client, &runtime, "RoundRobin", "InEffect").await;
    assert_eq!(ready["status"], "True");
    let nodes = nodes_of(&client, &runtime, &["p1", "p2", "p3", "p4"]).await;
    assert_eq!(nodes, ["n1", "n2", "n3", "n1"]);
    let change = async |to: &str| {
        let body = json!({"spec": {"policy": to}});
        client.patch(&kind, &key, "", &Patch::Merge, &body).await.unwrap();
    };
    change("MostAllocated").await;
    policy_is(&client, &runtime, "MostAllocated", "InEffect").await;
    assert_eq!(nodes_of(&client, &runtime, &["p5", "p6"]).await, ["n1", "n1"]);
    // No node is measured here: requests decide until one is.
    change("LeastCPU").await;
    let ready = policy_is(&client, &runtime, "LeastCPU", "UsageUnknown").await;
    assert_eq!(ready["status"], "False");
    let nodes = nodes_of(&client, &runtime, &["p7", "p8"]).await;
    assert!(!nodes.contains(&"n1".to_owned()), "{nodes:?}");
    client
        .delete(&kind, &key, &DeleteOptions::default())
        .await
        .unwrap();
    assert!(!nodes_of(&client, &runtime, &["p9"]).await.is_empty());
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_of_the_scheduler_are_served_with_the_servers() {
    let (cluster, client, runtime) = started().await;
    make_node(&client, "n1").await;
    nodes_of(&client, &runtime, &["p1"]).await;
    let sample = r#"scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1"#;
    until(&runtime, "the attempt is counted", || async {
        let page = client.get_path("/metrics", &[]).await.unwrap();
        let text = std::str::from_utf8(&page).unwrap().to_owned();
        text.lines().any(|line| line == sample).then_some(text)
    })
    .await;
    cluster.shutdown().await;
}
