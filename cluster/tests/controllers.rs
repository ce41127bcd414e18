//! Controllers beside a server in memory: their metrics on its page, and those that no scenario has.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use cluster::{Cluster, Selection};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Service};
use k8s_openapi::api::storagemigration::v1::StorageVersionMigration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use machinery_client::{ApiResource, Client};
use machinery_meta::ObjectKey;
use serde_json::{Value, json};
use std::time::Duration;

async fn page(admin: &Client) -> String {
    let text = admin.get_path("/metrics", &[]).await.unwrap();
    String::from_utf8(text.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_metrics_are_on_the_servers_page() {
    let cluster = Cluster::builder().memory().controllers(Selection::Default);
    let cluster = cluster.start().await.unwrap();
    let admin = cluster.admin();
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"template": {"spec":
        {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    admin
        .create(&ApiResource::of::<Job>(), "default", &job)
        .await
        .unwrap();
    let wanted = [
        r#"job_controller_job_pods_creation_total{reason="new",status="succeeded"} 1"#,
        r#"job_controller_job_syncs_total{action="pods_created",completion_mode="NonIndexed",result="success"} 1"#,
        r#"workqueue_depth{name="job"} 0"#,
        r#"workqueue_unfinished_work_seconds{name="deployment"} 0"#,
        r#"root_ca_cert_publisher_sync_total{code="200"}"#,
        "# TYPE workqueue_queue_duration_seconds histogram",
    ];
    loop {
        let page = page(&admin).await;
        let Some(missing) = wanted.iter().find(|line| !page.contains(*line)) else {
            break;
        };
        tracing::debug!(missing, "not yet there");
        cluster.runtime().sleep(Duration::from_millis(20)).await;
    }
    let text = page(&admin).await;
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names: Vec<_> = names.filter_map(|line| line.split(' ').next()).collect();
    assert!(
        names.is_sorted(),
        "families of server and controllers are in one order"
    );
}

async fn started() -> Cluster {
    let cluster = Cluster::builder().memory().controllers(Selection::Default);
    cluster.start().await.unwrap()
}

/// Asks for an object until it is as wanted.
async fn until<K: k8s_openapi::Resource<Scope: 'static>>(
    cluster: &Cluster,
    key: &ObjectKey,
    wanted: impl Fn(Option<&Value>) -> bool,
) -> Option<Value> {
    loop {
        let own = cluster
            .admin()
            .get_as::<Value>(&ApiResource::of::<K>(), key)
            .await
            .ok();
        if wanted(own.as_ref()) {
            return own;
        }
        cluster.runtime().sleep(Duration::from_millis(20)).await;
    }
}

fn holds(object: Option<&Value>, condition: &str, status: &str) -> bool {
    let conditions = object.and_then(|own| own["status"]["conditions"].as_array());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|own| own["type"] == condition && own["status"] == status)
}

async fn migrate(cluster: &Cluster, name: &str, group: &str, resource: &str) -> Value {
    let migration = json!({"apiVersion": "storagemigration.k8s.io/v1", "kind": "StorageVersionMigration",
        "metadata": {"name": name}, "spec": {"resource": {"group": group, "resource": resource}}});
    let migrations = ApiResource::of::<StorageVersionMigration>();
    cluster.admin().create(&migrations, "", &migration).await.unwrap();
    let over = |own: Option<&Value>| holds(own, "Running", "False");
    let own = until::<StorageVersionMigration>(cluster, &ObjectKey::cluster(name), over).await;
    own.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_written_anew_where_a_migration_asks_for_it() {
    let cluster = started().await;
    let admin = cluster.admin();
    for at in 0..150 {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{at}")}});
        admin
            .create(&ApiResource::of::<ConfigMap>(), "default", &map)
            .await
            .unwrap();
    }
    let own = migrate(&cluster, "maps", "", "configmaps").await;
    assert!(holds(Some(&own), "Succeeded", "True"), "{own}");
    let own = migrate(
        &cluster,
        "reviews",
        "authorization.k8s.io",
        "subjectaccessreviews",
    )
    .await;
    let failed = &own["status"]["conditions"][1];
    assert_eq!(failed["reason"], "StorageVersionMigrationFailed", "{own}");
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_forget_versions_that_are_stored_no_more() {
    let cluster = started().await;
    let admin = cluster.admin();
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let names =
        json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let mut definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Cluster", "names": names,
        "versions": [version("v1", true), version("v2", false)]}});
    let (definitions, key) = (
        ApiResource::of::<CustomResourceDefinition>(),
        ObjectKey::cluster("widgets.example.com"),
    );
    admin.create(&definitions, "", &definition).await.unwrap();
    let served = |own: Option<&Value>| holds(own, "Established", "True");
    let live = until::<CustomResourceDefinition>(&cluster, &key, served)
        .await
        .unwrap();
    definition["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    definition["spec"]["versions"] = json!([version("v1", false), version("v2", true)]);
    admin.update(&definitions, &key, "", &definition).await.unwrap();
    let both =
        |own: Option<&Value>| own.is_some_and(|own| own["status"]["storedVersions"] == json!(["v1", "v2"]));
    until::<CustomResourceDefinition>(&cluster, &key, both).await;
    migrate(&cluster, "widgets", "example.com", "widgets").await;
    let live = admin.get_as::<Value>(&definitions, &key).await.unwrap();
    assert_eq!(live["status"]["storedVersions"], json!(["v2"]), "{live}");
    assert!(holds(Some(&live), "StorageMigrating", "False"), "{live}");
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_of_a_user_go_with_their_service() {
    let cluster = started().await;
    let admin = cluster.admin();
    let key = ObjectKey::new("default", "db");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}});
    let services = ApiResource::of::<Service>();
    admin.create(&services, "default", &service).await.unwrap();
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "db"},
        "subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 5432}]}]});
    let resource = ApiResource::of::<Endpoints>();
    admin.create(&resource, "default", &endpoints).await.unwrap();
    let options = machinery_client::DeleteOptions::default();
    admin.delete(&services, &key, &options).await.unwrap();
    until::<Endpoints>(&cluster, &key, |own| own.is_none()).await;
}
