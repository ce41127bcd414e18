//! Users with rights in one namespace, on one node or for reading alone: what they ask of other places is refused.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_auth::pki::Identity;
use bytes::Bytes;
use common::{Answer, Cluster, start};
use http::Method;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Two namespaces, `a` and `b`, each with a secret and a config map named after it.
struct Tenants {
    cluster: Cluster,
}

impl Tenants {
    async fn start() -> Self {
        let this = Self {
            cluster: start().await,
        };
        for namespace in ["a", "b"] {
            let object = json!({"apiVersion":"v1","kind":"Namespace","metadata":{"name":namespace}});
            this.make("/api/v1/namespaces", object).await;
            for (kind, plural) in [
                ("Secret", "secrets"),
                ("ConfigMap", "configmaps"),
                ("ServiceAccount", "serviceaccounts"),
            ] {
                let object =
                    json!({"apiVersion":"v1","kind":kind,"metadata":{"name":format!("of-{namespace}")}});
                this.make(&format!("/api/v1/namespaces/{namespace}/{plural}"), object)
                    .await;
            }
        }
        this
    }

    async fn make(&self, path: &str, object: Value) -> Value {
        self.cluster
            .admin()
            .post(path, object.to_string())
            .await
            .is(201)
            .json()
    }

    /// A user, bound to a role of these rules in namespace `a`. The binding counts once this returns.
    async fn user(&self, name: &str, rules: Value) -> Identity {
        let role = json!({"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":name},"rules":rules});
        self.make(&format!("{RBAC}/namespaces/a/roles"), role).await;
        let binding = json!({"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":name},
            "roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":name},
            "subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":name}]});
        self.make(&format!("{RBAC}/namespaces/a/rolebindings"), binding)
            .await;
        let identity = self.identity(name, None);
        let marker = json!({"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{"namespace":"a"}});
        for _ in 0..500 {
            let rules = self
                .cluster
                .as_identity(&identity)
                .post(
                    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
                    marker.to_string(),
                )
                .await
                .is(201)
                .json();
            let has = rules["status"]["resourceRules"]
                .as_array()
                .unwrap()
                .iter()
                .any(|rule| {
                    rule["apiGroups"] != json!(["authorization.k8s.io"])
                        && rule["apiGroups"] != json!(["authentication.k8s.io"])
                });
            if has {
                return identity;
            }
            self.cluster
                .runtime
                .sleep(std::time::Duration::from_millis(5))
                .await;
        }
        panic!("the binding of {name} never counted");
    }

    fn identity(&self, name: &str, group: Option<&str>) -> Identity {
        self.cluster
            .server
            .pki()
            .cluster
            .client(name, group, self.cluster.runtime.now())
            .unwrap()
    }

    async fn ask(&self, who: &Identity, method: Method, path: &str, body: Option<Value>) -> Answer {
        let patch = method == Method::PATCH;
        let content = if patch {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        self.cluster
            .as_identity(who)
            .header("content-type", content)
            .send(method, path, Bytes::from(body))
            .await
    }

    async fn get(&self, who: &Identity, path: &str) -> Answer {
        self.ask(who, Method::GET, path, None).await
    }
}

fn items(answer: Answer) -> Vec<String> {
    let list = answer.is(200).json();
    let names = list["items"].as_array().unwrap().iter();
    names
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

const EVERYTHING: &str = r#"[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]"#;

fn everything() -> Value {
    serde_json::from_str(EVERYTHING).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn field_selector_stays_in_the_namespace_of_the_address() {
    let tenants = Tenants::start().await;
    let edit = tenants.user("mallory", everything()).await;
    let selectors = [
        "metadata.name=of-b,metadata.namespace=b",
        "metadata.namespace=b,metadata.name==of-b",
        "metadata.namespace=b",
        "metadata.name=of-b",
    ];
    for plural in ["secrets", "configmaps", "serviceaccounts"] {
        for selector in selectors {
            let selector = selector.replace('=', "%3D").replace(',', "%2C");
            let path = format!("/api/v1/namespaces/a/{plural}?fieldSelector={selector}");
            assert_eq!(
                items(tenants.get(&edit, &path).await),
                Vec::<String>::new(),
                "{path}"
            );
            let watch = format!("{path}&watch=true&timeoutSeconds=1");
            assert_eq!(tenants.get(&edit, &watch).await.is(200).body, "", "{watch}");
            tenants.ask(&edit, Method::DELETE, &path, None).await.is(200);
        }
        let other = format!("/api/v1/namespaces/b/{plural}/of-b");
        tenants.cluster.admin().get(&other).await.is(200);
        tenants.get(&edit, &other).await.is(403);
        let own = format!(
            "/api/v1/namespaces/a/{plural}?fieldSelector=metadata.namespace%3Da,metadata.name%3Dof-a"
        );
        assert_eq!(items(tenants.get(&edit, &own).await), ["of-a"]);
    }
    // Over all namespaces a selector may choose one.
    let all = "/api/v1/secrets?fieldSelector=metadata.namespace%3Db,metadata.name%3Dof-b";
    assert_eq!(items(tenants.cluster.admin().get(all).await), ["of-b"]);
    tenants.get(&edit, all).await.is(403);
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_address_does_not_nest() {
    let tenants = Tenants::start().await;
    let owner = tenants.user("mallory", everything()).await;
    let patch = json!({"metadata":{"labels":{"taken":"yes"}}});
    let namespace = |name: &str| json!({"apiVersion":"v1","kind":"Namespace","metadata":{"name":name}});
    let nested = [
        (Method::GET, "namespaces", None),
        (Method::GET, "namespaces?watch=true&timeoutSeconds=1", None),
        (Method::GET, "namespaces/b", None),
        (Method::GET, "namespaces/a", None),
        (Method::POST, "namespaces", Some(namespace("c"))),
        (Method::PATCH, "namespaces/b", Some(patch.clone())),
        (Method::PATCH, "namespaces/b/status", Some(patch)),
        (Method::PUT, "namespaces/b", Some(namespace("b"))),
        (Method::PUT, "namespaces/b/finalize", Some(namespace("b"))),
        (Method::DELETE, "namespaces/b", None),
        (Method::DELETE, "namespaces", None),
        (Method::GET, "nodes", None),
        (Method::GET, "persistentvolumes", None),
        (Method::GET, "namespaces/b/secrets", None),
        (Method::GET, "namespaces/b/secrets/of-b", None),
    ];
    for (method, rest, body) in nested {
        let path = format!("/api/v1/namespaces/a/{rest}");
        let answer = tenants.ask(&owner, method.clone(), &path, body).await;
        assert_eq!(answer.code.as_u16(), 404, "{method} {path}: {}", answer.body);
    }
    let cluster_scoped = [
        format!("{RBAC}/namespaces/a/clusterroles"),
        "/apis/storage.k8s.io/v1/namespaces/a/storageclasses".to_owned(),
        "/api/v1/watch/namespaces/a/namespaces".to_owned(),
        "/api/v1/watch/namespaces/a/namespaces/b".to_owned(),
    ];
    for path in cluster_scoped {
        tenants.get(&owner, &path).await.is(404);
    }
    let b = tenants
        .cluster
        .admin()
        .get("/api/v1/namespaces/b")
        .await
        .is(200)
        .json();
    assert_eq!(b["status"]["phase"], "Active");
    assert_eq!(
        b["metadata"]["labels"],
        json!({"kubernetes.io/metadata.name":"b"})
    );
    tenants.cluster.admin().get("/api/v1/namespaces/c").await.is(404);
    // A namespace's own address is authorized within it, as upstream's.
    tenants.get(&owner, "/api/v1/namespaces/a").await.is(200);
    tenants.get(&owner, "/api/v1/namespaces/b").await.is(403);
}

/// A name in the path is what was authorized, whatever the query says.
#[tokio::test(flavor = "multi_thread")]
async fn watch_of_one_object_by_path_tells_of_no_other() {
    let tenants = Tenants::start().await;
    let rules =
        json!([{"apiGroups":[""],"resources":["secrets"],"resourceNames":["of-a"],"verbs":["watch"]}]);
    let reader = tenants.user("reader", rules).await;
    let object = json!({"apiVersion":"v1","kind":"Secret","metadata":{"name":"other"}});
    tenants.make("/api/v1/namespaces/a/secrets", object).await;
    let watch = "/api/v1/watch/namespaces/a/secrets/of-a?timeoutSeconds=1";
    for (more, code) in [
        ("", 200),
        ("&fieldSelector=", 200),
        ("&fieldSelector=metadata.name!%3Dzz", 400),
        ("&fieldSelector=type%3DOpaque", 400),
        ("&fieldSelector=metadata.name%3Dother", 400),
    ] {
        let answer = tenants.get(&reader, &format!("{watch}{more}")).await;
        assert_eq!(answer.code.as_u16(), code, "{more}: {}", answer.body);
        assert!(!answer.body.contains("\"other\""), "{more}: {}", answer.body);
        assert!(
            code != 200 || answer.body.contains("of-a"),
            "{more}: {}",
            answer.body
        );
    }
    let all = "/api/v1/namespaces/a/secrets?watch=1&timeoutSeconds=1";
    tenants.get(&reader, all).await.is(403);
}

#[tokio::test(flavor = "multi_thread")]
async fn collection_over_all_namespaces_is_only_read() {
    let tenants = Tenants::start().await;
    let admin = &tenants.cluster.admin;
    for (method, path) in [
        (Method::DELETE, "/api/v1/configmaps"),
        (Method::PUT, "/api/v1/configmaps"),
        (Method::PATCH, "/api/v1/configmaps"),
        (Method::POST, "/api/v1/configmaps"),
        (Method::POST, "/api/v1/watch/namespaces/a/configmaps"),
        (Method::DELETE, "/api/v1/watch/namespaces/a/configmaps/of-a"),
    ] {
        let answer = tenants.ask(admin, method.clone(), path, None).await;
        assert_eq!(answer.code.as_u16(), 405, "{method} {path}: {}", answer.body);
    }
    tenants
        .cluster
        .admin()
        .get("/api/v1/namespaces/b/configmaps/of-b")
        .await
        .is(200);
    tenants.get(admin, "/api/v1/watch/configmaps/of-b").await.is(404);
}

/// `AuthorizePodWebsocketUpgradeCreatePermission`.
#[tokio::test(flavor = "multi_thread")]
async fn exec_needs_create_however_it_is_asked_for() {
    let tenants = Tenants::start().await;
    let pod = json!({"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},
        "spec":{"serviceAccountName":"of-a","containers":[{"name":"c","image":"i"}]}});
    tenants.make("/api/v1/namespaces/a/pods", pod).await;
    let reader = tenants
        .user(
            "reader",
            json!([{"apiGroups":["*"],"resources":["*"],"verbs":["get","list","watch"]}]),
        )
        .await;
    let user = tenants.user("user", json!([{"apiGroups":[""],"resources":["pods/exec","pods/attach","pods/portforward"],"verbs":["get","create"]}])).await;
    for subresource in ["exec", "attach", "portforward"] {
        let path = format!("/api/v1/namespaces/a/pods/p/{subresource}?command=sh&stdout=true&ports=80");
        let refused = tenants.get(&reader, &path).await.is(403).json();
        let message = refused["message"].as_str().unwrap();
        assert!(message.starts_with(r#"pods "p" is forbidden: "#), "{message}");
        tenants.ask(&reader, Method::POST, &path, None).await.is(403);
        // With both rights only the pod is missing its node.
        for method in [Method::GET, Method::POST] {
            let refused = tenants.ask(&user, method, &path, None).await.is(400).json();
            assert_eq!(refused["message"], "pod p does not have a host assigned");
        }
    }
    // Logs are read.
    tenants
        .get(&reader, "/api/v1/namespaces/a/pods/p/log")
        .await
        .is(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn token_request_passes_admission() {
    let tenants = Tenants::start().await;
    let node = tenants.identity("system:node:n1", Some("system:nodes"));
    let node_object = json!({"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}});
    tenants.make("/api/v1/nodes", node_object).await;
    let pod = json!({"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},
        "spec":{"serviceAccountName":"of-a","nodeName":"n1","containers":[{"name":"c","image":"i"}]}});
    let pod = tenants.make("/api/v1/namespaces/a/pods", pod).await;
    let uid = pod["metadata"]["uid"].clone();
    let asked = |bound: Value| json!({"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"boundObjectRef":bound}});
    let path = "/api/v1/namespaces/a/serviceaccounts/of-a/token";
    let refusals = [
        (json!(null), "node requested token not bound to a pod"),
        (
            json!({"apiVersion":"v1","kind":"Secret","name":"of-a"}),
            "node requested token not bound to a pod",
        ),
        (
            json!({"apiVersion":"v1","kind":"Pod","name":"p"}),
            "node requested token with a pod binding without a uid",
        ),
    ];
    for (bound, why) in refusals {
        let refused = tenants
            .ask(&node, Method::POST, path, Some(asked(bound)))
            .await
            .is(403)
            .json();
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(why), "{message}");
    }
    let bound = json!({"apiVersion":"v1","kind":"Pod","name":"p","uid":uid});
    let granted = tenants
        .ask(&node, Method::POST, path, Some(asked(bound)))
        .await
        .is(201)
        .json();
    assert_ne!(granted["status"]["token"], json!(null));
}

#[tokio::test(flavor = "multi_thread")]
async fn token_request_names_the_account_of_the_address() {
    let tenants = Tenants::start().await;
    let path = "/api/v1/namespaces/a/serviceaccounts/of-a/token";
    let admin = &tenants.cluster.admin;
    let asked = |meta: Value| json!({"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":meta,"spec":{}});
    for (meta, code, message) in [
        (
            json!({"namespace":"b"}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            json!({"name":"of-b"}),
            422,
            r#"TokenRequest.authentication.k8s.io "of-a" is invalid: metadata.name: Invalid value: "of-b": must match the service account name if specified"#,
        ),
    ] {
        let refused = tenants
            .ask(admin, Method::POST, path, Some(asked(meta)))
            .await
            .is(code)
            .json();
        assert_eq!(refused["message"], message);
    }
    let refused = tenants
        .ask(admin, Method::POST, path, Some(asked(json!({"uid":"x"}))))
        .await
        .is(409)
        .json();
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains("the UID in the token request (x) does not match the UID of the service account ("),
        "{message}"
    );
    let account = tenants
        .cluster
        .admin()
        .get("/api/v1/namespaces/a/serviceaccounts/of-a")
        .await
        .is(200)
        .json();
    let granted = tenants
        .ask(admin, Method::POST, path, Some(asked(json!({}))))
        .await
        .is(201)
        .json();
    for field in ["name", "namespace", "uid"] {
        assert_eq!(granted["metadata"][field], account["metadata"][field], "{field}");
    }
}
