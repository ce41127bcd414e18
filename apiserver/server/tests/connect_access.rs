//! Exec, attach and port forward are allowed to users as the real kube-apiserver 1.37.1 allowed them
//! (`testdata/connect_access.json`): `get` opens nothing by itself, whichever way the connection is upgraded.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use bytes::Bytes;
use common::{Ask, Cluster, start};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

const NAMESPACE: &str = "/api/v1/namespaces/tok";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/tok";

#[derive(Deserialize)]
struct Case {
    user: String,
    method: String,
    pod: String,
    subresource: String,
    query: String,
    upgrade: String,
    code: u16,
    reason: Option<String>,
    message: Option<String>,
}

async fn make(cluster: &Cluster, collection: &str, object: &Value) {
    cluster.admin().post(collection, object.to_string()).await.is(201);
}

async fn grant(cluster: &Cluster, user: &str, rules: Value) {
    let version = "rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": version, "kind": "Role", "metadata": {"name": user}, "rules": rules});
    make(cluster, &format!("{RBAC}/roles"), &role).await;
    let binding = json!({"apiVersion": version, "kind": "RoleBinding", "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    make(cluster, &format!("{RBAC}/rolebindings"), &binding).await;
}

async fn world() -> Cluster {
    let cluster = start().await;
    let named =
        |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    make(&cluster, "/api/v1/namespaces", &named("Namespace", "tok")).await;
    let accounts = format!("{NAMESPACE}/serviceaccounts");
    make(&cluster, &accounts, &named("ServiceAccount", "default")).await;
    let mut pod = named("Pod", "unbound");
    pod["spec"] = json!({"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]});
    make(&cluster, &format!("{NAMESPACE}/pods"), &pod).await;
    let rule = |verbs: &[&str], names: &[&str]| {
        json!({"apiGroups": [""], "resources": ["pods/exec", "pods/attach", "pods/portforward"],
            "verbs": verbs, "resourceNames": names})
    };
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
    for (user, rules) in [
        ("getter", json!([rule(&["get"], &[])])),
        ("creator", json!([rule(&["create"], &[])])),
        ("both", json!([rule(&["get", "create"], &[])])),
        (
            "named",
            json!([rule(&["get"], &[]), rule(&["create"], &["unbound"])]),
        ),
        (
            "other-name",
            json!([rule(&["get"], &[]), rule(&["create"], &["bound"])]),
        ),
        ("reader", all),
        ("none", json!([])),
    ] {
        grant(&cluster, user, rules).await;
    }
    // Roles count in the order in which they were made.
    let ready = async || {
        ask(&cluster, "reader")
            .get(&format!("{NAMESPACE}/pods"))
            .await
            .code
            == 200
    };
    for _ in 0..1_000 {
        if ready().await {
            break;
        }
        cluster.runtime.sleep(std::time::Duration::from_millis(5)).await;
    }
    cluster
}

fn ask<'a>(cluster: &'a Cluster, user: &str) -> Ask<'a> {
    cluster.admin().header("impersonate-user", user)
}

fn upgraded<'a>(ask: Ask<'a>, how: &str) -> Ask<'a> {
    let websocket = |ask: Ask<'a>, connection: &str, upgrade: &str, protocol: &str| {
        ask.header("connection", connection)
            .header("upgrade", upgrade)
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("sec-websocket-protocol", protocol)
    };
    match how {
        "websocket" => websocket(ask, "Upgrade", "websocket", "v5.channel.k8s.io"),
        "websocket-lists" => websocket(ask, "keep-alive, upgrade", "WebSocket", "v4.channel.k8s.io"),
        "spdy" => ask.header("connection", "Upgrade").header("upgrade", "SPDY/3.1"),
        _ => ask,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_attach_and_port_forward_are_allowed_as_upstreams() {
    let cluster = world().await;
    let cases: Vec<Case> = serde_json::from_str(include_str!("../testdata/connect_access.json")).unwrap();
    assert_eq!(cases.len(), 189);
    let mut differing = Vec::new();
    for case in &cases {
        let path = format!("{NAMESPACE}/pods/{}/{}{}", case.pod, case.subresource, case.query);
        let method: Method = case.method.parse().unwrap();
        let answer = upgraded(ask(&cluster, &case.user), &case.upgrade)
            .send(method, &path, Bytes::new())
            .await;
        let code = answer.code.as_u16();
        let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let expected = (case.code, case.reason.as_deref(), case.message.as_deref());
        let mut found = (code, body["reason"].as_str(), body["message"].as_str());
        // Of the right to create, upstream says nothing where it is missing; ours says what is.
        if let (Some(short), Some(own)) = (expected.2, found.2) {
            let told = own.contains("cannot create resource") && own.starts_with(short);
            found.2 = Some(if short.ends_with(": ") && told { short } else { own });
        }
        if found != expected {
            differing.push(format!(
                "{} {} {} {}\n  upstream: {expected:?}\n  ours:     {found:?}",
                case.user, case.method, path, case.upgrade
            ));
        }
    }
    assert!(
        differing.is_empty(),
        "{}: {}",
        differing.len(),
        differing.join("\n")
    );
}
