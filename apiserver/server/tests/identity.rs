//! Authentication over HTTP, and the answers to refused credentials.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_auth::jwt::{self, SigningKey};
use bytes::Bytes;
use common::{Cluster, start};
use http::Method;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::time::Duration;

async fn token_for(cluster: &Cluster, seconds: i64) -> String {
    let account = json!({"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"bot"}});
    cluster
        .admin()
        .post("/api/v1/namespaces/default/serviceaccounts", account.to_string())
        .await;
    bound_token(cluster, json!({"expirationSeconds": seconds})).await
}

/// A token of the account `bot` as the spec of a request has it.
async fn bound_token(cluster: &Cluster, spec: serde_json::Value) -> String {
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let path = "/api/v1/namespaces/default/serviceaccounts/bot/token";
    let answer = cluster.admin().post(path, asked.to_string()).await.is(201);
    answer.json()["status"]["token"].as_str().unwrap().to_owned()
}

/// Makes an object and requests a token that is bound to it.
async fn token_bound_to(cluster: &Cluster, plural: &str, object: serde_json::Value) -> String {
    let path = format!("/api/v1/namespaces/default/{plural}");
    let made = cluster
        .admin()
        .post(&path, object.to_string())
        .await
        .is(201)
        .json();
    let bound = json!({"apiVersion": "v1", "kind": made["kind"], "name": made["metadata"]["name"],
        "uid": made["metadata"]["uid"]});
    bound_token(cluster, json!({"boundObjectRef": bound})).await
}

async fn delete(cluster: &Cluster, path: &str) {
    let path = format!("/api/v1/namespaces/default/{path}?gracePeriodSeconds=0");
    cluster
        .admin()
        .send(Method::DELETE, &path, Bytes::new())
        .await
        .is(200);
}

/// Answer of the server to the holder of a token.
async fn code_of(cluster: &Cluster, token: &str) -> u16 {
    let answer = cluster.nobody().token(token).get("/api/v1/namespaces").await;
    answer.code.as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_request_reaches_health_only() {
    let cluster = start().await;
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        cluster.nobody().get(path).await.is(200);
    }
    let refused = cluster.nobody().get("/api/v1/namespaces").await.is(403).json();
    assert_eq!(refused["reason"], "Forbidden");
    assert_eq!(
        refused["message"],
        r#"namespaces is forbidden: User "system:anonymous" cannot list resource "namespaces" in API group "" at the cluster scope"#
    );
    let refused = cluster.nobody().get("/metrics").await.is(403).json();
    assert_eq!(
        refused["message"],
        r#"forbidden: User "system:anonymous" cannot get path "/metrics""#
    );
    assert!(
        cluster
            .admin()
            .get("/metrics")
            .await
            .is(200)
            .body
            .contains("apiserver_request_total")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_credentials_are_unauthorized() {
    let cluster = start().await;
    let other = start().await;
    let good = token_for(&cluster, 3_600).await;
    let forged = token_for(&other, 3_600).await;
    let changed = format!("{}x", &good[..good.len() - 1]);
    for token in ["nonsense", "a.b.c", &forged, &changed] {
        let refused = cluster
            .nobody()
            .token(token)
            .get("/api/v1/namespaces")
            .await
            .is(401)
            .json();
        assert_eq!(
            (refused["reason"].as_str(), refused["message"].as_str()),
            (Some("Unauthorized"), Some("Unauthorized"))
        );
    }
    cluster
        .as_identity(&other.admin)
        .get("/api/v1/namespaces")
        .await
        .is(401);
}

#[tokio::test(flavor = "multi_thread")]
async fn service_account_identity_has_its_rights_only() {
    let cluster = start().await;
    let token = token_for(&cluster, 3_600).await;
    let me = json!({"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = cluster
        .nobody()
        .token(&token)
        .post(path, me.to_string())
        .await
        .is(201)
        .json();
    assert_eq!(
        review["status"]["userInfo"]["username"],
        "system:serviceaccount:default:bot"
    );
    let refused = cluster
        .nobody()
        .token(&token)
        .get("/api/v1/namespaces/default/pods")
        .await
        .is(403)
        .json();
    assert_eq!(
        refused["message"],
        r#"pods is forbidden: User "system:serviceaccount:default:bot" cannot list resource "pods" in API group "" in the namespace "default""#
    );
    let binding = json!({"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"bot"},
        "roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"system:node-proxier"},
        "subjects":[{"kind":"ServiceAccount","namespace":"default","name":"bot"}]});
    cluster
        .admin()
        .post(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            binding.to_string(),
        )
        .await
        .is(201);
    let mut code = 403;
    for _ in 0..100 {
        code = cluster
            .nobody()
            .token(&token)
            .get("/api/v1/services")
            .await
            .code
            .as_u16();
        if code == 200 {
            break;
        }
        cluster.runtime.sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(code, 200, "a binding counts soon");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_ends_with_its_account_pod_or_secret() {
    let cluster = start().await;
    // It has been shown, and is believed for ten seconds; the others are shown for the first time when it is too late.
    let shown = token_for(&cluster, 3_600).await;
    assert_eq!(code_of(&cluster, &shown).await, 403, "known, without rights");
    let of_account = token_for(&cluster, 3_600).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "bot", "containers": [{"name": "c", "image": "i"}]}});
    let of_pod = token_bound_to(&cluster, "pods", pod.clone()).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    let of_secret = token_bound_to(&cluster, "secrets", secret).await;
    let of_another_pod = {
        let mut other = pod.clone();
        other["metadata"]["name"] = json!("q");
        token_bound_to(&cluster, "pods", other).await
    };

    delete(&cluster, "pods/p").await;
    assert_eq!(code_of(&cluster, &of_pod).await, 401, "its pod is gone");
    // A pod of the same name is another one.
    let pods = "/api/v1/namespaces/default/pods";
    cluster.admin().post(pods, pod.to_string()).await.is(201);
    assert_eq!(code_of(&cluster, &of_pod).await, 401, "its pod was another one");
    delete(&cluster, "secrets/s").await;
    assert_eq!(code_of(&cluster, &of_secret).await, 401, "its secret is gone");
    let untouched = token_for(&cluster, 3_600).await;
    assert_eq!(
        code_of(&cluster, &untouched).await,
        403,
        "the account's other tokens stay"
    );

    delete(&cluster, "serviceaccounts/bot").await;
    assert_eq!(code_of(&cluster, &of_account).await, 401, "its account is gone");
    assert_eq!(
        code_of(&cluster, &of_another_pod).await,
        401,
        "its account is gone, its pod is not"
    );
    // An account of the same name is another one, and its tokens are its own.
    let fresh = token_for(&cluster, 3_600).await;
    assert_eq!(code_of(&cluster, &fresh).await, 403);
    assert_eq!(
        code_of(&cluster, &of_account).await,
        401,
        "its account was another one"
    );
    while code_of(&cluster, &shown).await != 401 {
        cluster.runtime.sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_reviews_tell_good_from_bad() {
    let cluster = start().await;
    let token = token_for(&cluster, 3_600).await;
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = |token: &str| json!({"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":token}});
    let good = cluster
        .admin()
        .post(path, review(&token).to_string())
        .await
        .is(201)
        .json();
    assert_eq!(good["status"]["authenticated"], true);
    assert_eq!(
        good["status"]["user"]["username"],
        "system:serviceaccount:default:bot"
    );
    let changed = format!("{}AAAA", &token[..token.len() - 4]);
    for (bad, words) in [
        ("x", "invalid bearer token"),
        (
            changed.as_str(),
            "[invalid bearer token, the signature was made by none of the known keys]",
        ),
    ] {
        let answer = cluster.admin().post(path, review(bad).to_string()).await;
        let status = answer.is(201).json()["status"].clone();
        assert_eq!(status["authenticated"], serde_json::Value::Null);
        assert_eq!(status["error"], words);
    }
}

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn binding(name: &str, role: &str, subject: &serde_json::Value) -> String {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject]})
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_open_to_whom_rbac_opens_it() {
    let cluster = start().await;
    let ask = |user: &'static str| {
        let spec = json!({"user": user, "nonResourceAttributes": {"path": "/readyz", "verb": "get"}});
        let review = json!({"spec": spec}).to_string();
        let admin = cluster.admin();
        async move {
            let answer = admin
                .post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
                .await;
            answer.is(201).json()["status"]["allowed"].clone()
        }
    };
    assert_eq!(ask("nobody-in-particular").await, false, "in no group");
    cluster.nobody().get("/readyz").await.is(200);
    let public = format!("{RBAC}/clusterrolebindings/system:public-info-viewer");
    let patch = r#"{"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}]}"#;
    let ask = cluster
        .admin()
        .header("content-type", "application/merge-patch+json");
    ask.send(http::Method::PATCH, &public, patch.into()).await.is(200);
    while cluster.nobody().get("/readyz").await.code == 200 {
        cluster.runtime.sleep(std::time::Duration::from_millis(5)).await;
    }
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        cluster.nobody().get(path).await.is(403);
        cluster
            .admin()
            .header("impersonate-user", "jane")
            .get(path)
            .await
            .is(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reasons_of_refusals_name_their_authorizer() {
    let cluster = start().await;
    let lost = binding(
        "lost",
        "gone",
        &json!({"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}),
    );
    cluster
        .admin()
        .post(&format!("{RBAC}/clusterrolebindings"), lost)
        .await
        .is(201);
    let jane = || cluster.admin().header("impersonate-user", "jane");
    let words = r#"rbac: RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#;
    loop {
        let refused = jane().get("/api/v1/nodes").await.is(403).json();
        if refused["message"].as_str().unwrap().ends_with(words) {
            break;
        }
        cluster.runtime.sleep(std::time::Duration::from_millis(5)).await;
    }
    let review = json!({"metadata": {"name": "x"}, "spec": {"namespace": "default"}}).to_string();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let answer = jane().post(path, review).await.is(201).json();
    assert_eq!((&answer["spec"], &answer["metadata"]), (&json!({}), &json!({})));
    let words = r#"clusterrole.rbac.authorization.k8s.io "gone" not found"#;
    assert_eq!(answer["status"]["evaluationError"], words);
    let node = cluster.admin().header("impersonate-user", "system:node:n1");
    let node = node.header("impersonate-group", "system:nodes");
    let refused = node
        .get("/api/v1/namespaces/default/secrets/s")
        .await
        .is(403)
        .json();
    let words = "node: no relationship found between node 'n1' and this object";
    assert!(refused["message"].as_str().unwrap().ends_with(words), "{refused}");
    let metrics = cluster.admin().get("/metrics").await.body;
    let counted = r#"apiserver_authorization_decisions_total{decision="allowed",name="rbac",type="RBAC"} "#;
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bearer_token_behind_two_blanks_is_ignored_with_a_warning() {
    let cluster = start().await;
    let token = token_for(&cluster, 3_600).await;
    let path = "/api/v1/namespaces/default/configmaps/none";
    let ask = |value: String| cluster.nobody().header("authorization", value);
    let refused = ask(format!("Bearer  {token}")).get(path).await.is(403);
    assert!(refused.body.contains("system:anonymous"), "{}", refused.body);
    let warning = refused.headers["warning"].to_str().unwrap();
    assert!(warning.contains("contains extra space before the bearer token, and is ignored"));
    for value in [format!("bearer {token}  "), format!("Bearer {token} more")] {
        let refused = ask(value).get(path).await.is(403);
        assert!(
            refused.body.contains("serviceaccount:default:bot"),
            "{}",
            refused.body
        );
        assert!(!refused.headers.contains_key("warning"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn timeout_that_is_none_is_refused_before_the_token_is_looked_at() {
    let cluster = start().await;
    let ask = || cluster.nobody().token("wrong");
    let refused = ask().get("/api/v1/pods?timeout=foo").await.is(400).json();
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .starts_with("invalid timeout specified in the request URL")
    );
    ask().get("/api/v1/pods?watch=1&timeout=foo").await.is(401);
    ask().get("/api/v1/pods?timeout=5s").await.is(401);
}

#[tokio::test(flavor = "multi_thread")]
async fn impersonation_needs_permission() {
    let cluster = start().await;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let me = json!({"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}).to_string();
    let as_jane = cluster
        .admin()
        .header("impersonate-user", "jane")
        .header("impersonate-group", "dev");
    let review = as_jane.post(path, me.clone()).await.is(201).json();
    assert_eq!(review["status"]["userInfo"]["username"], "jane");
    assert_eq!(
        review["status"]["userInfo"]["groups"],
        json!(["dev", "system:authenticated"])
    );
    let token = token_for(&cluster, 3_600).await;
    let refused = cluster
        .nobody()
        .token(&token)
        .header("impersonate-user", "jane")
        .post(path, me)
        .await
        .is(403)
        .json();
    assert_eq!(
        refused["message"],
        r#"selfsubjectreviews.authentication.k8s.io is forbidden: User "system:serviceaccount:default:bot" cannot impersonate-on:user-info:create resource "selfsubjectreviews" in API group "authentication.k8s.io" at the cluster scope"#
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn constrained_impersonation_allows_some_requests_as_some_users() {
    let cluster = start().await;
    let token = token_for(&cluster, 3_600).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "as-jane"},
        "rules": [
            {"apiGroups": ["authentication.k8s.io"], "resources": ["users"], "resourceNames": ["jane"],
                "verbs": ["impersonate:user-info"]},
            {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"],
                "verbs": ["impersonate-on:user-info:create"]}]});
    cluster
        .admin()
        .post(&format!("{rbac}/clusterroles"), role.to_string())
        .await
        .is(201);
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "as-jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "as-jane"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "bot"}]});
    cluster
        .admin()
        .post(&format!("{rbac}/clusterrolebindings"), binding.to_string())
        .await
        .is(201);
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let me = json!({"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}).to_string();
    let as_user = |name: &str| cluster.nobody().token(&token).header("impersonate-user", name);
    // The binding counts soon.
    let mut answer = as_user("jane").post(path, me.clone()).await;
    for _ in 0..200 {
        if answer.code == 201 {
            break;
        }
        cluster.runtime.sleep(std::time::Duration::from_millis(5)).await;
        answer = as_user("jane").post(path, me.clone()).await;
    }
    assert_eq!(answer.is(201).json()["status"]["userInfo"]["username"], "jane");
    as_user("ben").post(path, me).await.is(403);
    let refused = as_user("jane").get("/api/v1/namespaces").await.is(403).json();
    assert_eq!(
        refused["message"],
        r#"namespaces is forbidden: User "system:serviceaccount:default:bot" cannot impersonate-on:user-info:list resource "namespaces" in API group "" at the cluster scope"#
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn node_identity_reads_its_own_objects_only() {
    let cluster = start().await;
    let node = cluster
        .server
        .pki()
        .cluster
        .client("system:node:n1", Some("system:nodes"), cluster.runtime.now())
        .unwrap();
    let object = |name: &str| json!({"apiVersion":"v1","kind":"Node","metadata":{"name":name}}).to_string();
    cluster
        .as_identity(&node)
        .post("/api/v1/nodes", object("n1"))
        .await
        .is(201);
    let refused = cluster
        .as_identity(&node)
        .post("/api/v1/nodes", object("n2"))
        .await
        .is(403)
        .json();
    assert_eq!(
        refused["message"],
        r#"nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2""#
    );
    cluster.as_identity(&node).get("/api/v1/nodes/n1").await.is(200);
    // By the role of kube-proxy, whose work the agent does (decision 0099).
    cluster.as_identity(&node).get("/api/v1/nodes").await.is(200);
    cluster
        .as_identity(&node)
        .get("/api/v1/namespaces/default/secrets/x")
        .await
        .is(403);
    cluster
        .as_identity(&node)
        .get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1")
        .await
        .is(200);
}

/// Answers to tokens, one after the other on one connection.
async fn codes_of(cluster: &Cluster, tokens: impl Iterator<Item = String>) -> Vec<u16> {
    let stream = TokioIo::new(cluster.connect(None).await);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    let serving = async move { drop(connection.await) };
    cluster.runtime.spawn("test-connection", serving).detach();
    let mut codes = Vec::new();
    for token in tokens {
        let request = http::Request::get("/api/v1/namespaces")
            .header("host", "test")
            .header("authorization", format!("Bearer {token}"));
        sender.ready().await.unwrap();
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        codes.push(answer.status().as_u16());
        answer.into_body().collect().await.unwrap();
    }
    codes
}

/// A client that shares its address with one that guesses: with an old token it fetches a new one, with a new one it comes
/// again.
#[tokio::test(flavor = "multi_thread")]
async fn token_that_is_over_is_unauthorized_whoever_guesses_beside_it() {
    let cluster = start().await;
    let now = cluster.runtime.now().as_second();
    let key = SigningKey::generate().unwrap();
    let over = |number: i64| jwt::sign(&key, &json!({"exp": now - 3_600, "jti": number})).unwrap();
    let known = token_for(&cluster, 3_600).await;
    assert_eq!(code_of(&cluster, &known).await, 403);
    let mut rounds = 0;
    loop {
        let tokens = (0..200).flat_map(|number| [format!("guess-{number}-{rounds}"), over(number)]);
        let codes = codes_of(&cluster, tokens).await;
        let (guesses, old): (Vec<_>, Vec<_>) = codes.chunks(2).map(|pair| (pair[0], pair[1])).unzip();
        assert!(old.iter().all(|code| *code == 401), "{old:?}");
        if guesses.contains(&429) {
            break;
        }
        rounds += 1;
        assert!(rounds < 1_000, "guesses are not bounded");
    }
    assert_eq!(code_of(&cluster, &known).await, 403, "who is known is served");
}
