//! Who may write roles and bindings hands out no more than they hold, over HTTP.

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
