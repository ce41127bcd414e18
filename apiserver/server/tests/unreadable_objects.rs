//! Objects that no key opens: errors name them, and a user with the right deletes them.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_server::{AuditLogConfig, ExpiryBounds, ServerConfig};
use apiserver_storage::encryption::{Encryption, ResourceNames};
use apiserver_storage::{LogOptions, LogStorage};
use bytes::Bytes;
use common::{Answer, Cluster, config, start_on};
use http::Method;
use machinery_runtime::{MemDisk, Runtime};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const EVENTS: &str = "/api/v1/namespaces/default/events";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const OLD: &str = "aesgcm: {keys: [{name: old, secret: MTIzNDU2Nzg5MDEyMzQ1Ng==}]}";
const NEW: &str = "aesgcm: {keys: [{name: new, secret: NjU0MzIxMDk4NzY1NDMyMQ==}]}";
const IGNORE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

async fn storage(runtime: &Runtime, resources: &str, provider: &str) -> LogStorage {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [{resources}]\n  providers: [{{{provider}}}]\n"
    );
    let names = ResourceNames::default();
    let encryption = Encryption::new(runtime, names, Path::new("/encryption"), text.as_bytes());
    let options = LogOptions {
        encryption: Some(Arc::new(encryption.unwrap())),
        ..LogOptions::new("/memory")
    };
    LogStorage::open(runtime, options).await.unwrap().0
}

fn secret(name: &str) -> String {
    json!({"metadata": {"name": name, "finalizers": ["example.com/hold"]}}).to_string()
}

/// A server whose secrets `a` and `b` were written with a key that is lost.
async fn with_lost_key(config: ServerConfig) -> Cluster {
    let runtime = Runtime::real().with_disk(Arc::new(MemDisk::new()));
    let before = start_on(
        common::config(),
        Arc::new(storage(&runtime, "secrets", OLD).await),
    )
    .await;
    for name in ["a", "b"] {
        before.admin().post(SECRETS, secret(name)).await.is(201);
    }
    before.server.shutdown().await;
    start_on(config, Arc::new(storage(&runtime, "secrets", NEW).await)).await
}

impl Cluster {
    async fn deletes(&self, path: &str, options: &Value, user: Option<&str>) -> Answer {
        let mut ask = self.admin().header("content-type", "application/json");
        if let Some(user) = user {
            ask = ask.header("impersonate-user", user);
        }
        ask.send(Method::DELETE, path, Bytes::from(options.to_string()))
            .await
    }
}

fn message(answer: &Answer) -> String {
    answer.json()["message"].as_str().unwrap_or_default().to_owned()
}

/// Lets a user delete secrets, and read config maps.
async fn let_delete(cluster: &Cluster, user: &str) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"metadata": {"name": user}, "rules": [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["delete"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]},
    ]});
    let binding = json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    for (plural, object) in [("roles", role), ("rolebindings", binding)] {
        let path = format!("{rbac}/{plural}");
        cluster.admin().post(&path, object.to_string()).await.is(201);
    }
    let configmaps = "/api/v1/namespaces/default/configmaps";
    while cluster
        .admin()
        .header("impersonate-user", user)
        .get(configmaps)
        .await
        .code
        != 200
    {
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
}

