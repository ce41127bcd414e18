//! Tables of objects that the server itself keeps, as `kubectl get` shows them: API services, flow schemas, scales.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use bytes::Bytes;
use common::{Cluster, start};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";

/// The names of the columns that are always shown, and the cells below them.
async fn table(cluster: &Cluster, path: &str) -> (Vec<String>, Vec<Vec<Value>>) {
    let form = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let answer = cluster
        .admin()
        .header("accept", form)
        .get(path)
        .await
        .is(200)
        .json();
    let heads = answer["columnDefinitions"].as_array().unwrap().iter();
    let heads = heads
        .map(|head| head["name"].as_str().unwrap().to_owned())
        .collect();
    let rows = answer["rows"].as_array().unwrap().iter();
    let cells = rows.map(|row| row["cells"].as_array().unwrap().clone()).collect();
    (heads, cells)
}

async fn until(cluster: &Cluster, path: &str, wanted: impl Fn(u16, &Value) -> bool) -> Value {
    loop {
        let answer = cluster.admin().get(path).await;
        let code = answer.code.as_u16();
        let json = answer.json();
        if wanted(code, &json) {
            return json;
        }
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn api_service_exists_for_every_served_version() {
    let cluster = start().await;
    let (heads, rows) = table(&cluster, SERVICES).await;
    assert_eq!(heads, ["Name", "Service", "Available", "Age"]);
    assert!(
        rows.iter().all(|row| row[1] == "Local" && row[2] == "True"),
        "{rows:?}"
    );
    let groups = cluster.admin().get("/apis").await.is(200).json();
    for group in groups["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            let (group, version) = (
                group["name"].as_str().unwrap(),
                version["version"].as_str().unwrap(),
            );
            let name = format!("{version}.{group}");
            let listed = rows.iter().any(|row| row[0] == name.as_str());
            // The last one is a metrics-server's to register.
            let unregistered = ["apiregistration.k8s.io", "metrics.k8s.io"];
            assert!(
                listed != unregistered.contains(&group),
                "{name} is listed: {listed}"
            );
        }
    }
    let core = cluster
        .admin()
        .get(&format!("{SERVICES}/v1."))
        .await
        .is(200)
        .json();
    let spec = json!({"version": "v1", "groupPriorityMinimum": 18_000, "versionPriority": 1});
    assert_eq!(core["spec"], spec);
}

#[tokio::test(flavor = "multi_thread")]
async fn api_services_of_custom_versions_come_and_go() {
    let cluster = start().await;
    let version = |name: &str, served: bool, storage: bool| {
        json!({"name": name, "served": served, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object"}}})
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.knarr.test"},
        "spec": {
            "group": "knarr.test", "scope": "Namespaced",
            "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
            "versions": [version("v1", true, true), version("v2", false, false)],
        },
    });
    cluster
        .admin()
        .post(DEFINITIONS, definition.to_string())
        .await
        .is(201);
    let path = format!("{SERVICES}/v1.knarr.test");
    let available =
        |code, service: &Value| code == 200 && service["status"]["conditions"][0]["reason"] == "Local";
    let service = until(&cluster, &path, available).await;
    assert_eq!(
        service["metadata"]["labels"],
        json!({"kube-aggregator.kubernetes.io/automanaged": "true"})
    );
    assert_eq!(service["spec"]["groupPriorityMinimum"], 1000);
    cluster
        .admin()
        .get(&format!("{SERVICES}/v2.knarr.test"))
        .await
        .is(404);
    // A deleted one comes back; with the definition it goes.
    cluster
        .admin()
        .send(Method::DELETE, &path, Bytes::new())
        .await
        .is(200);
    let uid = service["metadata"]["uid"].clone();
    until(&cluster, &path, |code, again| {
        code == 200 && again["metadata"]["uid"] != uid
    })
    .await;
    let definition = format!("{DEFINITIONS}/boats.knarr.test");
    cluster
        .admin()
        .send(Method::DELETE, &definition, Bytes::new())
        .await
        .is(200);
    until(&cluster, &path, |code, _| code == 404).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flow_schemas_are_shown_by_precedence_and_say_what_they_miss() {
    let cluster = start().await;
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "aaa"},
        "spec": {"priorityLevelConfiguration": {"name": "nowhere"}, "matchingPrecedence": 9_950},
    });
    cluster.admin().post(SCHEMAS, schema.to_string()).await.is(201);
    let path = format!("{SCHEMAS}/aaa");
    let said = |_, schema: &Value| schema["status"]["conditions"][0]["status"] == "True";
    let dangling = until(&cluster, &path, said).await;
    assert_eq!(
        dangling["status"]["conditions"][0]["message"],
        "This FlowSchema references the PriorityLevelConfiguration object named \"nowhere\" but there is no such object"
    );
    let (heads, rows) = table(&cluster, SCHEMAS).await;
    assert_eq!(heads[2], "MatchingPrecedence");
    let precedence = |row: &Vec<Value>| {
        row[2]
            .as_str()
            .map_or(row[2].as_i64(), |text| text.parse().ok())
            .unwrap()
    };
    assert!(rows.is_sorted_by_key(precedence), "{rows:?}");
    let missing = rows
        .iter()
        .filter(|row| row[5] == "True")
        .map(|row| row[0].clone());
    assert_eq!(missing.collect::<Vec<_>>(), ["aaa"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn table_of_scale_has_columns() {
    let cluster = start().await;
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    cluster.admin().post(sets, set.to_string()).await.is(201);
    let (heads, rows) = table(&cluster, &format!("{sets}/web/scale")).await;
    assert_eq!(heads, ["Name", "Desired", "Available", "Age"]);
    assert_eq!(rows[0][..3], [json!("web"), json!(3), json!(0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn table_row_shows_how_pod_ended() {
    let cluster = start().await;
    let of = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = of("ServiceAccount", "default").to_string();
    cluster.admin().post(accounts, account).await.is(201);
    let pods = "/api/v1/namespaces/default/pods";
    for (name, phase) in [("a", "Failed"), ("b", "Running"), ("c", "Succeeded")] {
        let mut pod = of("Pod", name);
        pod["spec"] = json!({"containers": [{"name": "c", "image": "i"}]});
        cluster.admin().post(pods, pod.to_string()).await.is(201);
        let status = Bytes::from(json!({"status": {"phase": phase}}).to_string());
        let ask = cluster
            .admin()
            .header("content-type", "application/merge-patch+json");
        let path = format!("{pods}/{name}/status");
        ask.send(Method::PATCH, &path, status).await.is(200);
    }
    let form = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let table = cluster
        .admin()
        .header("accept", form)
        .get(pods)
        .await
        .is(200)
        .json();
    let said = |row: usize| table["rows"][row]["conditions"].clone();
    let condition = |reason: &str, message: &str| json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]);
    assert_eq!(said(0), condition("Failed", "The pod failed."));
    assert_eq!(said(1), Value::Null);
    assert_eq!(
        said(2),
        condition("Succeeded", "The pod has completed successfully.")
    );
}
