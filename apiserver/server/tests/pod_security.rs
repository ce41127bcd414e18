//! PodSecurity from request to answer: refusals, warnings, annotations of the audit log, metrics and configuration.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_server::{AuditLogConfig, ServerConfig};
use bytes::Bytes;
use common::{Answer, Cluster, config, start, start_with};
use http::Method;
use serde_json::{Value, json};

const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const PREFIX: &str = "pod-security.kubernetes.io";

fn warnings(answer: &Answer) -> Vec<String> {
    let own = answer.headers.get_all("warning").iter();
    let text = |own: &http::HeaderValue| {
        let text = own.to_str().unwrap().strip_prefix("299 - \"").unwrap();
        text.strip_suffix('"').unwrap().replace("\\\"", "\"")
    };
    own.map(text).collect()
}

/// A namespace with the account that pods need.
async fn namespace(cluster: &Cluster, name: &str, labels: Value) -> Answer {
    let labels: serde_json::Map<String, Value> = labels
        .as_object()
        .unwrap()
        .iter()
        .map(|(mode, level)| (format!("{PREFIX}/{mode}"), level.clone()))
        .collect();
    let body = json!({"metadata": {"name": name, "labels": labels}}).to_string();
    let answer = cluster.admin().post("/api/v1/namespaces", body).await;
    let account = json!({"metadata": {"name": "default"}}).to_string();
    let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
    cluster.admin().post(&accounts, account).await;
    answer
}

async fn patch(cluster: &Cluster, form: &str, path: &str, body: Value) -> Answer {
    let ask = cluster.admin().header("content-type", form);
    ask.send(Method::PATCH, path, Bytes::from(body.to_string())).await
}