const CORRUPT: &str = "StorageError: corrupt object, Code: 7, Key: /registry/secrets/default/a, ResourceVersion: 0, AdditionalErrorMsg: data from the storage is not transformable revision=0: no matching key was found for the provided AES transformer";

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_objects_are_named_by_lists() {
    let cluster = with_lost_key(config()).await;
    cluster.admin().post(SECRETS, secret("new")).await.is(201);
    for path in [SECRETS, "/api/v1/secrets", "/api/v1/secrets?limit=500"] {
        let status = cluster.admin().get(path).await.is(500).json();
        assert_eq!(status["reason"], "StorageReadError");
        let expected = format!("failed to read one or more secrets from the storage: {CORRUPT} (and 1 more)");
        assert_eq!(status["message"], *expected);
        let cause = |name: &str| {
            json!({
                "reason": "UnexpectedServerResponse",
                "field": format!("/registry/secrets/default/{name}"),
                "message": CORRUPT.replace("default/a", &format!("default/{name}")),
            })
        };
        let details = json!({"name": "list", "kind": "secrets", "causes": [cause("a"), cause("b")]});
        assert_eq!(status["details"], details);
    }
    let own = format!("{SECRETS}/a");
    assert_eq!(
        cluster.admin().get(&own).await.is(500).json()["reason"],
        "InternalError"
    );
    cluster.admin().get(&format!("{SECRETS}/new")).await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_object_is_not_changed_and_the_cause_is_named() {
    let cluster = with_lost_key(config()).await;
    let own = format!("{SECRETS}/a");
    let cause = "data from the storage is not transformable revision=0: no matching key was found for the provided AES transformer";
    let json = "application/json";
    for (method, form) in [
        (Method::PUT, json),
        (Method::PATCH, "application/merge-patch+json"),
        (Method::PATCH, "application/apply-patch+yaml"),
    ] {
        let path = match form.contains("apply") {
            true => format!("{own}?fieldManager=own"),
            false => own.clone(),
        };
        let body =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "labels": {"b": "c"}}});
        let ask = cluster.admin().header("content-type", form);
        let refused = ask.send(method, &path, Bytes::from(body.to_string())).await;
        let status = refused.is(500).json();
        assert_eq!(status["reason"], "InternalError");
        assert_eq!(status["message"], format!("Internal error occurred: {cause}"));
    }
    let read = cluster.admin().get(&own).await.is(500);
    assert_eq!(
        message(&read),
        format!("Internal error occurred: {CORRUPT}").replace("/registry/", "/")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_object_is_deleted_by_who_may_and_no_other_object_is() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let cluster = with_lost_key(ServerConfig {
        audit_log: Some(AuditLogConfig::new(log.clone())),
        ..config()
    })
    .await;
    let (a, ignoring) = (format!("{SECRETS}/a"), json!({IGNORE: true}));
    cluster.deletes(&a, &json!({}), None).await.is(500);
    cluster.deletes(&a, &json!({IGNORE: false}), None).await.is(500);
    let_delete(&cluster, "anna").await;
    let refused = cluster.deletes(&a, &ignoring, Some("anna")).await.is(403);
    assert_eq!(
        message(&refused),
        r#"secrets "a" is forbidden: not permitted to do "unsafe-delete-ignore-read-errors", reason: "#
    );
    let dry = cluster
        .deletes(&a, &json!({IGNORE: true, "dryRun": ["All"]}), None)
        .await;
    dry.is(200);
    cluster.deletes(&a, &json!({}), None).await.is(500);
    let deleted = cluster.deletes(&a, &ignoring, None).await.is(200).json();
    assert_eq!(
        deleted,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "a", "kind": "Secret"}, "code": 200,
        })
    );
    let again = cluster.deletes(&a, &ignoring, None).await.is(404);
    assert_eq!(message(&again), r#"secrets "a" not found"#);
    cluster.admin().post(SECRETS, secret("a")).await.is(201);
    let query = format!("{a}?{IGNORE}=true");
    let by_query = cluster.admin().send(Method::DELETE, &query, Bytes::new()).await;
    for readable in [cluster.deletes(&a, &ignoring, None).await, by_query] {
        assert_eq!(
            message(&readable.is(409)),
            "Operation cannot be fulfilled on secrets \"a\": StorageError: invalid object, Code: 4, Key: /registry/secrets/default/a, ResourceVersion: 0, AdditionalErrorMsg: unsafe deletion is not allowed because the object is decodable from storage"
        );
    }
    let text = std::fs::read_to_string(log).unwrap();
    let events = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let noted = events.filter(|event| {
        event["stage"] == "ResponseComplete"
            && event["annotations"]["apiserver.k8s.io/unsafe-delete-ignore-read-error"] == ""
    });
    let codes: Vec<Value> = noted
        .map(|event| event["responseStatus"]["code"].clone())
        .collect();
    assert_eq!(codes, [403, 200, 200, 404, 409, 409]);
}

