//! Tokens of issuers that `--authentication-config` or flags name, from an issuer over TLS.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;
mod issuer_server;
mod tls_server;

use apiserver_auth::jwt::SigningKey;
use apiserver_server::{AuthenticationOptions, OidcOptions, Server, ServerConfig};
use apiserver_storage::LogStorage;
use common::{Cluster, config, start_with};
use issuer_server::{IssuerServer, file};
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const REVIEW: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// A configuration with this file.
fn with_file(path: &Path, content: &Value) -> ServerConfig {
    std::fs::write(path, content.to_string()).unwrap();
    ServerConfig {
        authentication: AuthenticationOptions {
            config_file: Some(path.to_owned()),
            ..AuthenticationOptions::default()
        },
        file_reload_interval: Duration::from_millis(5),
        ..config()
    }
}

/// The user whom the server sees, or none.
async fn user(cluster: &Cluster, token: &str) -> Option<Value> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = cluster
        .nobody()
        .token(token)
        .post(REVIEW, review.to_string())
        .await;
    match answer.code.as_u16() {
        201 => Some(answer.json()["status"]["userInfo"].clone()),
        401 => None,
        code => panic!("{code}: {}", answer.body),
    }
}

/// Asks again until there is a user. The limit guards against hanging.
async fn known(cluster: &Cluster, token: &str) -> Value {
    let asking = async {
        loop {
            if let Some(user) = user(cluster, token).await {
                return user;
            }
            cluster.runtime.sleep(Duration::from_millis(5)).await;
        }
    };
    let limit = Duration::from_secs(60);
    cluster
        .runtime
        .timeout(limit, asking)
        .await
        .expect("a user in time")
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

/// Replaces a file at once: one that is read while it is written is a configuration that cannot be read.
fn put(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, path).unwrap();
}

async fn metrics(cluster: &Cluster) -> String {
    cluster.admin().get("/metrics").await.is(200).body
}

