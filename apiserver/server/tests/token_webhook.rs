//! Tokens that a webhook knows (`--authentication-token-webhook-config-file`).

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;
mod review_server;
mod tls_server;

use apiserver_server::{AuthenticationOptions, ServerConfig, TokenWebhookOptions};
use common::{Cluster, config, start_with};
use futures::future::join_all;
use machinery_runtime::Runtime;
use review_server::ReviewServer;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

const REVIEW: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

fn with_webhook(
    server: &ReviewServer,
    folder: &Path,
    edit: impl Fn(&mut TokenWebhookOptions),
) -> ServerConfig {
    let path = folder.join("kubeconfig");
    server.kubeconfig(&path);
    let mut webhook = TokenWebhookOptions {
        config_file: Some(path),
        ..TokenWebhookOptions::default()
    };
    edit(&mut webhook);
    ServerConfig {
        authentication: AuthenticationOptions {
            webhook,
            ..AuthenticationOptions::default()
        },
        ..config()
    }
}

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

fn review(status: Value) -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1beta1", "kind": "TokenReview", "status": status})
}

fn anna() -> Value {
    json!({"authenticated": true, "user": {"username": "anna", "uid": "7", "groups": ["a"], "extra": {"k": ["v"]}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_tokens_are_users() {
    let answer = |asked: &Value| match asked["spec"]["token"].as_str().unwrap() {
        "good" => (200, review(anna())),
        "for-others" => {
            let mut status = anna();
            status["audiences"] = json!(["https://other"]);
            (200, review(status))
        }
        "wrong" => (200, review(json!({"error": "it is not good"}))),
        "repeated" => (200, review(json!({"error": "repeated is wrong"}))),
        "another-kind" => (200, json!({"kind": "Pod"})),
        "text" => (200, json!("good")),
        "typed" => (200, review(json!({"authenticated": "true"}))),
        _ => (200, review(json!({}))),
    };
    let server = ReviewServer::start(&Runtime::real(), answer).await;
    let folder = tempfile::tempdir().unwrap();
    let cluster = start_with(with_webhook(&server, folder.path(), |_| {})).await;
    let found = user(&cluster, "good").await;
    let expected = json!({"username": "anna", "uid": "7", "groups": ["a", "system:authenticated"], "extra": {"k": ["v"]}});
    assert_eq!(found, Some(expected));
    let sent = &server.seen()[0];
    assert_eq!(sent["apiVersion"], "authentication.k8s.io/v1beta1");
    assert_eq!(
        sent["spec"]["audiences"],
        json!(["https://kubernetes.default.svc.cluster.local"])
    );
    for bad in ["unknown", "for-others", "wrong", "another-kind", "text", "typed"] {
        assert_eq!(user(&cluster, bad).await, None, "{bad}");
    }
    let spec = |token: &str| json!({"spec": {"token": token}}).to_string();
    let found = cluster.admin().post(TOKENS, spec("good")).await.is(201).json();
    assert_eq!(found["status"]["user"]["username"], "anna");
    let found = cluster.admin().post(TOKENS, spec("wrong")).await.is(201).json();
    assert_eq!(found["status"]["error"], "[invalid bearer token, it is not good]");
    let found = cluster
        .admin()
        .post(TOKENS, spec("repeated"))
        .await
        .is(201)
        .json();
    let expected = "[invalid bearer token, the webhook refused the token]";
    assert_eq!(found["status"]["error"], expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_is_asked_once_for_a_token_that_it_answers() {
    let runtime = Runtime::real();
    let answer = |asked: &Value| match asked["spec"]["token"].as_str().unwrap() {
        "good" => (200, review(anna())),
        "wrong" => (200, review(json!({"error": "no"}))),
        _ => (200, review(json!({}))),
    };
    let server = ReviewServer::start(&runtime, answer).await;
    let folder = tempfile::tempdir().unwrap();
    let cluster = start_with(with_webhook(&server, folder.path(), |own| {
        own.version = "v1".to_owned()
    }))
    .await;
    let asked = |token: &str| {
        let seen = server.seen();
        seen.iter().filter(|own| own["spec"]["token"] == token).count()
    };
    let all = join_all((0..20).map(|_| user(&cluster, "good"))).await;
    assert!(all.iter().all(Option::is_some));
    assert_eq!(asked("good"), 1);
    assert_eq!(server.seen()[0]["apiVersion"], "authentication.k8s.io/v1");
    for _ in 0..3 {
        assert_eq!(user(&cluster, "unknown").await, None);
        assert_eq!(user(&cluster, "wrong").await, None);
    }
    assert_eq!(asked("unknown"), 1);
    assert_eq!(asked("wrong"), 3, "failures are not remembered");
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_is_called_again_after_a_failure_of_a_moment() {
    let calls = AtomicUsize::new(0);
    let answer = move |asked: &Value| match asked["spec"]["token"].as_str().unwrap() {
        "good" if calls.fetch_add(1, Ordering::Relaxed) == 0 => (500, json!("not now")),
        "good" => (201, review(anna())),
        _ => (400, json!("never")),
    };
    let server = ReviewServer::start(&Runtime::real(), answer).await;
    let folder = tempfile::tempdir().unwrap();
    let cluster = start_with(with_webhook(&server, folder.path(), |own| {
        own.cache_ttl = Duration::ZERO
    }))
    .await;
    assert!(user(&cluster, "good").await.is_some());
    assert_eq!(server.seen().len(), 2);
    assert_eq!(user(&cluster, "refused").await, None);
    assert_eq!(server.seen().len(), 3, "other failures are final");
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_that_hangs_delays_nobody_else() {
    let answer = |_: &Value| (0, Value::Null);
    let server = ReviewServer::start(&Runtime::real(), answer).await;
    let folder = tempfile::tempdir().unwrap();
    let cluster = start_with(with_webhook(&server, folder.path(), |_| {})).await;
    let waiting = async { user(&cluster, "a").await };
    let served = async {
        while server.seen().is_empty() {
            cluster.runtime.sleep(Duration::from_millis(1)).await;
        }
        cluster.admin().get("/version").await.is(200);
    };
    tokio::select! { biased;
        () = served => {}
        _ = waiting => panic!("the webhook answered"),
    }
}

/// The first line of the answer to a request with this token from an address of this machine.
async fn answered_from(host: u8, cluster: &Cluster, token: &str) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    let address = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0));
    socket.bind(address).unwrap();
    let stream = socket.connect(cluster.address).await.unwrap();
    let mut stream = cluster.connect_over(stream, None).await;
    let head = format!(
        "GET /version HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut line = vec![0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut line).await.unwrap();
    String::from_utf8(line).unwrap()
}

/// The webhook answers about none of the tokens that strangers invent.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_slow_with_strangers_answers_for_users() {
    const STRANGERS: usize = 100;
    /// Calls about the tokens of one address.
    const OF_ADDRESS: usize = 32;
    let answer = |asked: &Value| match asked["spec"]["token"].as_str().unwrap() {
        token if token.starts_with("good") => (200, review(anna())),
        _ => (0, Value::Null),
    };
    let server = ReviewServer::start(&Runtime::real(), answer).await;
    let folder = tempfile::tempdir().unwrap();
    let cluster = start_with(with_webhook(&server, folder.path(), |own| {
        own.cache_ttl = Duration::ZERO
    }))
    .await;
    assert!(user(&cluster, "good").await.is_some());
    let invented = |number: usize| user_of_invented(&cluster, number);
    let strangers = join_all((0..STRANGERS).map(invented));
    let served = async {
        while server.seen().len() <= OF_ADDRESS {
            cluster.runtime.sleep(Duration::from_millis(1)).await;
        }
        let others = answered_from(2, &cluster, "good-and-new").await;
        assert_eq!(others, "HTTP/1.1 200", "another address has turns");
        let spec = json!({"spec": {"token": "good"}}).to_string();
        let found = cluster.admin().post(TOKENS, spec).await.is(201).json();
        assert_eq!(found["status"]["user"]["username"], "anna");
    };
    tokio::select! { biased;
        () = served => {}
        _ = strangers => panic!("the webhook answered"),
    }
}

async fn user_of_invented(cluster: &Cluster, number: usize) {
    let token = format!("invented-{number}");
    cluster.nobody().token(&token).get("/version").await.is(429);
}
