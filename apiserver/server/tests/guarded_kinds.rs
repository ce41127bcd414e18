//! Rules of one kind that protect others: names of namespaces, parameters of policies, the default class, the
//! creation of leases.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_server::ServerConfig;
use bytes::Bytes;
use common::{Answer, Ask, Cluster, config, start, start_with};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// An object as JSON.
fn object(version: &str, kind: &str, metadata: Value, rest: Value) -> String {
    let mut whole = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
    let members = rest.as_object().unwrap().clone();
    whole.as_object_mut().unwrap().extend(members);
    whole.to_string()
}

async fn send(ask: Ask<'_>, method: Method, path: &str, content_type: &str, body: String) -> Answer {
    ask.header("content-type", content_type)
        .send(method, path, Bytes::from(body))
        .await
}

fn message(answer: &Answer) -> String {
    answer.json()["message"].as_str().unwrap_or_default().to_owned()
}

/// Gives a user these rights everywhere; they count once this returns.
async fn give(cluster: &Cluster, name: &str, rules: Value) {
    let admin = || cluster.admin();
    let role = object(
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        json!({"name": name}),
        json!({"rules": rules.clone()}),
    );
    admin().post(&format!("{RBAC}/clusterroles"), role).await.is(201);
    let bound = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]});
    let binding = object(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        json!({"name": name}),
        bound,
    );
    admin()
        .post(&format!("{RBAC}/clusterrolebindings"), binding)
        .await
        .is(201);
    let marker = json!({"spec": {"namespace": "default"}});
    let marker = object(
        "authorization.k8s.io/v1",
        "SelfSubjectRulesReview",
        json!({}),
        marker,
    );
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    loop {
        let answer = as_user(cluster, name).post(path, marker.clone()).await;
        let status = answer.is(201).json()["status"].clone();
        let held = status["resourceRules"].as_array().unwrap();
        if held.iter().any(|rule| rule["apiGroups"] == rules[0]["apiGroups"]) {
            return;
        }
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
}

