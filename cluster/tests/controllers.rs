//! Controllers beside a server in memory: their metrics on its page, and those that no scenario has.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use cluster::{Cluster, Selection};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Pod, Service, ServiceAccount};
use k8s_openapi::api::storagemigration::v1::StorageVersionMigration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use machinery_client::{ApiResource, Client, DeleteOptions, Patch, Propagation};
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

/// Reads an object until it is as wanted.
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
    let options = DeleteOptions::default();
    admin.delete(&services, &key, &options).await.unwrap();
    until::<Endpoints>(&cluster, &key, |own| own.is_none()).await;
}

/// Starts one where pods may be made in `default`.
async fn started_with_account() -> Cluster {
    let cluster = started().await;
    let account = ObjectKey::new("default", "default");
    until::<ServiceAccount>(&cluster, &account, |own| own.is_some()).await;
    cluster
}

/// Refuses every update of pods from here on.
async fn refuse_updates_of_pods(cluster: &Cluster) {
    let admin = cluster.admin();
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no"}, "spec": {"validations": [{"expression": "false"}], "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}]}}});
    let policies = ApiResource::of::<ValidatingAdmissionPolicy>();
    admin.create(&policies, "", &policy).await.unwrap();
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no"}, "spec": {"policyName": "no", "validationActions": ["Deny"]}});
    let bindings = ApiResource::of::<ValidatingAdmissionPolicyBinding>();
    admin.create(&bindings, "", &binding).await.unwrap();
}

/// Upstream returns the error of an adoption before it writes any status.
#[tokio::test(flavor = "multi_thread")]
async fn replica_set_that_may_not_adopt_reports_no_replica_failure() {
    let cluster = started_with_account().await;
    let admin = cluster.admin();
    let (pods, orphan) = (ApiResource::of::<Pod>(), ObjectKey::new("default", "orphan"));
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "orphan", "labels": {"app": "web"}}, "spec": spec});
    admin.create(&pods, "default", &pod).await.unwrap();
    refuse_updates_of_pods(&cluster).await;
    let patch = json!({"metadata": {"annotations": {"a": "b"}}});
    while admin
        .patch(&pods, &orphan, "", &Patch::Merge, &patch)
        .await
        .is_ok()
    {
        cluster.runtime().sleep(Duration::from_millis(20)).await;
    }
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": {"replicas": 2,
        "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec}}});
    let sets = ApiResource::of::<ReplicaSet>();
    admin.create(&sets, "default", &set).await.unwrap();
    let retried = |page: &str| {
        let count = |line: &str| {
            line.strip_prefix(r#"workqueue_retries_total{name="replicaset"} "#)?
                .parse::<f64>()
                .ok()
        };
        page.lines().find_map(count).is_some_and(|retries| retries >= 2.0)
    };
    while !retried(&page(&admin).await) {
        cluster.runtime().sleep(Duration::from_millis(20)).await;
    }
    let own: Value = admin
        .get_as(&sets, &ObjectKey::new("default", "web"))
        .await
        .unwrap();
    assert_eq!(own["status"]["conditions"], Value::Null, "{own}");
}

/// The events of its deletion came before the Job went: only the end of the Job wakes its controller.
#[tokio::test(flavor = "multi_thread")]
async fn pod_on_its_way_out_is_released_when_its_job_goes() {
    let cluster = started_with_account().await;
    let admin = cluster.admin();
    let (jobs, pods) = (ApiResource::of::<Job>(), ApiResource::of::<Pod>());
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    // Another controller's, so that this one does not look at the pod as long as the Job is there.
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"managedBy": "example.com/other", "template": {"spec": spec}}});
    admin.create(&jobs, "default", &job).await.unwrap();
    let job = ObjectKey::new("default", "j");
    let live: Value = admin.get_as(&jobs, &job).await.unwrap();
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": live["metadata"]["uid"], "controller": true});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {"name": "p", "ownerReferences": [owner],
        "finalizers": ["batch.kubernetes.io/job-tracking"]}});
    admin.create(&pods, "default", &pod).await.unwrap();
    let pod = ObjectKey::new("default", "p");
    let options = DeleteOptions::default();
    admin.delete(&pods, &pod, &options).await.unwrap();
    let failed = |own: Option<&Value>| own.is_some_and(|own| own["status"]["phase"] == "Failed");
    until::<Pod>(&cluster, &pod, failed).await;
    let options = DeleteOptions {
        propagation: Some(Propagation::Background),
        ..DeleteOptions::default()
    };
    admin.delete(&jobs, &job, &options).await.unwrap();
    until::<Pod>(&cluster, &pod, |own| own.is_none()).await;
}