fn pod(name: &str, spec: Value) -> String {
    let mut spec = spec;
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "c", "image": "i"}]);
    }
    json!({"metadata": {"name": name}, "spec": spec}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_violate_are_refused_and_their_makers_warned() {
    let cluster = start().await;
    assert_eq!(
        warnings(
            &namespace(&cluster, "strict", json!({"enforce": "restricted"}))
                .await
                .is(201)
        ),
        [""; 0]
    );
    let pods = "/api/v1/namespaces/strict/pods";
    let why = "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";
    let refused = cluster
        .admin()
        .post(pods, pod("open", json!({})))
        .await
        .is(403)
        .json();
    assert_eq!(refused["reason"], "Forbidden");
    assert_eq!(
        refused["message"],
        format!("pods \"open\" is forbidden: violates PodSecurity \"restricted:latest\": {why}")
    );
    assert_eq!(refused["details"], json!({"name": "open", "kind": "pods"}));
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "open"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let deployments = "/apis/apps/v1/namespaces/strict/deployments";
    let made = cluster
        .admin()
        .post(deployments, deployment.to_string())
        .await
        .is(201);
    assert_eq!(
        warnings(&made),
        [format!("would violate PodSecurity \"restricted:latest\": {why}")]
    );
    let closed = json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": "i", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]});
    let made = cluster.admin().post(pods, pod("closed", closed)).await.is(201);
    assert_eq!(warnings(&made), [""; 0]);
    let debugger = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "i"}]}});
    let path = format!("{pods}/closed/ephemeralcontainers");
    let refused = patch(&cluster, STRATEGIC_PATCH, &path, debugger)
        .await
        .is(403)
        .json();
    let message = refused["message"].as_str().unwrap();
    assert!(message.starts_with("pods \"closed\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \"debug\""), "{message}");
    // What does not change an image passes, whatever the namespace requests by now.
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    patch(&cluster, MERGE_PATCH, &format!("{pods}/closed"), labels)
        .await
        .is(200);
    let metrics = cluster.admin().get("/metrics").await.is(200).body;
    let denied = "pod_security_evaluations_total{decision=\"deny\",mode=\"enforce\",policy_level=\"restricted\",policy_version=\"latest\",request_operation=\"create\",resource=\"pod\",subresource=\"\"} 1\n";
    assert!(metrics.contains(denied), "{metrics}");
    let of_debuggers =
        "request_operation=\"update\",resource=\"pod\",subresource=\"ephemeralcontainers\"} 1\n";
    assert!(metrics.contains(of_debuggers), "{metrics}");
    let exempt =
        "pod_security_exemptions_total{request_operation=\"create\",resource=\"pod\",subresource=\"\"} 0\n";
    assert!(metrics.contains(exempt), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_are_told_of_wrong_labels_and_of_pods_that_are_there() {
    let cluster = start().await;
    let refused = namespace(
        &cluster,
        "odd",
        json!({"enforce": "secret", "warn-version": "1.2"}),
    )
    .await
    .is(422)
    .json();
    let invalid = |label: &str, value: &str, why: &str| {
        format!("metadata.labels[{PREFIX}/{label}]: Invalid value: \"{value}\": {why}")
    };
    let level = invalid(
        "enforce",
        "secret",
        "must be one of privileged, baseline, restricted",
    );
    let version = invalid("warn-version", "1.2", "must be \"latest\" or \"v1.x\"");
    assert_eq!(
        refused["message"],
        format!("Namespace \"odd\" is invalid: [{level}, {version}]")
    );
    assert_eq!(refused["details"]["causes"].as_array().unwrap().len(), 2);
    namespace(&cluster, "web", json!({})).await.is(201);
    let pods = "/api/v1/namespaces/web/pods";
    for (name, spec) in [
        ("first", json!({"hostNetwork": true})),
        ("second", json!({"hostNetwork": true})),
        (
            "third",
            json!({"hostPID": true, "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
        ),
        ("fourth", json!({})),
    ] {
        cluster.admin().post(pods, pod(name, spec)).await.is(201);
    }
    let label = |level: Value| json!({"metadata": {"labels": {(format!("{PREFIX}/enforce")): level}}});
    let path = "/api/v1/namespaces/web";
    let told = patch(&cluster, MERGE_PATCH, path, label("baseline".into()))
        .await
        .is(200);
    let expected = [
        "existing pods in namespace \"web\" violate the new PodSecurity enforce level \"baseline:latest\"",
        "first (and 1 other pod): host namespaces",
        "third: host namespaces, hostPath volumes",
    ];
    assert_eq!(warnings(&told), expected);
    let relaxed = patch(&cluster, MERGE_PATCH, path, label("privileged".into()))
        .await
        .is(200);
    assert_eq!(warnings(&relaxed), [""; 0]);
    patch(&cluster, MERGE_PATCH, path, label("secret".into()))
        .await
        .is(422);
}

const CONFIGURATION: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, audit: restricted, audit-version: v1.30}
    exemptions: {namespaces: [free]}
";

#[tokio::test(flavor = "multi_thread")]
async fn pods_meet_the_configured_standards_and_the_audit_log_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (file, log) = (
        folder.path().join("admission.yaml"),
        folder.path().join("audit.log"),
    );
    std::fs::write(&file, CONFIGURATION).unwrap();
    let cluster = start_with(ServerConfig {
        admission_control_config_file: Some(file),
        audit_log: Some(AuditLogConfig::new(log.clone())),
        ..config()
    })
    .await;
    namespace(&cluster, "web", json!({})).await.is(201);
    let told = namespace(&cluster, "free", json!({"enforce": "restricted"}))
        .await
        .is(201);
    let ignored = "namespace \"free\" is exempt from Pod Security, and the policy (enforce=restricted:latest) will be ignored";
    assert_eq!(warnings(&told), [ignored]);
    let host = || json!({"hostNetwork": true});
    let web = "/api/v1/namespaces/web/pods";
    let refused = cluster
        .admin()
        .post(web, pod("host", host()))
        .await
        .is(403)
        .json();
    let why = "host namespaces (hostNetwork=true)";
    assert_eq!(
        refused["message"],
        format!("pods \"host\" is forbidden: violates PodSecurity \"baseline:latest\": {why}")
    );
    cluster.admin().post(web, pod("plain", json!({}))).await.is(201);
    cluster
        .admin()
        .post("/api/v1/namespaces/free/pods", pod("free", host()))
        .await
        .is(201);
    // The answer comes after the last line of its request.
    let text = std::fs::read_to_string(&log).unwrap();
    let annotations = |name: &str| -> Value {
        let events = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut own = events.filter(|event| {
            event["objectRef"]["resource"] == "pods"
                && event["requestURI"].as_str().unwrap().contains("/pods")
                && event["stage"] == "ResponseComplete"
                && event["objectRef"]["name"] == name
        });
        own.next().unwrap_or_else(|| panic!("{name} is not in {text}"))["annotations"].clone()
    };
    let of = |name: &str, key: &str| annotations(name)[format!("{PREFIX}/{key}")].clone();
    assert_eq!(of("host", "enforce-policy"), "baseline:latest");
    let violations = of("host", "audit-violations");
    assert!(
        violations.as_str().unwrap().starts_with(&format!(
            "would violate PodSecurity \"restricted:v1.30\": {why}, allow"
        )),
        "{violations}"
    );
    assert_eq!(of("plain", "enforce-policy"), "baseline:latest");
    assert!(of("plain", "audit-violations").is_string());
    assert_eq!(of("free", "exempt"), "namespace");
    assert_eq!(of("free", "enforce-policy"), Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_not_checked_where_the_plugin_is_disabled() {
    let cluster = start_with(ServerConfig {
        disable_admission_plugins: vec!["PodSecurity".to_owned()],
        ..config()
    })
    .await;
    namespace(
        &cluster,
        "strict",
        json!({"enforce": "restricted", "warn": "not-a-level"}),
    )
    .await
    .is(201);
    let pods = "/api/v1/namespaces/strict/pods";
    cluster
        .admin()
        .post(pods, pod("open", json!({"hostNetwork": true})))
        .await
        .is(201);
}
