//! Roles and bindings grant no more than their author holds, over HTTP.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use bytes::Bytes;
use common::{Answer, Ask, Cluster, start};
use http::Method;
use serde_json::{Value, json};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

fn object(kind: &str, name: &str, rest: &Value) -> String {
    let mut whole =
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
    let (whole_map, rest) = (whole.as_object_mut().unwrap(), rest.as_object().unwrap());
    whole_map.extend(rest.clone());
    whole.to_string()
}

fn vera(cluster: &Cluster) -> Ask<'_> {
    cluster.admin().header("impersonate-user", "vera")
}

async fn patch(ask: Ask<'_>, path: &str, body: &Value) -> Answer {
    ask.header("content-type", "application/merge-patch+json")
        .send(Method::PATCH, path, Bytes::from(body.to_string()))
        .await
}

/// Vera may write roles and bindings, and neither `escalate` nor `bind`.
async fn cluster_with_vera() -> Cluster {
    let cluster = start().await;
    let rules = json!({"rules": [{"apiGroups": ["rbac.authorization.k8s.io"], "verbs": ["get", "create", "update", "patch"],
        "resources": ["clusterroles", "clusterrolebindings", "roles", "rolebindings"]}]});
    let admin = || cluster.admin();
    admin()
        .post(ROLES, object("ClusterRole", "author", &rules))
        .await
        .is(201);
    let binding = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "author"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "vera"}]});
    let binding = object("ClusterRoleBinding", "author", &binding);
    admin().post(BINDINGS, binding).await.is(201);
    // Rules are kept by event: they are known a moment after they are stored.
    until_vera_may(&cluster, "create", "").await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregation_rule_needs_everything() {
    let cluster = cluster_with_vera().await;
    let nothing = json!({"rules": [], "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"none": "such"}}]}});
    let refused = vera(&cluster)
        .post(ROLES, object("ClusterRole", "gather", &nothing))
        .await
        .is(403);
    assert_eq!(
        refused.json()["message"],
        r#"clusterroles.rbac.authorization.k8s.io "gather" is forbidden: must have cluster-admin privileges to use the aggregationRule"#
    );
    let admin = || cluster.admin();
    admin()
        .post(ROLES, object("ClusterRole", "gather", &nothing))
        .await
        .is(201);
    let everything = json!({"aggregationRule": {"clusterRoleSelectors": [{}]}});
    let path = format!("{ROLES}/gather");
    patch(vera(&cluster), &path, &everything).await.is(403);
    patch(vera(&cluster), &path, &json!({"aggregationRule": null}))
        .await
        .is(403);
    patch(admin(), &path, &everything).await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_of_a_role_need_what_the_role_grants() {
    let cluster = cluster_with_vera().await;
    let label = json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}});
    let path = format!("{ROLES}/cluster-admin");
    patch(vera(&cluster), &path, &label).await.is(403);
    let owner = json!({"metadata": {"finalizers": ["example.com/kept"]}});
    patch(vera(&cluster), &path, &owner).await.is(200);
    // Her own role she holds, so she may label it.
    patch(vera(&cluster), &format!("{ROLES}/author"), &label)
        .await
        .is(200);
}

async fn put(ask: Ask<'_>, path: &str, body: String) -> Answer {
    ask.header("content-type", "application/json")
        .send(Method::PUT, path, Bytes::from(body))
        .await
}

const DEFAULT_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const DEFAULT_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const NOT_HELD: &str = "is attempting to grant RBAC permissions not currently held";

