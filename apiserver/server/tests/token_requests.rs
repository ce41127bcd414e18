//! Token requests are answered as the real kube-apiserver 1.37.1 answered them (`testdata/token_requests.json`): code, reason
//! and message of a refusal; else what the answer shows and what the token states.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_server::ServerConfig;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::{Answer, Cluster, config, start_with};
use serde_json::{Map, Value, json};
use std::time::Duration;

const ISSUER: &str = "https://kubernetes.default.svc";
const NAMESPACE: &str = "/api/v1/namespaces/tok";

/// Uids of the objects that requests may be bound to, by the names that the record has for them.
struct Uids(Vec<(String, String)>);

impl Uids {
    /// Replaces the record's uid with the one of this run.
    fn ours(&self, text: &str) -> String {
        let all = self.0.iter();
        all.fold(text.to_owned(), |text, (name, uid)| {
            text.replace(&format!("\"{name}\""), &format!("\"{uid}\""))
        })
    }

    /// Ours becomes what the record calls it.
    fn recorded(&self, value: &Value) -> Value {
        let all = self.0.iter();
        let text = all.fold(value.to_string(), |text, (name, uid)| text.replace(uid, name));
        serde_json::from_str(&text).unwrap()
    }
}

async fn make(cluster: &Cluster, collection: &str, object: &Value) -> String {
    let made = cluster
        .admin()
        .post(collection, object.to_string())
        .await
        .is(201)
        .json();
    made["metadata"]["uid"].as_str().unwrap().to_owned()
}

async fn world(cluster: &Cluster) -> Uids {
    let named =
        |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    make(cluster, "/api/v1/namespaces", &named("Namespace", "tok")).await;
    let accounts = format!("{NAMESPACE}/serviceaccounts");
    make(cluster, &accounts, &named("ServiceAccount", "other")).await;
    let mut uids = vec![
        (
            "UID:sa",
            make(cluster, &accounts, &named("ServiceAccount", "sa")).await,
        ),
        (
            "UID:node",
            make(cluster, "/api/v1/nodes", &named("Node", "tok-n1")).await,
        ),
        (
            "UID:s",
            make(cluster, &format!("{NAMESPACE}/secrets"), &named("Secret", "s")).await,
        ),
    ];
    for (id, name, node, account) in [
        ("UID:bound", "bound", Some("tok-n1"), "sa"),
        ("UID:gone-node", "gone-node", Some("tok-gone"), "sa"),
        ("UID:unbound", "unbound", None, "sa"),
        ("UID:of-other", "of-other", None, "other"),
    ] {
        let mut pod = named("Pod", name);
        pod["spec"] = json!({"serviceAccountName": account, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "i"}]});
        if let Some(node) = node {
            pod["spec"]["nodeName"] = node.into();
        }
        uids.push((id, make(cluster, &format!("{NAMESPACE}/pods"), &pod).await));
    }
    Uids(
        uids.into_iter()
            .map(|(name, uid)| (name.to_owned(), uid))
            .collect(),
    )
}

/// The claims of a token in the record.
fn claims(token: &str) -> Value {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let claims: Map<String, Value> = serde_json::from_slice(&claims).unwrap();
    let issued = claims["iat"].as_i64().unwrap();
    let mut own = claims["kubernetes.io"].clone();
    if let Some(after) = own["warnafter"].as_i64() {
        own["warnafter"] = (after - issued).into();
    } else {
        own.as_object_mut().unwrap().remove("warnafter");
    }
    let mut members: Vec<&String> = claims.keys().collect();
    members.sort();
    json!({"aud": claims["aud"], "lives": claims["exp"].as_i64().unwrap() - issued, "iss": claims["iss"],
        "sub": claims["sub"], "members": members, "kubernetes": own})
}

fn shown(answer: &Value) -> Value {
    let mut metadata = answer["metadata"].clone();
    for own in ["creationTimestamp", "managedFields"] {
        metadata.as_object_mut().unwrap().remove(own);
    }
    let mut status: Vec<&String> = answer["status"].as_object().unwrap().keys().collect();
    status.sort();
    json!({"metadata": metadata, "spec": answer["spec"], "status": status})
}