#[tokio::test(flavor = "multi_thread")]
async fn issuer_tokens_are_users_by_the_file() {
    let issuer = IssuerServer::start(&Runtime::real()).await;
    let folder = tempfile::tempdir().unwrap();
    let mut entry = issuer.entry();
    entry["claimMappings"]["uid"] = json!({"claim": "sub"});
    entry["claimMappings"]["extra"] = json!([{"key": "example.org/team", "valueExpression": "claims.team"}]);
    entry["claimValidationRules"] = json!([{"expression": "claims.team != 'nobody'", "message": "no"}]);
    let cluster = start_with(with_file(&folder.path().join("file"), &file(&[entry]))).await;
    let claims = json!({"groups": ["a", "b"], "team": ["red", "blue"], "jti": "one"});
    let found = known(&cluster, &issuer.token(&claims)).await;
    let expected = json!({
        "username": "oidc:anna",
        "uid": "anna",
        "groups": ["oidc:a", "oidc:b", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": ["JTI=one"], "example.org/team": ["red", "blue"]},
    });
    assert_eq!(found, expected);
    let other_key = SigningKey::generate().unwrap();
    for bad in [
        issuer.token(&json!({"team": "nobody"})),
        issuer.token(&json!({"team": "red", "aud": "another"})),
        issuer.token(&json!({"team": "red", "iss": "https://another"})),
        issuer.token(&json!({"team": "red", "exp": 1})),
        issuer.token(&json!({})),
        issuer.token_by(&other_key, &claims),
        format!("{}x", issuer.token(&claims)),
    ] {
        assert_eq!(user(&cluster, &bad).await, None);
    }
    let review = json!({"spec": {"token": issuer.token(&claims)}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let answer = cluster
        .admin()
        .post(path, review.to_string())
        .await
        .is(201)
        .json();
    assert_eq!(answer["status"]["user"]["username"], "oidc:anna");
    let text = metrics(&cluster).await;
    for (name, count) in [("success", 1), ("failure", 5)] {
        let line = text.lines().find(|line| {
            line.starts_with("apiserver_authentication_jwt_authenticator_latency_seconds_count")
                && line.contains(name)
        });
        let found: f64 = line.unwrap().rsplit_once(' ').unwrap().1.parse().unwrap();
        assert!(found >= f64::from(count), "{name} {line:?}");
    }
    assert!(text.contains("apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info{"));
    assert!(text.contains("apiserver_authentication_config_controller_last_config_info{"));
}

#[tokio::test(flavor = "multi_thread")]
async fn issuer_keys_are_fetched_again_as_they_change() {
    let issuer = IssuerServer::start(&Runtime::real()).await;
    let folder = tempfile::tempdir().unwrap();
    let cluster = start_with(with_file(&folder.path().join("file"), &file(&[issuer.entry()]))).await;
    known(&cluster, &issuer.token(&json!({}))).await;
    let fetches = issuer.fetches();
    for number in 0..10 {
        let token = issuer.token(&json!({"number": number}));
        assert!(user(&cluster, &token).await.is_some());
    }
    assert_eq!(issuer.fetches(), fetches, "known keys are not fetched again");
    let last = issuer.rotate();
    assert!(user(&cluster, &issuer.token(&json!({}))).await.is_some());
    let old = issuer.token_by(&last, &json!({"number": "old"}));
    assert_eq!(user(&cluster, &old).await, None, "the key was taken back");
}

#[tokio::test(flavor = "multi_thread")]
async fn issuer_is_not_flooded_by_tokens_of_unknown_keys() {
    let issuer = IssuerServer::start(&Runtime::real()).await;
    let folder = tempfile::tempdir().unwrap();
    let cluster = start_with(with_file(&folder.path().join("file"), &file(&[issuer.entry()]))).await;
    let begun = cluster.runtime.monotonic();
    known(&cluster, &issuer.token(&json!({}))).await;
    let mut sent = 0_usize;
    while sent < 100 {
        let key = SigningKey::generate().unwrap();
        assert_eq!(user(&cluster, &issuer.token_by(&key, &json!({}))).await, None);
        sent += 1;
    }
    let passed = cluster.runtime.monotonic().saturating_sub(begun).as_secs() / 10;
    let most = 3 + usize::try_from(passed).unwrap() + 1;
    assert!(issuer.fetches() <= most, "{} of {sent}", issuer.fetches());
}

#[tokio::test(flavor = "multi_thread")]
async fn issuer_that_does_not_answer_delays_nobody_else() {
    let runtime = Runtime::real();
    let (slow, good) = (
        IssuerServer::start(&runtime).await,
        IssuerServer::start(&runtime).await,
    );
    slow.hang();
    let folder = tempfile::tempdir().unwrap();
    let content = file(&[slow.entry(), good.entry()]);
    let cluster = start_with(with_file(&folder.path().join("file"), &content)).await;
    known(&cluster, &good.token(&json!({}))).await;
    assert_eq!(user(&cluster, &slow.token(&json!({}))).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn issuers_file_is_read_again_as_it_changes() {
    let runtime = Runtime::real();
    let (first, second) = (
        IssuerServer::start(&runtime).await,
        IssuerServer::start(&runtime).await,
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let cluster = start_with(with_file(&path, &file(&[first.entry()]))).await;
    known(&cluster, &first.token(&json!({}))).await;
    assert_eq!(user(&cluster, &second.token(&json!({}))).await, None);
    let failures = async |count: u32| {
        let text = metrics(&cluster).await;
        let name = "apiserver_authentication_config_controller_automatic_reloads_total{";
        let mut lines = text
            .lines()
            .filter(|line| line.starts_with(name) && line.contains("failure"));
        lines.any(|line| line.ends_with(&format!(" {count}")))
    };
    put(&path, "no configuration");
    until(&cluster, async || failures(1).await).await;
    let mut anonymous = file(&[second.entry()]);
    anonymous["anonymous"] = json!({"enabled": false});
    put(&path, &anonymous.to_string());
    until(&cluster, async || failures(2).await).await;
    assert!(user(&cluster, &first.token(&json!({"jti": "x"}))).await.is_some());
    put(&path, &file(&[second.entry()]).to_string());
    known(&cluster, &second.token(&json!({}))).await;
    assert_eq!(user(&cluster, &first.token(&json!({"jti": "y"}))).await, None);
    let text = metrics(&cluster).await;
    assert!(
        text.lines()
            .any(|line| line.contains("config_controller_automatic_reloads_total{")
                && line.contains("success"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn issuer_of_flags_has_upstreams_defaults_and_another_place_of_its_document() {
    let issuer = IssuerServer::start(&Runtime::real()).await;
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("ca");
    std::fs::write(&authority, &issuer.authority).unwrap();
    let oidc = OidcOptions {
        issuer_url: Some(issuer.url()),
        client_id: Some("knarr".to_owned()),
        ca_file: Some(authority),
        groups_claim: Some("groups".to_owned()),
        signing_algs: vec!["ES256".to_owned()],
        required_claims: vec![("hd".to_owned(), "example".to_owned())],
        ..OidcOptions::default()
    };
    let authentication = AuthenticationOptions {
        oidc,
        ..AuthenticationOptions::default()
    };
    let cluster = start_with(ServerConfig {
        authentication,
        ..config()
    })
    .await;
    let token = issuer.token(&json!({"groups": "a", "hd": "example"}));
    let found = known(&cluster, &token).await;
    assert_eq!(found["username"], json!(format!("{}#anna", issuer.url())));
    assert_eq!(found["groups"], json!(["a", "system:authenticated"]));
    assert_eq!(user(&cluster, &issuer.token(&json!({"groups": "a"}))).await, None);

    let mut entry = issuer.entry();
    entry["issuer"]["discoveryURL"] = json!(format!("{}/elsewhere", issuer.url()));
    let cluster = start_with(with_file(&folder.path().join("file"), &file(&[entry]))).await;
    assert_eq!(known(&cluster, &token).await["username"], "oidc:anna");
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_requests_go_by_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let mut content = file(&[]);
    content["anonymous"] = json!({"enabled": true, "conditions": [{"path": "/livez"}]});
    let cluster = start_with(with_file(&path, &content)).await;
    cluster.nobody().get("/livez").await.is(200);
    cluster.nobody().get("/readyz").await.is(401);
    cluster.nobody().get("/livez/ping").await.is(401);
    cluster.admin().get("/readyz").await.is(200);

    let mut both = with_file(&path, &content);
    both.authentication.anonymous_auth = Some(true);
    let storage = LogStorage::memory(&Runtime::real()).await.unwrap();
    let scope = Runtime::real().child_scope();
    let started = Server::builder(Arc::new(storage))
        .config(both)
        .start(scope.runtime())
        .await;
    let error = started.err().unwrap().to_string();
    let expected = "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file";
    assert_eq!(error, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_that_is_wrong_is_named_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let entry = json!({"issuer": {"url": "http://a", "audiences": ["x"]}, "claimMappings": {"username": {"claim": "sub", "prefix": ""}}});
    let storage = LogStorage::memory(&Runtime::real()).await.unwrap();
    let scope = Runtime::real().child_scope();
    let started = Server::builder(Arc::new(storage))
        .config(with_file(&path, &file(&[entry])))
        .start(scope.runtime())
        .await;
    let error = started.err().unwrap().to_string();
    let expected = "invalid authentication configuration: jwt[0].issuer.url: Invalid value: \"http://a\": URL scheme must be https";
    assert_eq!(error, expected);
}
