//! Authorizers of `--authorization-config` and flags, webhooks among them.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;
mod review_server;
mod tls_server;

use apiserver_auth::pki::Identity;
use apiserver_server::{AuthorizationModeOptions, AuthorizationOptions, Server, ServerConfig};
use apiserver_storage::LogStorage;
use common::{Cluster, config, start_with};
use machinery_runtime::Runtime;
use review_server::ReviewServer;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const RULES_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

/// The answer goes by the name that is requested.
fn answer(asked: &Value) -> (u16, Value) {
    let name = asked["spec"]["resourceAttributes"]["name"]
        .as_str()
        .unwrap_or_default();
    let status = match name {
        "allowed" => json!({"allowed": true, "reason": "why not"}),
        "denied" => json!({"denied": true, "reason": "no way"}),
        "both" => json!({"allowed": true, "denied": true}),
        "broken" => return (400, json!("broken")),
        _ => json!({"reason": "who knows"}),
    };
    (
        200,
        json!({"apiVersion": asked["apiVersion"], "kind": "SubjectAccessReview", "status": status}),
    )
}

fn webhook(kubeconfig: &Path) -> Value {
    json!({
        "type": "Webhook",
        "name": "hook",
        "webhook": {
            "timeout": "3s",
            "subjectAccessReviewVersion": "v1",
            "matchConditionSubjectAccessReviewVersion": "v1",
            "failurePolicy": "NoOpinion",
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
            "matchConditions": [
                {"expression": "has(request.resourceAttributes)"},
                {"expression": "request.resourceAttributes.namespace == 'default'"},
            ],
        },
    })
}

fn file(authorizers: &[Value]) -> Value {
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": authorizers})
}

fn rbac() -> Value {
    json!({"type": "RBAC", "name": "rbac"})
}

/// Replaces it in one step: a file that is read half written is one more failure.
fn replace(path: &Path, content: &Value) {
    let new = path.with_extension("new");
    std::fs::write(&new, content.to_string()).unwrap();
    std::fs::rename(new, path).unwrap();
}

fn with_file(path: &Path, content: &Value) -> ServerConfig {
    replace(path, content);
    ServerConfig {
        authorization: AuthorizationOptions {
            config_file: Some(path.to_owned()),
            ..AuthorizationOptions::default()
        },
        file_reload_interval: Duration::from_millis(5),
        ..config()
    }
}

fn anna(cluster: &Cluster) -> Identity {
    let pki = cluster.server.pki();
    pki.cluster
        .client("anna", Some("people"), cluster.runtime.now())
        .unwrap()
}