#[tokio::test(flavor = "multi_thread")]
async fn token_requests_are_answered_as_upstreams() {
    let cluster = start_with(ServerConfig {
        service_account_issuers: vec![ISSUER.to_owned()],
        ..config()
    })
    .await;
    let uids = world(&cluster).await;
    let cases: Vec<Value> = serde_json::from_str(include_str!("../testdata/token_requests.json")).unwrap();
    let mut differing = Vec::new();
    for case in &cases {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "metadata": case["metadata"], "spec": case["spec"]});
        let account = case["account"].as_str().unwrap();
        let path = format!("{NAMESPACE}/serviceaccounts/{account}/token");
        let answer = cluster.admin().post(&path, uids.ours(&body.to_string())).await;
        let (code, body) = (answer.code.as_u16(), answer.json());
        let found = if code == 201 {
            let token = body["status"]["token"].as_str().unwrap();
            json!({"code": code, "answer": uids.recorded(&shown(&body)), "claims": uids.recorded(&claims(token))})
        } else {
            let body = uids.recorded(&body);
            json!({"code": code, "reason": body["reason"], "message": body["message"], "details": body["details"]})
        };
        for (member, found) in found.as_object().unwrap() {
            if *found != case[member] {
                let what = &case["case"];
                differing.push(format!(
                    "{what} {member}\n  upstream: {}\n  ours:     {found}",
                    case[member]
                ));
            }
        }
    }
    assert_eq!(cases.len(), 54);
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// Upstream: `TokenREST.Create` (pkg/registry/core/serviceaccount/storage/token.go).
#[track_caller]
fn check_lifetime(answer: &Answer, spec: i64, lives: i64, warns: Option<&str>) {
    let body = answer.json();
    assert_eq!(body["spec"]["expirationSeconds"], spec);
    let claims = claims(body["status"]["token"].as_str().unwrap());
    assert_eq!(claims["lives"], lives);
    let warning = answer.headers.get("warning").map(|own| own.to_str().unwrap());
    assert_eq!(warning, warns);
}

async fn token(cluster: &Cluster, seconds: i64, pod: Option<&str>) -> Answer {
    let bound = pod.map(|name| json!({"apiVersion": "v1", "kind": "Pod", "name": name}));
    let spec = json!({"expirationSeconds": seconds, "boundObjectRef": bound});
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let path = format!("{NAMESPACE}/serviceaccounts/sa/token");
    cluster.admin().post(&path, body.to_string()).await.is(201)
}

#[tokio::test(flavor = "multi_thread")]
async fn token_lifetimes_have_a_maximum() {
    let cluster = start_with(ServerConfig {
        service_account_max_token_expiration: Duration::from_secs(7_200),
        ..config()
    })
    .await;
    world(&cluster).await;
    check_lifetime(&token(&cluster, 7_200, None).await, 7_200, 7_200, None);
    let shortened = "299 - \"requested expiration of 7201 seconds shortened to 7200 seconds\"";
    check_lifetime(&token(&cluster, 7_201, None).await, 7_200, 7_200, Some(shortened));
    // What admission requests for pods is extended whatever the maximum is.
    check_lifetime(
        &token(&cluster, 3_607, Some("bound")).await,
        3_607,
        31_536_000,
        None,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn token_lifetimes_are_not_extended_where_that_is_off() {
    let cluster = start_with(ServerConfig {
        service_account_extend_token_expiration: false,
        ..config()
    })
    .await;
    world(&cluster).await;
    check_lifetime(&token(&cluster, 3_607, Some("bound")).await, 3_607, 3_607, None);
}

#[test]
fn token_lifetimes_below_an_hour_are_refused() {
    let refused = |seconds: u64| {
        let config = ServerConfig {
            service_account_max_token_expiration: Duration::from_secs(seconds),
            ..config()
        };
        config.check().is_err()
    };
    let expected = [false, true, true, false, false, true];
    assert_eq!(
        [0, 1, 3_599, 3_600, 1 << 32, (1 << 32) + 1].map(refused),
        expected
    );
}
