//! Ways from some rights to more of them: roles, bindings, aggregation, labels, tokens, nodes.

use serde_json::{Value, json};

use super::run::Ask;
use super::{OTHER, OWN};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const DRY: &str = "dryRun=All";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// Sent by every user; the user's rights decide.
#[must_use]
pub fn requests() -> Vec<Ask> {
    let mut asks = cluster_roles();
    asks.extend(roles());
    asks.extend(bindings());
    asks.extend(nodes());
    asks.extend(identities());
    asks
}

fn post(path: &str, word: &str, body: &Value) -> Ask {
    Ask::with_body("POST", &format!("{path}?{DRY}"), JSON, body).called(word)
}

fn merge(path: &str, word: &str, body: &Value) -> Ask {
    Ask::with_body("PATCH", &format!("{path}?{DRY}"), MERGE, body).called(word)
}

fn role(kind: &str, name: &str, more: &Value) -> Value {
    let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
                          "metadata": {"name": name}, "rules": []});
    if let (Value::Object(role), Value::Object(more)) = (&mut role, more) {
        role.extend(more.clone());
    }
    role
}

fn everything() -> Value {
    json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])
}

fn cluster_roles() -> Vec<Ask> {
    let roles = format!("{RBAC}/clusterroles");
    let selects =
        |labels: Value| json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": labels}]}});
    let view = format!("{roles}/view");
    let admin = format!("{roles}/cluster-admin");
    let aggregate = json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}});
    vec![
        post(&roles, "empty", &role("ClusterRole", "x", &json!({}))),
        post(
            &roles,
            "everything",
            &role("ClusterRole", "x", &json!({"rules": everything()})),
        ),
        post(
            &roles,
            "aggregates-nothing",
            &role("ClusterRole", "x", &selects(json!({"none": "such"}))),
        ),
        post(
            &roles,
            "aggregates-all",
            &role(
                "ClusterRole",
                "x",
                &json!({"aggregationRule": {"clusterRoleSelectors": [{}]}}),
            ),
        ),
        merge(&admin, "aggregate-to-view", &aggregate),
        merge(
            &admin,
            "annotation",
            &json!({"metadata": {"annotations": {"a": "b"}}}),
        ),
        merge(
            &admin,
            "finalizer",
            &json!({"metadata": {"finalizers": ["example.com/x"]}}),
        ),
        merge(
            &view,
            "aggregates-all",
            &json!({"aggregationRule": {"clusterRoleSelectors": [{}]}}),
        ),
        merge(&view, "everything", &json!({"rules": everything()})),
        merge(
            &format!("{roles}/one-blue"),
            "gains-secrets",
            &json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}),
        ),
        merge(
            &format!("{roles}/one-blue"),
            "url",
            &json!({"rules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}]}),
        ),
    ]
}

fn roles() -> Vec<Ask> {
    let mut asks = Vec::new();
    for side in [OWN, OTHER] {
        let roles = format!("{RBAC}/namespaces/{side}/roles");
        let secrets = json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]});
        let pods = json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]});
        asks.extend([
            post(
                &roles,
                "everything",
                &role("Role", "x", &json!({"rules": everything()})),
            ),
            post(&roles, "secrets", &role("Role", "x", &secrets)),
            post(&roles, "pods", &role("Role", "x", &pods)),
            merge(
                &format!("{roles}/a"),
                "everything",
                &json!({"rules": everything()}),
            ),
            merge(
                &format!("{roles}/a"),
                "same",
                &json!({"metadata": {"labels": {"x": "y"}}}),
            ),
        ]);
    }
    asks
}

fn bindings() -> Vec<Ask> {
    let to = |kind: &str, role_kind: &str, role: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "x"},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
               "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody"}]})
    };
    let cluster = format!("{RBAC}/clusterrolebindings");
    let mut asks: Vec<Ask> = ["cluster-admin", "view", "system:node", "writes-roles", "absent"]
        .map(|role| post(&cluster, role, &to("ClusterRoleBinding", "ClusterRole", role)))
        .into();
    for side in [OWN, OTHER] {
        let bindings = format!("{RBAC}/namespaces/{side}/rolebindings");
        asks.extend(
            ["cluster-admin", "admin", "edit", "view", "absent"]
                .map(|role| post(&bindings, role, &to("RoleBinding", "ClusterRole", role))),
        );
        asks.extend(["everything", "a", "absent"].map(|role| {
            post(
                &bindings,
                &format!("role-{role}"),
                &to("RoleBinding", "Role", role),
            )
        }));
    }
    asks
}

/// Requests of a node for itself and for another.
fn nodes() -> Vec<Ask> {
    let mut asks = Vec::new();
    for node in ["one-blue", "one-red"] {
        let address = format!("/api/v1/nodes/{node}");
        let status = format!("{address}/status");
        asks.extend([
            merge(&address, "label", &json!({"metadata": {"labels": {"x": "y"}}})),
            merge(
                &address,
                "kubelet-label",
                &json!({"metadata": {"labels": {"kubernetes.io/hostname": "h"}}}),
            ),
            merge(
                &address,
                "restricted-label",
                &json!({"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y"}}}),
            ),
            merge(
                &address,
                "role-label",
                &json!({"metadata": {"labels": {"node-role.kubernetes.io/x": ""}}}),
            ),
            merge(
                &address,
                "taint",
                &json!({"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}}),
            ),
            merge(&address, "owner", &owner()),
            merge(
                &address,
                "annotation",
                &json!({"metadata": {"annotations": {"x": "y"}}}),
            ),
            merge(
                &status,
                "condition",
                &json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
            ),
            merge(&status, "label", &json!({"metadata": {"labels": {"x": "y"}}})),
        ]);
    }
    for side in [OWN, OTHER] {
        asks.extend(bound_things(side));
    }
    asks
}

