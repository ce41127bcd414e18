//! Flags of kube-apiserver that change what is served: feature gates, API versions, plugins that are off by default.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_server::{FeatureGates, RuntimeConfig, ServerConfig};
use common::{Cluster, config, start_with};
use serde_json::{Value, json};

async fn with_gates(values: &str) -> Cluster {
    let feature_gates = FeatureGates::parse([values]).unwrap();
    start_with(ServerConfig {
        feature_gates,
        disable_admission_plugins: vec!["ServiceAccount".to_owned()],
        ..config()
    })
    .await
}

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod_with_environment_file() -> Value {
    let from = json!({"fileKeyRef": {"volumeName": "v", "path": "env", "key": "A"}, "fieldRef": {"fieldPath": "metadata.name"}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gated"}, "spec": {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [{"name": "a", "image": "a", "env": [{"name": "A", "valueFrom": from}]}]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn feature_gates_that_are_off_take_their_features_away() {
    let cluster = with_gates("WatchList=false,ComponentFlagz=false,EnvFiles=false").await;
    let admin = || cluster.admin();
    admin().get("/flagz").await.is(404);
    admin().get("/statusz").await.is(200);
    let watch =
        "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let refused = admin().get(&format!("{PODS}{watch}")).await.is(422).json();
    let message = refused["message"].as_str().unwrap();
    let words = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
    assert!(message.ends_with(words), "{message}");
    let metrics = admin().get("/metrics").await.body;
    for line in [
        "kubernetes_feature_enabled{name=\"WatchList\",stage=\"BETA\"} 0\n",
        "kubernetes_feature_enabled{name=\"ImageVolume\",stage=\"\"} 1\n",
        "kubernetes_feature_enabled{name=\"AllAlpha\",stage=\"ALPHA\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    // The field is dropped, so that the other source is the only one.
    let created = admin().post(PODS, pod_with_environment_file().to_string()).await;
    let from = &created.is(201).json()["spec"]["containers"][0]["env"][0]["valueFrom"];
    assert_eq!(from["fileKeyRef"], Value::Null);
    assert_eq!(from["fieldRef"]["fieldPath"], "metadata.name");
}

#[tokio::test(flavor = "multi_thread")]
async fn feature_gates_by_default_leave_their_features_there() {
    let cluster = with_gates("AllAlpha=false,EnvFiles=true").await;
    cluster.admin().get("/flagz").await.is(200);
    let pod = pod_with_environment_file().to_string();
    cluster.admin().post(PODS, pod).await.is(422);
}

#[test]
fn feature_gates_that_a_server_lacks_refuse_its_start() {
    let feature_gates = FeatureGates::parse(["ContainerStopSignals=true"]).unwrap();
    let config = ServerConfig {
        feature_gates,
        ..config()
    };
    let refused = config.check().unwrap_err().to_string();
    let words = "--feature-gates: cannot set feature gate ContainerStopSignals to true, this server does not have the feature";
    assert_eq!(refused, words);
}

async fn with_plugins(names: &[&str]) -> Cluster {
    start_with(ServerConfig {
        enable_admission_plugins: names.iter().map(|name| (*name).to_owned()).collect(),
        disable_admission_plugins: vec!["ServiceAccount".to_owned()],
        ..config()
    })
    .await
}

fn config_map() -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_off_by_default_run_once_they_are_enabled() {
    let cluster = with_plugins(&["NamespaceAutoProvision", "AlwaysPullImages", "NamespaceExists"]).await;
    let admin = || cluster.admin();
    let made = "/api/v1/namespaces/made/configmaps";
    admin()
        .post(&format!("{made}?dryRun=All"), config_map())
        .await
        .is(404);
    admin().post(made, config_map()).await.is(201);
    let namespace = admin().get("/api/v1/namespaces/made").await.is(200).json();
    assert_eq!(
        namespace["metadata"]["labels"]["kubernetes.io/metadata.name"],
        "made"
    );
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    let container = json!({"name": "a", "image": "a:1", "imagePullPolicy": "Never"});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container]}});
    let pod = admin().post(PODS, pod.to_string()).await.is(201).json();
    assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], "Always");
    // They are off otherwise.
    let plain = with_plugins(&[]).await;
    plain.admin().post(made, config_map()).await.is(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_that_denies_everything_leaves_the_server_its_own_writes() {
    let cluster = with_plugins(&["AlwaysDeny"]).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let refused = cluster.admin().post(maps, config_map()).await.is(403).json();
    let words = "configmaps \"a\" is forbidden: admission control is denying all modifications";
    assert_eq!(refused["message"], words);
    cluster
        .admin()
        .get("/api/v1/namespaces/kube-system")
        .await
        .is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_that_are_switched_off_are_not_there() {
    let values = "autoscaling/v2=false,batch/v1/cronjobs=false,node.k8s.io/v1=false";
    let runtime_config = RuntimeConfig::parse([values]).unwrap();
    let cluster = start_with(ServerConfig {
        runtime_config,
        ..config()
    })
    .await;
    let admin = || cluster.admin();
    let group = admin().get("/apis/autoscaling").await.is(200).json();
    let versions: Vec<_> = group["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|own| own["version"].clone())
        .collect();
    assert_eq!(versions, ["v1"]);
    assert_eq!(group["preferredVersion"]["version"], "v1");
    admin().get("/apis/autoscaling/v2").await.is(404);
    let scalers =
        |version: &str| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers");
    admin().get(&scalers("v2")).await.is(404);
    admin().get(&scalers("v1")).await.is(200);
    admin().get("/openapi/v3/apis/autoscaling/v2").await.is(404);
    admin().get("/openapi/v3/apis/autoscaling/v1").await.is(200);
    // A group without a version is not there either.
    for path in [
        "/apis/node.k8s.io",
        "/apis/node.k8s.io/v1",
        "/apis/node.k8s.io/v1/runtimeclasses",
    ] {
        assert_eq!(
            admin().get(path).await.is(404).body,
            "404 page not found\n",
            "{path}"
        );
    }
    let batch = admin().get("/apis/batch/v1").await.is(200).body;
    assert!(
        batch.contains("\"jobs\"") && !batch.contains("cronjobs"),
        "{batch}"
    );
    admin().get("/apis/batch/v1/cronjobs").await.is(404);
    let services = "/apis/apiregistration.k8s.io/v1/apiservices/";
    admin().get(&format!("{services}v2.autoscaling")).await.is(404);
    admin().get(&format!("{services}v1.node.k8s.io")).await.is(404);
    admin().get(&format!("{services}v1.autoscaling")).await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_that_is_announced_fails_readiness_alone() {
    let cluster = start_with(config()).await;
    cluster.admin().get("/readyz").await.is(200);
    cluster.server.announce_shutdown();
    let refused = cluster.admin().get("/readyz?verbose").await.is(500).body;
    assert!(refused.contains("[-]shutdown failed"), "{refused}");
    cluster.admin().get("/livez").await.is(200);
    cluster.admin().get(PODS).await.is(200);
}