fn as_user<'a>(cluster: &'a Cluster, name: &str) -> Ask<'a> {
    cluster.admin().header("impersonate-user", name)
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_keeps_its_name_label_on_every_way() {
    let cluster = start().await;
    let made = object("v1", "Namespace", json!({"name": "nsa"}), json!({}));
    cluster.admin().post("/api/v1/namespaces", made).await.is(201);
    for part in ["", "/status", "/finalize"] {
        for label in [json!("red"), Value::Null] {
            let labels = json!({"labels": {NAME_LABEL: label}});
            let change = object("v1", "Namespace", labels, json!({}));
            let path = format!("/api/v1/namespaces/nsa{part}");
            let kind = "application/merge-patch+json";
            if part == "/finalize" {
                let mut own: Value = cluster.admin().get("/api/v1/namespaces/nsa").await.json();
                own["metadata"]["labels"][NAME_LABEL] = label;
                let body = own.to_string();
                send(cluster.admin(), Method::PUT, &path, "application/json", body)
                    .await
                    .is(200);
            } else {
                send(cluster.admin(), Method::PATCH, &path, kind, change)
                    .await
                    .is(200);
            }
            let stored = cluster.admin().get("/api/v1/namespaces/nsa").await.json();
            assert_eq!(stored["metadata"]["labels"][NAME_LABEL], "nsa", "{part}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn priority_class_default_is_one_and_the_systems_stay() {
    let cluster = start().await;
    let admin = || cluster.admin();
    let class = |name: &str| {
        let rest = json!({"value": 1, "globalDefault": true});
        object(
            "scheduling.k8s.io/v1",
            "PriorityClass",
            json!({"name": name}),
            rest,
        )
    };
    admin().post(CLASSES, class("one")).await.is(201);
    let refused = admin().post(CLASSES, class("two")).await.is(403);
    assert_eq!(
        message(&refused),
        r#"priorityclasses.scheduling.k8s.io "two" is forbidden: PriorityClass one is already marked as default. Only one default can exist"#
    );
    let path = format!("{CLASSES}/system-node-critical");
    let refused = admin().send(Method::DELETE, &path, Bytes::new()).await.is(403);
    assert_eq!(
        message(&refused),
        r#"priorityclasses.scheduling.k8s.io "system-node-critical" is forbidden: this is a system priority class and cannot be deleted"#
    );
    admin()
        .send(Method::DELETE, &format!("{CLASSES}/one"), Bytes::new())
        .await
        .is(200);
    admin().post(CLASSES, class("two")).await.is(201);
    // A delete of the collection names none of them (upstream: storage of priorityclass overrides `Delete` alone).
    admin().send(Method::DELETE, CLASSES, Bytes::new()).await.is(200);
    let left = admin().get(CLASSES).await.json();
    assert_eq!(left["items"], json!([]));
}

/// Admission has no name of a new object yet, and says what it will begin with.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_generated_names_show_their_base() {
    let cluster = start().await;
    let unlucky = |metadata: Value| {
        let spec = json!({"containers": [{"name": "c", "image": "i"}], "serviceAccountName": "no"});
        object("v1", "Pod", metadata, json!({"spec": spec}))
    };
    for (metadata, name) in [
        (json!({"generateName": "g-"}), "g-"),
        (json!({"name": "n", "generateName": "g-"}), "n"),
        (json!({}), "Unknown"),
    ] {
        let refused = cluster
            .admin()
            .post("/api/v1/namespaces/default/pods", unlucky(metadata))
            .await
            .is(403);
        let begin = format!("pods {name:?} is forbidden: error looking up service account default/no");
        assert!(message(&refused).starts_with(&begin), "{}", message(&refused));
        assert_eq!(refused.json()["details"]["name"], name);
    }
}

/// Only what would make the object needs the right to.
#[tokio::test(flavor = "multi_thread")]
async fn lease_that_is_absent_needs_the_right_to_create_only_where_it_is_made() {
    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/x";
    let cluster = start().await;
    let rules = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["patch", "update"]}]);
    give(&cluster, "bob", rules).await;
    let bob = || as_user(&cluster, "bob");
    let body = object(
        "coordination.k8s.io/v1",
        "Lease",
        json!({"name": "x"}),
        json!({"spec": {}}),
    );
    for kind in ["merge-patch", "strategic-merge-patch"] {
        let kind = format!("application/{kind}+json");
        let answer = send(bob(), Method::PATCH, LEASE, &kind, body.clone())
            .await
            .is(404);
        assert_eq!(message(&answer), r#"leases.coordination.k8s.io "x" not found"#);
    }
    let kind = "application/apply-patch+yaml";
    let path = format!("{LEASE}?fieldManager=f");
    for answer in [
        send(bob(), Method::PATCH, &path, kind, body.clone()).await,
        send(bob(), Method::PUT, LEASE, "application/json", body.clone()).await,
    ] {
        assert!(message(&answer.is(403)).contains("cannot create resource"));
    }
}

/// Writes a policy or binding as a user who may write them all, and read no Secrets.
async fn written(cluster: &Cluster, kind: &str, plural: &str, name: &str, spec: Value) -> Option<String> {
    let body = object(
        "admissionregistration.k8s.io/v1",
        kind,
        json!({"name": name}),
        json!({"spec": spec}),
    );
    let answer = as_user(cluster, "author")
        .post(&format!("{ADMISSION}/{plural}"), body)
        .await;
    if answer.code == 201 {
        return None;
    }
    let answer = answer.is(422);
    let cause = &answer.json()["details"]["causes"][0];
    assert_eq!(cause["reason"], "FieldValueForbidden");
    Some(format!(
        "{}: {}",
        cause["field"].as_str().unwrap(),
        cause["message"].as_str().unwrap()
    ))
}