/// The cases of upstream's corrupt_obj_deleter_test.go that a client can bring about.
#[tokio::test(flavor = "multi_thread")]
async fn unsafe_deletes_are_of_what_is_unreadable_also_in_dry_runs() {
    let cluster = with_lost_key(config()).await;
    cluster.admin().post(SECRETS, secret("readable")).await.is(201);
    let dry = json!({IGNORE: true, "dryRun": ["All"]});
    let real = json!({IGNORE: true});
    for (name, options, code, reason) in [
        ("a", &dry, 200, ""),
        ("readable", &dry, 409, "Conflict"),
        ("none", &dry, 404, "NotFound"),
        ("readable", &real, 409, "Conflict"),
        ("none", &real, 404, "NotFound"),
        ("a", &real, 200, ""),
        ("a", &real, 404, "NotFound"),
    ] {
        let answer = cluster.deletes(&format!("{SECRETS}/{name}"), options, None).await;
        let said = answer.is(code).json();
        assert_eq!(
            said["reason"].as_str().unwrap_or_default(),
            reason,
            "{name} {options}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_object_has_its_name_to_itself() {
    let cluster = with_lost_key(config()).await;
    for path in [SECRETS.to_owned(), format!("{SECRETS}?dryRun=All")] {
        let refused = cluster.admin().post(&path, secret("a")).await.is(409);
        assert_eq!(refused.json()["reason"], "AlreadyExists");
        assert_eq!(message(&refused), r#"secrets "a" already exists"#);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unsafe_deletes_are_not_offered_for_kinds_that_upstream_wraps() {
    let cluster = common::start().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let spaced = format!("{rbac}/namespaces/default");
    for path in [
        "/api/v1/namespaces/default".to_owned(),
        format!("{rbac}/clusterroles/view"),
        format!("{rbac}/clusterrolebindings/cluster-admin"),
        format!("{spaced}/roles/none"),
        format!("{spaced}/rolebindings/none"),
    ] {
        let refused = cluster.deletes(&path, &json!({IGNORE: true}), None).await.is(500);
        assert_eq!(
            message(&refused),
            format!("Internal error occurred: no unsafe deleter provided, can not honor {IGNORE}"),
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_objects_are_deleted_one_by_one_and_without_other_options() {
    let cluster = with_lost_key(config()).await;
    let whole = cluster
        .deletes(SECRETS, &json!({IGNORE: true}), None)
        .await
        .is(422);
    assert_eq!(
        message(&whole),
        format!(
            "DeleteOptions.meta.k8s.io \"\" is invalid: {IGNORE}: Invalid value: true: is not allowed with DELETECOLLECTION, try again after removing the option"
        )
    );
    let options = json!({
        IGNORE: true, "gracePeriodSeconds": 0, "orphanDependents": true,
        "propagationPolicy": "Background", "preconditions": {},
    });
    let together = cluster.deletes(&format!("{SECRETS}/a"), &options, None).await;
    let with = |name: &str| format!("{IGNORE}: Invalid value: true: cannot be set together with .{name}");
    let problems = [
        "propagationPolicy: Invalid value: \"Background\": orphanDependents and deletionPropagation cannot be both set".to_owned(),
        with("propagationPolicy"),
        with("orphanDependents"),
        with("gracePeriodSeconds"),
        with("preconditions"),
    ];
    assert_eq!(
        message(&together.is(422)),
        format!(
            "DeleteOptions.meta.k8s.io \"\" is invalid: [{}]",
            problems.join(", ")
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_objects_of_the_start_are_waited_for() {
    let runtime = Runtime::real().with_disk(Arc::new(MemDisk::new()));
    let rule = "secrets, configmaps";
    let before = start_on(config(), Arc::new(storage(&runtime, rule, OLD).await)).await;
    before.server.shutdown().await;
    let cluster = start_on(config(), Arc::new(storage(&runtime, rule, NEW).await)).await;
    let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    cluster.admin().get(map).await.is(500);
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", IGNORE: true});
    cluster.deletes(map, &options, None).await.is(200);
    while cluster.admin().get(map).await.code != 200 {
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
}

/// The bound goes on where some events cannot be read: they are counted, and as the oldest they expire first.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_events_do_not_stop_the_bound_of_their_namespace() {
    let runtime = Runtime::real().with_disk(Arc::new(MemDisk::new()));
    let before = start_on(common::config(), Arc::new(storage(&runtime, "events", OLD).await)).await;
    for name in ["a", "b"] {
        before.admin().post(EVENTS, event(name)).await.is(201);
    }
    before.server.shutdown().await;
    let config = ServerConfig {
        events_per_namespace: ExpiryBounds {
            objects: 10,
            bytes: 0,
        },
        ..config()
    };
    let cluster = start_on(config, Arc::new(storage(&runtime, "events", NEW).await)).await;
    for at in 0..30 {
        cluster
            .admin()
            .post(EVENTS, event(&format!("n{at:02}")))
            .await
            .is(201);
    }
    loop {
        let listed = cluster.admin().get(EVENTS).await;
        // As long as one that cannot be read is there, no list is answered.
        if listed.code == 200 && listed.json()["items"].as_array().unwrap().len() <= 10 {
            break;
        }
        runtime.sleep(Duration::from_millis(5)).await;
    }
}

fn event(name: &str) -> String {
    let object = json!({"namespace": "default", "name": "web", "kind": "Pod"});
    json!({"metadata": {"name": name}, "involvedObject": object}).to_string()
}