async fn until_vera_may(cluster: &Cluster, verb: &str, name: &str) {
    let right = json!({"group": "rbac.authorization.k8s.io", "resource": "roles", "verb": verb,
        "namespace": "default", "name": name});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": right}})
    .to_string();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    while vera(cluster).post(path, review.clone()).await.is(201).json()["status"]["allowed"] != true {
        cluster.runtime.sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// The name is that of the address: an update or apply of an absent role has one, a plain create has none.
#[tokio::test(flavor = "multi_thread")]
async fn escalate_by_name_counts_where_the_address_has_the_name() {
    let cluster = cluster_with_vera().await;
    let right = json!([{"op": "add", "path": "/rules/-", "value": {"apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles"], "verbs": ["escalate"], "resourceNames": ["esc"]}}]);
    cluster
        .admin()
        .header("content-type", "application/json-patch+json")
        .send(
            Method::PATCH,
            &format!("{ROLES}/author"),
            Bytes::from(right.to_string()),
        )
        .await
        .is(200);
    until_vera_may(&cluster, "escalate", "esc").await;
    let rules = json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    let role = |name: &str| object("Role", name, &rules);
    let path = |name: &str| format!("{DEFAULT_ROLES}/{name}");
    vera(&cluster).post(DEFAULT_ROLES, role("esc")).await.is(403);
    put(vera(&cluster), &path("other"), role("other")).await.is(403);
    put(vera(&cluster), &path("esc"), role("esc")).await.is(201);
    let admin = cluster
        .admin()
        .send(Method::DELETE, &path("esc"), Bytes::new())
        .await;
    admin.is(200);
    vera(&cluster)
        .header("content-type", "application/apply-patch+yaml")
        .send(
            Method::PATCH,
            &format!("{}?fieldManager=f", path("esc")),
            Bytes::from(role("esc")),
        )
        .await
        .is(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_are_refused_before_other_problems_are_told() {
    let cluster = cluster_with_vera().await;
    let refused = |answer: Answer| {
        let message = answer.is(403).json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(NOT_HELD), "{message}");
    };
    let paths = json!({"rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]});
    refused(
        vera(&cluster)
            .post(DEFAULT_ROLES, object("Role", "x", &paths))
            .await,
    );
    let selector = json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a b": "c"}}]}});
    let answer = vera(&cluster)
        .post(ROLES, object("ClusterRole", "agg", &selector))
        .await;
    let message = answer.is(403).json()["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("must have cluster-admin privileges"),
        "{message}"
    );
    let reference = |kind: &str, name: &str| json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}});
    let own = object("RoleBinding", "own", &reference("ClusterRole", "author"));
    vera(&cluster).post(DEFAULT_BINDINGS, own).await.is(201);
    let path = format!("{DEFAULT_BINDINGS}/own");
    refused(patch(vera(&cluster), &path, &reference("ClusterRole", "cluster-admin")).await);
    // A user who may grant it receives the other problems.
    let other = reference("ClusterRole", "cluster-admin");
    patch(cluster.admin(), &path, &other).await.is(422);
}

/// Answers of a real server.
#[tokio::test(flavor = "multi_thread")]
async fn bindings_of_absent_roles_are_answered_as_upstream() {
    let cluster = cluster_with_vera().await;
    let check = async |path: &str, kind: &str, role: (&str, &str), code: u16, message: &str| {
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1});
        let binding = object(kind, "b", &json!({"roleRef": reference}));
        let answer = vera(&cluster).post(path, binding).await.is(code);
        assert_eq!(answer.json()["message"], message);
    };
    let absent = r#"rolebindings.rbac.authorization.k8s.io "nope" not found"#;
    check(DEFAULT_BINDINGS, "RoleBinding", ("Role", "nope"), 404, absent).await;
    check(
        DEFAULT_BINDINGS,
        "RoleBinding",
        ("ClusterRole", "nope"),
        404,
        absent,
    )
    .await;
    let kind = r#"unsupported role reference kind: "Foo""#;
    check(DEFAULT_BINDINGS, "RoleBinding", ("Foo", "nope"), 500, kind).await;
    let absent = r#"clusterrolebindings.rbac.authorization.k8s.io "nope" not found"#;
    check(
        BINDINGS,
        "ClusterRoleBinding",
        ("ClusterRole", "nope"),
        404,
        absent,
    )
    .await;
    let nowhere = "Namespace parameter required.";
    check(BINDINGS, "ClusterRoleBinding", ("Role", "nope"), 400, nowhere).await;
}