fn owner() -> Value {
    json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a",
        "uid": "00000000-0000-0000-0000-000000000001"}]}})
}

/// The pod on a side's node, what it uses, and tokens for it.
fn bound_things(side: &str) -> Vec<Ask> {
    let core = format!("/api/v1/namespaces/{side}");
    let pod = format!("{core}/pods/bound");
    let token = |more: Value| {
        let mut spec = json!({"audiences": ["https://kubernetes.default.svc.cluster.local"]});
        if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
            spec.extend(more);
        }
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
    };
    let bound_to = |kind: &str, name: &str| {
        token(
            json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name,
                                         "uid": "00000000-0000-0000-0000-000000000001"}}),
        )
    };
    let tokens = format!("{core}/serviceaccounts/used/token");
    let phase = json!({"status": {"phase": "Running"}});
    let mirror = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "static", "annotations": {"kubernetes.io/config.mirror": "x"}},
        "spec": {"nodeName": format!("one-{side}"), "containers": [{"name": "c", "image": "i"}]}});
    let claims = json!({"status": {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "a"}]}});
    vec![
        Ask::plain("GET", &pod),
        Ask::plain("GET", &format!("{core}/secrets/used")),
        Ask::plain("GET", &format!("{core}/configmaps/used")),
        Ask::plain("GET", &format!("{core}/persistentvolumeclaims/used")),
        Ask::plain("GET", &format!("{core}/serviceaccounts/used")),
        Ask::plain(
            "GET",
            &format!("{core}/pods?fieldSelector=spec.nodeName%3Done-{side}"),
        ),
        Ask::plain(
            "GET",
            &format!("/api/v1/pods?fieldSelector=spec.nodeName%3Done-{side}"),
        ),
        Ask::plain(
            "GET",
            &format!("{core}/secrets?fieldSelector=metadata.name%3Dused"),
        ),
        Ask::plain("DELETE", &format!("{pod}?{DRY}")),
        merge(&format!("{pod}/status"), "phase", &phase),
        merge(&format!("{pod}/status"), "claims", &claims),
        merge(
            &format!("{pod}/status"),
            "label",
            &json!({"metadata": {"labels": {"x": "y"}}}),
        ),
        merge(&pod, "label", &json!({"metadata": {"labels": {"x": "y"}}})),
        merge(
            &format!("{core}/persistentvolumeclaims/used/status"),
            "label",
            &json!({"metadata": {"labels": {"x": "y"}}}),
        ),
        post(&format!("{core}/pods"), "mirror", &mirror),
        post(&tokens, "unbound", &token(json!({}))),
        post(&tokens, "bound-wrong-uid", &bound_to("Pod", "bound")),
        post(&tokens, "bound-secret", &bound_to("Secret", "used")),
        post(
            &tokens,
            "long",
            &token(json!({"expirationSeconds": 4_294_967_296_i64})),
        ),
    ]
}

/// Requests about identities and rights.
fn identities() -> Vec<Ask> {
    let review = |group: &str, kind: &str, spec: Value| json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec});
    let allowed =
        json!({"user": "x", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": OTHER}});
    let mut local = review(
        "authorization.k8s.io",
        "LocalSubjectAccessReview",
        allowed.clone(),
    );
    local["metadata"] = json!({"namespace": OTHER});
    let authorization = "/apis/authorization.k8s.io/v1";
    let request = |signer: &str| {
        json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
               "metadata": {"name": "x"}, "spec": {"signerName": signer, "usages": ["client auth"], "request": "eA=="}})
    };
    vec![
        post(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            "token",
            &review("authentication.k8s.io", "TokenReview", json!({"token": "x"})),
        ),
        post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            "self",
            &review("authentication.k8s.io", "SelfSubjectReview", json!({})),
        ),
        post(
            &format!("{authorization}/subjectaccessreviews"),
            "other",
            &review("authorization.k8s.io", "SubjectAccessReview", allowed.clone()),
        ),
        post(
            &format!("{authorization}/namespaces/{OWN}/localsubjectaccessreviews"),
            "names-red",
            &local,
        ),
        post(
            &format!("{authorization}/namespaces/{OTHER}/localsubjectaccessreviews"),
            "names-red",
            &local,
        ),
        post(
            &format!("{authorization}/selfsubjectaccessreviews"),
            "own",
            &review(
                "authorization.k8s.io",
                "SelfSubjectAccessReview",
                json!({"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": OTHER}}),
            ),
        ),
        post(
            &format!("{authorization}/selfsubjectrulesreviews"),
            "own",
            &review(
                "authorization.k8s.io",
                "SelfSubjectRulesReview",
                json!({"namespace": OTHER}),
            ),
        ),
        post(
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            "kubelet-client",
            &request("kubernetes.io/kube-apiserver-client-kubelet"),
        ),
        Ask::plain("GET", "/metrics"),
        Ask::plain("GET", "/logs"),
        Ask::plain("GET", "/api/v1/namespaces/kube-system/secrets"),
        Ask::plain(
            "GET",
            "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication",
        ),
    ]
}