fn policy(kind: Option<(&str, &str)>) -> Value {
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]);
    let mut spec =
        json!({"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "true"}]});
    if let Some((version, kind)) = kind {
        spec["paramKind"] = json!({"apiVersion": version, "kind": kind});
    }
    spec
}

/// Answers of a real server: a policy reads its parameters with the server's rights, so that its author needs them.
#[tokio::test(flavor = "multi_thread")]
async fn admission_policy_needs_the_right_to_read_its_parameters() {
    let config = ServerConfig {
        allow_unenforced: true,
        ..config()
    };
    let cluster = start_with(config).await;
    let rules = json!([{"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]);
    give(&cluster, "author", rules).await;
    const USER: &str = "user &{author  [system:authenticated] map[]}";
    let policies = async |name: &str, kind| {
        written(
            &cluster,
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            name,
            policy(kind),
        )
        .await
    };
    let refused = |kind: &str| {
        Some(format!(
            "spec.paramKind: Forbidden: {USER} must have \"get\" permission on all objects of the referenced paramKind (kind={kind}, apiVersion=v1)"
        ))
    };
    assert_eq!(policies("plain", None).await, None);
    assert_eq!(policies("maps", Some(("v1", "ConfigMap"))).await, None);
    assert_eq!(
        policies("secret", Some(("v1", "Secret"))).await,
        refused("Secret")
    );
    assert_eq!(policies("odd", Some(("v1", "Nope"))).await, refused("Nope"));
    for (name, kind) in [("secrets", "Secret"), ("unknown", "Nope")] {
        let version = if kind == "Nope" { "foo.io/v1" } else { "v1" };
        let rest = json!({"spec": policy(Some((version, kind)))});
        let body = object(
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicy",
            json!({"name": name}),
            rest,
        );
        let path = format!("{ADMISSION}/validatingadmissionpolicies");
        cluster.admin().post(&path, body).await.is(201);
    }
    let bind = async |policy: &str, mut reference: Value| {
        reference["parameterNotFoundAction"] = json!("Deny");
        let spec = json!({"policyName": policy, "validationActions": ["Deny"], "paramRef": reference});
        let name = format!("of-{policy}");
        written(
            &cluster,
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            &name,
            spec,
        )
        .await
    };
    let one = || json!({"name": "s1", "namespace": "blue"});
    let on_object = |verb: &str| {
        Some(format!(
            "spec.paramRef: Forbidden: {USER} does not have {verb:?} permission on the object referenced by paramRef"
        ))
    };
    let on_all = |what: &str| {
        Some(format!(
            "spec.paramRef: Forbidden: unable to {what} to determine minimum required permissions and {USER} does not have \"get\" permission for all groups, versions and resources"
        ))
    };
    assert_eq!(bind("secrets", one()).await, on_object("get"));
    assert_eq!(
        bind("secrets", json!({"selector": {}, "namespace": "blue"})).await,
        on_object("list")
    );
    assert_eq!(bind("absent", one()).await, on_all("get policy absent"));
    assert_eq!(
        bind("unknown", one()).await,
        on_all("resolve paramKind &{foo.io/v1 Nope}")
    );
    assert_eq!(bind("maps", one()).await, None);
    // An unchanged binding needs no permission again; one to another policy does.
    let path = format!("{ADMISSION}/validatingadmissionpolicybindings/of-maps");
    let patch = async |change: Value| {
        let kind = "application/merge-patch+json";
        send(
            as_user(&cluster, "author"),
            Method::PATCH,
            &path,
            kind,
            change.to_string(),
        )
        .await
    };
    patch(json!({"metadata": {"labels": {"a": "b"}}})).await.is(200);
    patch(json!({"spec": {"policyName": "secrets"}})).await.is(422);
    // So with policies.
    let path = format!("{ADMISSION}/validatingadmissionpolicies/maps");
    let change = json!({"spec": {"paramKind": {"apiVersion": "v1", "kind": "Secret"}}}).to_string();
    let kind = "application/merge-patch+json";
    send(as_user(&cluster, "author"), Method::PATCH, &path, kind, change)
        .await
        .is(422);
}

/// The right on a status is no right on metadata.
#[tokio::test(flavor = "multi_thread")]
async fn status_of_guarded_kinds_changes_no_metadata() {
    const FLOW: &str = "flowcontrol.apiserver.k8s.io/v1";
    let cluster = start().await;
    let reject = json!({"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}});
    let level = object(
        FLOW,
        "PriorityLevelConfiguration",
        json!({"name": "own"}),
        json!({"spec": reject}),
    );
    let levels = format!("/apis/{FLOW}/prioritylevelconfigurations");
    cluster.admin().post(&levels, level).await.is(201);
    let spec = json!({"priorityLevelConfiguration": {"name": "own"}, "rules": []});
    let schema = object(FLOW, "FlowSchema", json!({"name": "own"}), json!({"spec": spec}));
    let schemas = format!("/apis/{FLOW}/flowschemas");
    cluster.admin().post(&schemas, schema).await.is(201);
    let metadata = json!({"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["example.com/x"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}]});
    let change = json!({"metadata": metadata}).to_string();
    let service = "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps".to_owned();
    for path in [format!("{schemas}/own"), format!("{levels}/own"), service] {
        let (kind, part) = ("application/merge-patch+json", format!("{path}/status"));
        let changed = send(cluster.admin(), Method::PATCH, &part, kind, change.clone()).await;
        let changed = changed.is(200).json()["metadata"].clone();
        assert!(changed["labels"]["a"].is_null(), "{path}: {changed}");
        assert!(changed["annotations"]["a"].is_null(), "{path}: {changed}");
        assert!(changed["finalizers"].is_null(), "{path}: {changed}");
        assert!(changed["ownerReferences"].is_null(), "{path}: {changed}");
    }
}

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, spec: Value) -> String {
    let mut whole = json!({"containers": [{"name": "c", "image": "i"}]});
    whole
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    object("v1", "Pod", json!({"name": name}), json!({"spec": whole}))
}

async fn account(cluster: &Cluster, metadata: Value) {
    let path = "/api/v1/namespaces/default/serviceaccounts";
    let account = object("v1", "ServiceAccount", metadata, json!({}));
    cluster.admin().post(path, account).await.is(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_names_only_the_secrets_that_its_account_lists() {
    let cluster = start().await;
    let annotations = json!({"kubernetes.io/enforce-mountable-secrets": "true"});
    account(&cluster, json!({"name": "lim", "annotations": annotations})).await;
    let volume = json!([{"name": "v", "secret": {"secretName": "s1"}}]);
    let spec = json!({"serviceAccountName": "lim", "volumes": volume});
    let refused = cluster.admin().post(PODS, pod("p", spec)).await.is(403);
    let words = "because service account lim does not reference that secret";
    assert!(message(&refused).ends_with(words), "{}", message(&refused));
    let spec = json!({"serviceAccountName": "lim"});
    cluster.admin().post(PODS, pod("p", spec)).await.is(201);
    let env = json!([{"secretRef": {"name": "s1"}}]);
    let container = json!([{"name": "e", "image": "i", "envFrom": env}]);
    let change = json!({"spec": {"ephemeralContainers": container}}).to_string();
    let (kind, path) = (
        "application/strategic-merge-patch+json",
        format!("{PODS}/p/ephemeralcontainers"),
    );
    let refused = send(cluster.admin(), Method::PATCH, &path, kind, change)
        .await
        .is(403);
    let begin = r#"pods "p" is forbidden: ephemeral container e with envFrom"#;
    assert!(message(&refused).starts_with(begin), "{}", message(&refused));
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_has_the_zone_of_its_node_from_the_moment_it_is_bound() {
    let cluster = start().await;
    let labels = json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "a": "b"});
    let node = object("v1", "Node", json!({"name": "n1", "labels": labels}), json!({}));
    cluster.admin().post("/api/v1/nodes", node).await.is(201);
    account(&cluster, json!({"name": "own"})).await;
    let spec = json!({"serviceAccountName": "own"});
    cluster.admin().post(PODS, pod("p", spec)).await.is(201);
    let target = json!({"target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}});
    let binding = object("v1", "Binding", json!({"name": "p"}), target);
    cluster
        .admin()
        .post(&format!("{PODS}/p/binding"), binding)
        .await
        .is(201);
    let bound = cluster.admin().get(&format!("{PODS}/p")).await.is(200).json();
    assert_eq!(
        bound["metadata"]["labels"],
        json!({"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"})
    );
}