async fn until(cluster: &Cluster, mut holds: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !holds().await {
            cluster.runtime.sleep(Duration::from_millis(5)).await;
        }
    };
    let limit = Duration::from_secs(60);
    cluster
        .runtime
        .timeout(limit, asking)
        .await
        .expect("it is so in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_authorizes_what_its_conditions_match() {
    let server = ReviewServer::start(&Runtime::real(), answer).await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    server.kubeconfig(&kubeconfig);
    let content = file(&[webhook(&kubeconfig), rbac()]);
    let cluster = start_with(with_file(&folder.path().join("file"), &content)).await;
    let anna = anna(&cluster);
    let get = async |path: &str| cluster.as_identity(&anna).get(path).await;
    get(&format!("{MAPS}/allowed")).await.is(404);
    let sent = server.seen().pop().unwrap();
    let expected = json!({
        "user": "anna",
        "groups": ["people", "system:authenticated"],
        "resourceAttributes": {"namespace": "default", "verb": "get", "version": "v1", "resource": "configmaps", "name": "allowed"},
    });
    let mut spec = sent["spec"].clone();
    spec.as_object_mut().unwrap().remove("extra");
    assert_eq!(spec, expected);
    assert_eq!(sent["apiVersion"], "authorization.k8s.io/v1");

    let denied = get(&format!("{MAPS}/denied")).await.is(403).json();
    assert!(
        denied["message"].as_str().unwrap().ends_with(": no way"),
        "{denied}"
    );
    let unknown = get(&format!("{MAPS}/other")).await.is(403).json();
    assert!(
        unknown["message"]
            .as_str()
            .unwrap()
            .ends_with(": hook: who knows"),
        "{unknown}"
    );
    get(&format!("{MAPS}/broken")).await.is(500);
    get(&format!("{MAPS}/both")).await.is(500);
    let seen = server.seen().len();
    get("/api/v1/namespaces/kube-system/configmaps").await.is(403);
    get("/metrics").await.is(403);
    cluster.admin().get(&format!("{MAPS}/denied")).await.is(404);
    get(&format!("{MAPS}/allowed")).await.is(404);
    get(&format!("{MAPS}/denied")).await.is(403);
    assert_eq!(
        server.seen().len(),
        seen,
        "conditions, masters and what is remembered make no calls"
    );
    get(&format!(
        "{MAPS}?labelSelector=a%3Db&fieldSelector=metadata.name%3Dx"
    ))
    .await
    .is(403);
    let asked = server.seen().pop().unwrap()["spec"]["resourceAttributes"].clone();
    assert_eq!(
        asked["labelSelector"]["requirements"],
        json!([{"key": "a", "operator": "In", "values": ["b"]}])
    );
    assert_eq!(asked["fieldSelector"]["requirements"][0]["key"], "metadata.name");

    let review = |name: &str| {
        let target = json!({"namespace": "default", "verb": "get", "resource": "configmaps", "name": name});
        json!({"spec": {"user": "anna", "resourceAttributes": target}}).to_string()
    };
    let status = cluster
        .admin()
        .post(REVIEWS, review("denied"))
        .await
        .is(201)
        .json()["status"]
        .clone();
    assert_eq!(
        status,
        json!({"allowed": false, "denied": true, "reason": "no way"})
    );
    let status = cluster
        .admin()
        .post(REVIEWS, review("broken"))
        .await
        .is(201)
        .json()["status"]
        .clone();
    assert!(
        status["evaluationError"]
            .as_str()
            .unwrap()
            .contains("the server rejected our request"),
        "{status}"
    );
    let metrics = cluster.admin().get("/metrics").await.is(200).body;
    for line in [
        "apiserver_authorization_webhook_evaluations_total{name=\"hook\",result=\"error\"} 2",
        "apiserver_authorization_webhook_evaluations_fail_open_total{name=\"hook\",result=\"error\"} 2",
        "apiserver_authorization_decisions_total{decision=\"denied\",name=\"hook\",type=\"Webhook\"}",
        "apiserver_authorization_match_condition_exclusions_total{name=\"hook\",type=\"Webhook\"}",
        "apiserver_authorization_config_controller_last_config_info{",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_that_fails_denies_where_its_policy_says_so() {
    let server = ReviewServer::start(&Runtime::real(), answer).await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    server.kubeconfig(&kubeconfig);
    let mut hook = webhook(&kubeconfig);
    hook["webhook"]["failurePolicy"] = json!("Deny");
    hook["webhook"]["matchConditions"] =
        json!([{"expression": "request.resourceAttributes.namespace == 'default'"}]);
    let content = file(&[hook, json!({"type": "AlwaysAllow", "name": "alwaysallow"})]);
    let cluster = start_with(with_file(&folder.path().join("file"), &content)).await;
    let anna = anna(&cluster);
    let get = async |path: &str| cluster.as_identity(&anna).get(path).await;
    get(&format!("{MAPS}/broken")).await.is(500);
    get(&format!("{MAPS}/denied")).await.is(403);
    get(&format!("{MAPS}/other")).await.is(404);
    // Its condition cannot be evaluated.
    get("/version").await.is(500);
}

/// Each mode of impersonation has questions of its own, which wait as long as the webhook's timeout is.
#[tokio::test(flavor = "multi_thread")]
async fn impersonation_waits_for_a_webhook_until_the_deadline() {
    let server = ReviewServer::start(&Runtime::real(), |_| (0, Value::Null)).await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    server.kubeconfig(&kubeconfig);
    let mut hook = webhook(&kubeconfig);
    hook["webhook"]["timeout"] = json!("10s");
    hook["webhook"]["matchConditions"] = json!([{"expression": "has(request.resourceAttributes) && request.resourceAttributes.resource == 'users'"}]);
    let content = file(&[hook, rbac()]);
    let cluster = start_with(with_file(&folder.path().join("file"), &content)).await;
    let anna = anna(&cluster);
    let asking = cluster.as_identity(&anna).header("impersonate-user", "bob");
    let answer = asking.get("/version?timeout=300ms").await.is(504).json();
    assert_eq!(answer["reason"], "Timeout");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn authorizers_of_a_changed_file_count() {
    let server = ReviewServer::start(&Runtime::real(), answer).await;
    let folder = tempfile::tempdir().unwrap();
    let (kubeconfig, path) = (folder.path().join("kubeconfig"), folder.path().join("file"));
    server.kubeconfig(&kubeconfig);
    let cluster = start_with(with_file(&path, &file(&[rbac()]))).await;
    let anna = anna(&cluster);
    let code = async || {
        let answer = cluster.as_identity(&anna).get(&format!("{MAPS}/allowed")).await;
        answer.code.as_u16()
    };
    let failures = async |count: u32| {
        let text = cluster.admin().get("/metrics").await.is(200).body;
        let name = "apiserver_authorization_config_controller_automatic_reloads_total{";
        let mut lines = text
            .lines()
            .filter(|line| line.starts_with(name) && line.contains("failure"));
        lines.any(|line| line.ends_with(&format!(" {count}")))
    };
    assert_eq!(code().await, 403);
    replace(&path, &file(&[webhook(&kubeconfig)]));
    until(&cluster, async || failures(1).await).await;
    let more = file(&[rbac(), json!({"type": "AlwaysAllow", "name": "alwaysallow"})]);
    replace(&path, &more);
    until(&cluster, async || failures(2).await).await;
    assert_eq!(code().await, 403);
    replace(&path, &file(&[webhook(&kubeconfig), rbac()]));
    until(&cluster, async || code().await == 404).await;
    replace(&path, &file(&[rbac()]));
    until(&cluster, async || code().await == 403).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn authorizers_of_flags_are_asked_in_their_order() {
    let server = ReviewServer::start(&Runtime::real(), answer).await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    server.kubeconfig(&kubeconfig);
    let with_modes = |modes: &[&str], webhook: Option<&Path>| ServerConfig {
        authorization: AuthorizationOptions {
            config_file: None,
            policy_file: None,
            legacy: AuthorizationModeOptions {
                modes: modes.iter().map(|&mode| mode.to_owned()).collect(),
                webhook_config_file: webhook.map(Path::to_owned),
                ..AuthorizationModeOptions::default()
            },
        },
        ..config()
    };
    let cluster = start_with(with_modes(&["RBAC", "Webhook"], Some(&kubeconfig))).await;
    let own = anna(&cluster);
    cluster.as_identity(&own).get("/version").await.is(200);
    assert!(server.seen().is_empty(), "RBAC allows it");
    cluster
        .as_identity(&own)
        .get(&format!("{MAPS}/allowed"))
        .await
        .is(404);
    let sent = &server.seen()[0];
    assert_eq!(sent["apiVersion"], "authorization.k8s.io/v1beta1");
    assert_eq!(sent["spec"]["group"], json!(["people", "system:authenticated"]));

    let cluster = start_with(with_modes(&["AlwaysDeny"], None)).await;
    let own = anna(&cluster);
    let refused = cluster.as_identity(&own).get("/version").await.is(403).json();
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .ends_with("alwaysdeny: Everything is forbidden."),
        "{refused}"
    );
    cluster.admin().get("/version").await.is(200);

    let cluster = start_with(with_modes(&["AlwaysAllow"], None)).await;
    let own = anna(&cluster);
    cluster.as_identity(&own).get("/metrics").await.is(200);
    cluster.nobody().get("/version").await.is(401);
}

#[tokio::test(flavor = "multi_thread")]
async fn authorization_file_that_is_wrong_is_named_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for (content, why) in [
        (
            file(&[]),
            "authorizers: Required value: at least one authorization mode must be defined",
        ),
        (
            file(&[json!({"type": "RBAC", "name": "mine"})]),
            "expected name rbac for authorizer RBAC instead of mine",
        ),
    ] {
        let storage = LogStorage::memory(&Runtime::real()).await.unwrap();
        let scope = Runtime::real().child_scope();
        let started = Server::builder(Arc::new(storage))
            .config(with_file(&path, &content))
            .start(scope.runtime())
            .await;
        let error = started.err().unwrap().to_string();
        assert!(error.ends_with(why), "{error}");
    }
}

/// Policies in front of RBAC, by flags or by the file, which needs `--authorization-policy-file` beside it.
#[tokio::test(flavor = "multi_thread")]
async fn abac_policies_of_a_file_allow_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let (policies, path) = (folder.path().join("policies"), folder.path().join("file"));
    let lines = [
        "# read-only",
        r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"people","namespace":"default","resource":"configmaps","readonly":true}}"#,
    ];
    std::fs::write(&policies, lines.join("\n")).unwrap();
    let by_flags = ServerConfig {
        authorization: AuthorizationOptions {
            config_file: None,
            policy_file: Some(policies.clone()),
            legacy: AuthorizationModeOptions {
                modes: vec!["ABAC".to_owned(), "RBAC".to_owned()],
                ..AuthorizationModeOptions::default()
            },
        },
        ..config()
    };
    let abac = json!({"type": "ABAC", "name": "abac"});
    let mut by_file = with_file(&path, &file(&[abac, rbac()]));
    by_file.authorization.policy_file = Some(policies.clone());
    for config in [by_flags, by_file] {
        let cluster = start_with(config).await;
        let identity = anna(&cluster);
        let anna = || cluster.as_identity(&identity);
        anna().get(MAPS).await.is(200);
        let refused = anna().post(MAPS, "{}").await.is(403).json();
        let message = refused["message"].as_str().unwrap();
        assert!(message.ends_with(": abac: No policy matched."), "{message}");
        anna()
            .get("/api/v1/namespaces/kube-system/configmaps")
            .await
            .is(403);
        let listed = anna()
            .post(
                RULES_REVIEWS,
                json!({"spec": {"namespace": "default"}}).to_string(),
            )
            .await
            .is(201)
            .json();
        let rule = json!({"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["configmaps"]});
        let rules = listed["status"]["resourceRules"].as_array().unwrap();
        assert!(rules.contains(&rule), "{listed}");
        let metrics = cluster.admin().get("/metrics").await.is(200).body;
        let count =
            "apiserver_authorization_decisions_total{decision=\"allowed\",name=\"abac\",type=\"ABAC\"}";
        assert!(metrics.contains(count), "{metrics}");
    }

    let without_policies = with_file(&path, &file(&[json!({"type": "ABAC", "name": "abac"})]));
    let mut with_broken = without_policies.clone();
    with_broken.authorization.policy_file = Some(policies.clone());
    std::fs::write(&policies, "{}\nbroken").unwrap();
    let broken = format!(
        "error reading policy file {}, line 2: broken: ",
        policies.display()
    );
    for (config, why) in [
        (
            without_policies,
            "authorization-mode ABAC's authorization policy file not passed",
        ),
        (with_broken, broken.as_str()),
    ] {
        let storage = LogStorage::memory(&Runtime::real()).await.unwrap();
        let scope = Runtime::real().child_scope();
        let starting = Server::builder(Arc::new(storage)).config(config);
        let error = starting.start(scope.runtime()).await.err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
    }
}
