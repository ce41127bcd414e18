//! A definition changes under its objects: what is stored is read in the new form, and no watch gets an event.
//! It goes after them, and none come while it waits.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_storage::{Key, ReadAt};
use bytes::Bytes;
use common::{Cluster, start};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BOATS: &str = "/apis/knarr.test/v1/namespaces/default/boats";

fn definition(properties: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.knarr.test"},
        "spec": {
            "group": "knarr.test", "scope": "Namespaced",
            "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": properties},
                }}},
            }],
        },
    })
}

/// Asks until the answer is as wanted: definitions are served by a loop of their own.
async fn until(cluster: &Cluster, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let answer = cluster.admin().get(path).await;
        if answer.code == 200 && wanted(&answer.json()) {
            return answer.json();
        }
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
}

async fn with_boats() -> Cluster {
    let cluster = start().await;
    let first = definition(&json!({"oars": {"type": "integer"}, "flag": {"type": "string"}}));
    cluster.admin().post(DEFINITIONS, first.to_string()).await.is(201);
    until(&cluster, BOATS, |_| true).await;
    for name in ["ormen", "skald"] {
        let boat = json!({"apiVersion": "knarr.test/v1", "kind": "Boat", "metadata": {"name": name},
            "spec": {"oars": 34, "flag": "raven"}});
        cluster.admin().post(BOATS, boat.to_string()).await.is(201);
    }
    cluster
}

async fn change_definition(cluster: &Cluster, properties: &Value) {
    let patch = json!({"spec": {"versions": definition(properties)["spec"]["versions"]}});
    let path = format!("{DEFINITIONS}/boats.knarr.test");
    let patched = cluster
        .admin()
        .header("content-type", "application/merge-patch+json")
        .send(Method::PATCH, &path, Bytes::from(patch.to_string()));
    patched.await.is(200);
}

/// A definition in a group of the project's own, let in by the annotation that says it is not approved.
fn unapproved(plural: &str, group: &str, kind: &str, versions: &[&str]) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &&str| json!({"name": name, "served": true, "storage": *name == versions[0], "schema": schema});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
        },
        "spec": {
            "group": group, "scope": "Cluster",
            "names": {"plural": plural, "kind": kind},
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}

fn condition<'a>(definition: &'a Value, kind: &str) -> &'a Value {
    let conditions = definition["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.find(|own| own["type"] == kind).unwrap_or(&Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn definition_with_patterns_too_large_in_all_is_refused() {
    let cluster = start().await;
    // Each version alone may have these patterns; all versions together may not.
    let many = |versions: usize| {
        let version = |at: usize| {
            let properties: serde_json::Map<String, Value> = (0..30)
                .map(|field| {
                    let pattern = format!("^v{at}f{field}$");
                    (format!("f{field}"), json!({"type": "string", "pattern": pattern}))
                })
                .collect();
            let schema = json!({"openAPIV3Schema": {"type": "object", "properties": properties}});
            json!({"name": format!("v{}", at + 1), "served": true, "storage": at == 0, "schema": schema})
        };
        let mut definition = definition(&json!({}));
        definition["spec"]["versions"] = (0..versions).map(version).collect();
        definition.to_string()
    };
    cluster.admin().post(DEFINITIONS, many(1)).await.is(201);
    let path = format!("{DEFINITIONS}/boats.knarr.test");
    cluster
        .admin()
        .send(Method::DELETE, &path, Bytes::new())
        .await
        .is(200);
    let refused = cluster.admin().post(DEFINITIONS, many(40)).await.is(422);
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("the patterns of this definition take more memory than is allowed"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn definition_replaces_no_built_in_resource() {
    let cluster = start().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let before = cluster.admin().get(roles).await.is(200).json();
    let group = cluster
        .admin()
        .get("/apis/rbac.authorization.k8s.io")
        .await
        .is(200)
        .json();
    let shadows = [
        unapproved(
            "clusterroles",
            "rbac.authorization.k8s.io",
            "ClusterRole",
            &["v1", "v9"],
        ),
        unapproved("others", "rbac.authorization.k8s.io", "Other", &["v1", "v9"]),
        unapproved(
            "customresourcedefinitions",
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            &["v9"],
        ),
    ];
    for shadow in &shadows {
        let name = shadow["metadata"]["name"].as_str().unwrap();
        cluster
            .admin()
            .post(DEFINITIONS, shadow.to_string())
            .await
            .is(201);
        let path = format!("{DEFINITIONS}/{name}");
        let accepted = until(&cluster, &path, |own| {
            condition(own, "Established")["status"] == "True"
        })
        .await;
        assert_eq!(condition(&accepted, "NamesAccepted")["status"], "True");
        let approval = condition(&accepted, "KubernetesAPIApprovalPolicyConformant");
        assert_eq!(approval["status"], "False");
        assert_eq!(approval["reason"], "UnapprovedAnnotation");
        assert_eq!(approval["message"], r#"not approved: "unapproved, a test""#);
    }
    // Definitions are served in their order: once this one is, those before it were looked at.
    let boats = definition(&json!({}));
    cluster.admin().post(DEFINITIONS, boats.to_string()).await.is(201);
    until(&cluster, BOATS, |_| true).await;

    let now = cluster.admin().get(roles).await.is(200).json();
    assert_eq!(now["items"], before["items"]);
    let now = cluster
        .admin()
        .get("/apis/rbac.authorization.k8s.io")
        .await
        .is(200)
        .json();
    assert_eq!(now, group);
    for path in [
        "/apis/rbac.authorization.k8s.io/v9/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/others",
        "/apis/rbac.authorization.k8s.io/v9/others",
        "/apis/apiextensions.k8s.io/v9/customresourcedefinitions",
    ] {
        cluster.admin().get(path).await.is(404);
    }
    for shadow in &shadows {
        let path = format!("{DEFINITIONS}/{}", shadow["metadata"]["name"].as_str().unwrap());
        cluster
            .admin()
            .send(Method::DELETE, &path, Bytes::new())
            .await
            .is(200);
        while cluster.admin().get(&path).await.code != 404 {
            cluster.runtime.sleep(Duration::from_millis(5)).await;
        }
    }
    let now = cluster.admin().get(roles).await.is(200).json();
    assert_eq!(
        now["items"], before["items"],
        "deleting the definition deletes no role"
    );
    cluster.admin().get(BOATS).await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_take_the_new_form_without_a_change() {
    let cluster = with_boats().await;
    let before = cluster.admin().get(BOATS).await.is(200).json();
    // The flag goes, a sail comes with a default, and what has the wrong type now stays as it is.
    let properties = json!({"oars": {"type": "string"}, "sail": {"type": "string", "default": "square"}});
    change_definition(&cluster, &properties).await;
    let path = format!("{BOATS}/ormen");
    let after = until(&cluster, &path, |boat| boat["spec"]["sail"] == "square").await;
    assert_eq!(after["spec"], json!({"oars": 34, "sail": "square"}));
    assert_eq!(after["metadata"], before["items"][0]["metadata"]);
    let list = cluster.admin().get(BOATS).await.is(200).json();
    assert_eq!(list["items"][1]["spec"], json!({"oars": 34, "sail": "square"}));
    let since = before["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = format!("{BOATS}?watch=1&resourceVersion={since}&timeoutSeconds=1");
    assert_eq!(
        cluster.admin().get(&watch).await.is(200).body,
        "",
        "nobody is told"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn conversion_of_stored_form_happens_once() {
    let cluster = with_boats().await;
    let key = Key::parse("/registry/knarr.test/boats/default/skald").unwrap();
    let storage = cluster.storage.clone();
    let before = storage.get(&key, ReadAt::Latest).await.unwrap().entry.unwrap();
    let properties =
        json!({"oars": {"type": "integer"}, "flag": {"type": "string"}, "sail": {"type": "string"}});
    change_definition(&cluster, &properties).await;
    // No client reads the object: the change of its definition brings it into its new form.
    let after = loop {
        let entry = storage.get(&key, ReadAt::Latest).await.unwrap().entry.unwrap();
        if entry.record.fingerprint != before.record.fingerprint {
            break entry;
        }
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    };
    assert_eq!((after.revision, after.created), (before.revision, before.created));
    assert_eq!(after.record.parts.concat(), before.record.parts.concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn pruned_field_is_back_with_its_schema() {
    let cluster = with_boats().await;
    let path = format!("{BOATS}/skald");
    let narrow = json!({"sail": {"type": "string", "default": "square"}});
    change_definition(&cluster, &narrow).await;
    let pruned = until(&cluster, &path, |boat| boat["spec"]["sail"] == "square").await;
    assert_eq!(pruned["spec"], json!({"sail": "square"}));
    let wide = json!({"oars": {"type": "integer"}, "flag": {"type": "string"}});
    change_definition(&cluster, &wide).await;
    let back = until(&cluster, &path, |boat| boat["spec"]["oars"] == 34).await;
    assert_eq!(back["spec"], json!({"oars": 34, "flag": "raven"}));
    assert_eq!(back["metadata"], pruned["metadata"]);
}

/// A migration of stored versions rewrites each object.
#[tokio::test(flavor = "multi_thread")]
async fn empty_patch_moves_an_object_to_the_storage_version() {
    let cluster = with_boats().await;
    let properties = json!({"oars": {"type": "integer"}, "flag": {"type": "string"}});
    let mut versions = definition(&properties)["spec"]["versions"].clone();
    let mut second = versions[0].clone();
    second["name"] = json!("v2");
    versions[0]["storage"] = json!(false);
    versions.as_array_mut().unwrap().push(second);
    let patch = |path: String, patch: Value| {
        let admin = cluster
            .admin()
            .header("content-type", "application/merge-patch+json");
        async move {
            let body = Bytes::from(patch.to_string());
            let answer = admin.send(Method::PATCH, &path, body).await.is(200).json();
            answer["metadata"]["resourceVersion"].clone()
        }
    };
    let changed = json!({"spec": {"versions": versions}});
    patch(format!("{DEFINITIONS}/boats.knarr.test"), changed).await;
    until(&cluster, &BOATS.replace("/v1/", "/v2/"), |_| true).await;
    let path = format!("{BOATS}/ormen");
    let before = cluster.admin().get(&path).await.is(200).json()["metadata"]["resourceVersion"].clone();
    let moved = patch(path.clone(), json!({})).await;
    assert_ne!(moved, before, "it is stored in the version of before");
    assert_eq!(
        patch(path, json!({})).await,
        moved,
        "it is stored in the version of now"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn selectable_field_added_later_selects_old_objects() {
    let cluster = with_boats().await;
    let mut versions = definition(&json!({"oars": {"type": "integer"}, "flag": {"type": "string"}}))["spec"]
        ["versions"]
        .clone();
    versions[0]["selectableFields"] = json!([{"jsonPath": ".spec.flag"}]);
    let patch = json!({"spec": {"versions": versions}});
    let path = format!("{DEFINITIONS}/boats.knarr.test");
    let admin = cluster
        .admin()
        .header("content-type", "application/merge-patch+json");
    let patched = admin.send(Method::PATCH, &path, Bytes::from(patch.to_string()));
    patched.await.is(200);
    let ravens = format!("{BOATS}?fieldSelector=spec.flag%3Draven");
    let ravens = until(&cluster, &ravens, |_| true).await;
    assert_eq!(ravens["items"].as_array().unwrap().len(), 2);
    let doves = format!("{BOATS}?fieldSelector=spec.flag%3Ddove");
    let doves = cluster.admin().get(&doves).await.is(200).json();
    assert_eq!(doves["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn definition_being_deleted_waits_for_objects_and_accepts_none() {
    let cluster = with_boats().await;
    let hold = |finalizers: Value| {
        let patch = json!({"metadata": {"finalizers": finalizers}}).to_string();
        let admin = cluster
            .admin()
            .header("content-type", "application/merge-patch+json");
        async move {
            admin
                .send(Method::PATCH, &format!("{BOATS}/ormen"), Bytes::from(patch))
                .await
                .is(200);
        }
    };
    hold(json!(["knarr.test/harbour"])).await;
    let before = cluster.admin().get(BOATS).await.is(200).json();
    let of_definition = format!("{DEFINITIONS}/boats.knarr.test");
    cluster
        .admin()
        .send(Method::DELETE, &of_definition, Bytes::new())
        .await
        .is(200);
    let terminating = |definition: &Value| {
        let conditions = definition["status"]["conditions"].as_array().unwrap();
        let own = conditions.iter().find(|own| own["type"] == "Terminating");
        own.map_or(Value::Null, |own| own["reason"].clone())
    };
    let in_progress = |definition: &Value| terminating(definition) == "InstanceDeletionInProgress";
    until(&cluster, &of_definition, in_progress).await;
    until(&cluster, BOATS, |boats| {
        let left = boats["items"].as_array().unwrap();
        left.len() == 1 && left[0]["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    let since = before["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = format!("{BOATS}?watch=1&resourceVersion={since}&timeoutSeconds=1");
    let seen = cluster.admin().get(&watch).await.is(200).body;
    assert_eq!(
        seen.matches("\"DELETED\"").count(),
        1,
        "they are watched as they go: {seen}"
    );
    let boat = json!({"apiVersion": "knarr.test/v1", "kind": "Boat", "metadata": {"name": "late"}});
    let refused = cluster.admin().post(BOATS, boat.to_string()).await.is(403).json();
    assert_eq!(
        refused["message"],
        "boats.knarr.test \"late\" is forbidden: create not allowed while custom resource definition is terminating"
    );
    hold(json!(null)).await;
    while cluster.admin().get(&of_definition).await.code != 404 {
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_resource_of_custom_group_is_plain_404() {
    let cluster = with_boats().await;
    let page = cluster
        .admin()
        .get("/apis/knarr.test/v1/namespaces/default/rafts")
        .await;
    assert_eq!(page.is(404).body, "404 page not found\n");
    let page = cluster.admin().get("/apis/knarr.test/v1/boats/ormen").await;
    assert_eq!(page.is(404).body, "404 page not found\n");
    let status = cluster.admin().get("/apis/apps/v1/rafts").await.is(404).json();
    assert_eq!(
        status["message"],
        "the server could not find the requested resource"
    );
    let status = cluster
        .admin()
        .get(&format!("{BOATS}/ormen/crew"))
        .await
        .is(404)
        .json();
    assert_eq!(status["message"], "boats.knarr.test \"ormen\" not found");
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_kinds_are_served_as_by_upstreams_handler_without_a_router() {
    let cluster = with_boats().await;
    let one = format!("{BOATS}/ormen");
    for (path, code) in [(BOATS, 200), (&*one, 200), (&*format!("{BOATS}/none"), 404)] {
        let answer = cluster.admin().send(Method::HEAD, path, Bytes::new()).await;
        assert_eq!((answer.code.as_u16(), answer.body.as_str()), (code, ""), "{path}");
    }
    let boat = json!({"apiVersion": "knarr.test/v1", "kind": "Boat", "metadata": {"name": "snekke"}});
    let made = cluster.admin().post(&one, boat.to_string()).await.is(201).json();
    assert_eq!(made["metadata"]["name"], "snekke", "the body's name");
    cluster.admin().post(&one, "").await.is(400);
    let map = "/api/v1/namespaces/default/configmaps/a";
    cluster.admin().post(map, "{}").await.is(405);
    let head = cluster.admin().send(Method::HEAD, map, Bytes::new()).await;
    assert_eq!(head.code, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn definition_of_too_many_versions_is_refused() {
    let cluster = start().await;
    let with_versions = |count: usize| {
        let mut object = definition(&json!({}));
        let first = object["spec"]["versions"][0].clone();
        let versions = (0..count).map(|at| {
            let mut version = first.clone();
            version["name"] = json!(format!("v{}", at + 1));
            version["storage"] = json!(at == 0);
            version
        });
        object["spec"]["versions"] = versions.collect();
        object.to_string()
    };
    let refused = cluster
        .admin()
        .post(DEFINITIONS, with_versions(101))
        .await
        .is(422);
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    let expected = "spec.versions: Too many: 101: must have at most 100 items";
    assert!(message.ends_with(expected), "{message}");
    cluster
        .admin()
        .post(DEFINITIONS, with_versions(100))
        .await
        .is(201);
    until(&cluster, "/apis/knarr.test/v100/namespaces/default/boats", |_| {
        true
    })
    .await;
}
