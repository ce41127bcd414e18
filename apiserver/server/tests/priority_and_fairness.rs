//! FlowSchemas and PriorityLevelConfigurations decide which requests are executed, as soon as they are stored.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_auth::pki::Identity;
use bytes::Bytes;
use common::{Answer, Cluster, start};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use std::time::Duration;

const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SCHEMA_UID: &str = "x-kubernetes-pf-flowschema-uid";
const LEVEL_UID: &str = "x-kubernetes-pf-prioritylevel-uid";

fn anna(cluster: &Cluster) -> Identity {
    let authority = &cluster.server.pki().cluster;
    authority
        .client("anna", Some("people"), cluster.runtime.now())
        .unwrap()
}

async fn uid(cluster: &Cluster, path: String) -> Value {
    cluster.admin().get(&path).await.is(200).json()["metadata"]["uid"].clone()
}

/// Asks again until the answer is right.
async fn until(
    cluster: &Cluster,
    identity: &Identity,
    path: &str,
    is_right: impl Fn(&Answer) -> bool,
) -> Answer {
    loop {
        let answer = cluster.as_identity(identity).get(path).await;
        if is_right(&answer) {
            return answer;
        }
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
}

fn level(name: &str, shares: u32) -> String {
    let queuing = json!({"queues": 2, "handSize": 1, "queueLengthLimit": 5});
    let response = json!({"type": "Queue", "queuing": queuing});
    let limited =
        json!({"nominalConcurrencyShares": shares, "borrowingLimitPercent": 0, "limitResponse": response});
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name}, "spec": {"type": "Limited", "limited": limited},
    })
    .to_string()
}

fn schema(name: &str, level: &str, user: &str) -> String {
    let rule = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true});
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": 50,
            "rules": [{"subjects": [{"kind": "User", "user": {"name": user}}], "resourceRules": [rule]}],
        },
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn priority_and_fairness_classifies_by_stored_objects() {
    let cluster = start().await;
    let listed = cluster.admin().get(CONFIG_MAPS).await.is(200);
    assert_eq!(
        listed.headers[SCHEMA_UID],
        uid(&cluster, format!("{SCHEMAS}/exempt")).await.as_str().unwrap()
    );
    assert_eq!(
        listed.headers[LEVEL_UID],
        uid(&cluster, format!("{LEVELS}/exempt")).await.as_str().unwrap()
    );
    let anna = anna(&cluster);
    let of_rest = uid(&cluster, format!("{SCHEMAS}/global-default")).await;
    let refused = cluster.as_identity(&anna).get(CONFIG_MAPS).await.is(403);
    assert_eq!(refused.headers[SCHEMA_UID], of_rest.as_str().unwrap());
    cluster.admin().post(LEVELS, level("own", 10)).await.is(201);
    cluster
        .admin()
        .post(SCHEMAS, schema("own", "own", "anna"))
        .await
        .is(201);
    let own = uid(&cluster, format!("{SCHEMAS}/own")).await;
    let is_own = |answer: &Answer| answer.headers[SCHEMA_UID] == *own.as_str().unwrap();
    let answer = until(&cluster, &anna, CONFIG_MAPS, is_own).await;
    assert_eq!(
        answer.headers[LEVEL_UID],
        uid(&cluster, format!("{LEVELS}/own")).await.as_str().unwrap()
    );
    // Without its level a schema is dangling, and no schema.
    let own_level = format!("{LEVELS}/own");
    cluster
        .admin()
        .send(Method::DELETE, &own_level, Bytes::new())
        .await
        .is(200);
    until(&cluster, &anna, CONFIG_MAPS, |answer| {
        answer.headers[SCHEMA_UID] == *of_rest.as_str().unwrap()
    })
    .await;
    let dangling = |answer: &Answer| answer.json()["status"]["conditions"][0]["status"] == "True";
    until(&cluster, &cluster.admin, &format!("{SCHEMAS}/own"), dangling).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn priority_and_fairness_rejects_what_has_no_seats() {
    let cluster = start().await;
    let anna = anna(&cluster);
    // Before the jail exists: through `global-default`, whose queue counts this request.
    cluster.as_identity(&anna).get(CONFIG_MAPS).await;
    cluster.admin().post(LEVELS, level("jail", 0)).await.is(201);
    cluster
        .admin()
        .post(SCHEMAS, schema("jail", "jail", "anna"))
        .await
        .is(201);
    let path = format!("{CONFIG_MAPS}?timeout=400ms");
    let rejected = until(&cluster, &anna, &path, |answer| answer.code == 429).await;
    assert_eq!(rejected.body, "Too many requests, please try again later.\n");
    assert_eq!(rejected.headers["retry-after"], "1");
    assert_eq!(
        rejected.headers[SCHEMA_UID],
        uid(&cluster, format!("{SCHEMAS}/jail")).await.as_str().unwrap()
    );
    let metrics = cluster.admin().get("/metrics").await.is(200).body;
    let told = "apiserver_flowcontrol_rejected_requests_total{flow_schema=\"jail\",priority_level=\"jail\",reason=\"time-out\"} 1";
    assert!(metrics.contains(told), "{metrics}");
    // As upstream: what waits in vain counts as executed, and a new request is counted in the queue even where none waits.
    let waited = "apiserver_flowcontrol_request_wait_duration_seconds_count{execute=\"true\",flow_schema=\"jail\",priority_level=\"jail\"} 1";
    assert!(metrics.contains(waited), "{metrics}");
    let length =
        "apiserver_flowcontrol_request_queue_length_after_enqueue_sum{flow_schema=\"global-default\"";
    let length = metrics.lines().find(|line| line.starts_with(length)).unwrap();
    assert!(!length.ends_with(" 0"), "{length}");
    let terminated = "apiserver_request_terminations_total{code=\"429\",";
    assert!(metrics.contains(terminated), "{metrics}");
    let nominal = "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"workload-low\"} 245";
    assert!(metrics.contains(nominal), "{metrics}");
    let levels = cluster
        .admin()
        .get("/debug/api_priority_and_fairness/dump_priority_levels")
        .await
        .is(200)
        .body;
    let row = levels.lines().find(|line| line.starts_with("jail, ")).unwrap();
    assert!(row.split_whitespace().nth(8) == Some("1,"), "timed out: {row}");
    for path in [
        "dump_queues",
        "dump_requests",
        "dump_requests?includeRequestDetails=1",
    ] {
        let dump = cluster
            .admin()
            .get(&format!("/debug/api_priority_and_fairness/{path}"))
            .await
            .is(200);
        assert!(dump.body.starts_with("PriorityLevelName, "), "{}", dump.body);
    }
    cluster
        .as_identity(&anna)
        .get("/debug/api_priority_and_fairness/dump_queues")
        .await
        .is(403);
}

async fn patch(cluster: &Cluster, path: &str, patch: Value) {
    let ask = cluster
        .admin()
        .header("content-type", "application/merge-patch+json");
    ask.send(Method::PATCH, path, Bytes::from(patch.to_string()))
        .await
        .is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn priority_and_fairness_keeps_its_bootstrap_objects() {
    let cluster = start().await;
    let admin = &cluster.admin;
    let (probes, rest) = (format!("{SCHEMAS}/probes"), format!("{LEVELS}/global-default"));
    let before = uid(&cluster, probes.clone()).await;
    cluster
        .admin()
        .send(Method::DELETE, &probes, Bytes::new())
        .await
        .is(200);
    until(&cluster, admin, &probes, |answer| {
        answer.code == 200 && answer.json()["metadata"]["uid"] != before
    })
    .await;
    let shares = |answer: &Answer| answer.json()["spec"]["limited"]["nominalConcurrencyShares"].clone();
    let seven = json!({"spec": {"limited": {"nominalConcurrencyShares": 7}}});
    patch(&cluster, &rest, seven.clone()).await;
    until(&cluster, admin, &rest, |answer| shares(answer) == 20).await;
    // An owner who wants it otherwise says so.
    patch(
        &cluster,
        &rest,
        json!({"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}}}),
    )
    .await;
    patch(&cluster, &rest, seven).await;
    cluster
        .admin()
        .send(Method::DELETE, &probes, Bytes::new())
        .await
        .is(200);
    until(&cluster, admin, &probes, |answer| answer.code == 200).await;
    assert_eq!(shares(&cluster.admin().get(&rest).await), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn priority_and_fairness_tells_utilisation() {
    let cluster = start().await;
    let anna = anna(&cluster);
    cluster.as_identity(&anna).get(CONFIG_MAPS).await.is(403);
    let text = cluster.admin().get("/metrics").await.is(200).body;
    let expected = [
        "priority_level_seat_utilization_bucket{phase=\"executing\",priority_level=\"global-default\",le=\"0.95\"}",
        "priority_level_request_utilization_bucket{phase=\"waiting\",priority_level=\"exempt\",le=\"0.001\"}",
        "priority_level_request_utilization_sum{phase=\"executing\",priority_level=\"global-default\"}",
        "demand_seats_bucket{priority_level=\"global-default\",le=\"2.8\"}",
        "read_vs_write_current_requests_count{phase=\"waiting\",request_kind=\"mutating\"}",
        "read_vs_write_current_requests_sum{phase=\"executing\",request_kind=\"readOnly\"}",
    ];
    for name in expected {
        let start = format!("apiserver_flowcontrol_{name} ");
        let line = text.lines().find(|line| line.starts_with(&start));
        let value: f64 = line
            .unwrap_or_else(|| panic!("{start}"))
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        // The scrape itself is in execution, and the refused list was.
        assert!(value > 0.0, "{name}");
    }
    let unstable = "# HELP apiserver_flowcontrol_demand_seats [ALPHA] Observations";
    assert!(text.contains(unstable), "{text}");
    let unaccommodated = "apiserver_flowcontrol_request_dispatch_no_accommodation_total{flow_schema=";
    assert!(text.contains(unaccommodated), "{text}");
}

/// Requests of administrators are served, whatever objects an administrator stores.
#[tokio::test(flavor = "multi_thread")]
async fn priority_and_fairness_takes_nothing_that_locks_administrators_out() {
    let cluster = start().await;
    let admin = || cluster.admin();
    admin().post(LEVELS, level("jail", 0)).await.is(201);
    let mut kept: Value = serde_json::from_str(&level("kept", 0)).unwrap();
    let annotation = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
    kept["metadata"]["annotations"] = json!({annotation: ""});
    let refused = admin().post(LEVELS, kept.to_string()).await.is(422).json();
    let words = format!("Forbidden: annotation '{annotation}' is forbidden");
    assert_eq!(refused["details"]["causes"][0]["message"], words.as_str());
    assert_eq!(refused["details"]["causes"][0]["field"], "metadata.annotations");
    let masters = json!([{"kind": "Group", "group": {"name": "system:masters"}}]);
    let jail = |name: &str, precedence: i32| {
        let mut schema: Value = serde_json::from_str(&schema(name, "jail", "x")).unwrap();
        schema["spec"]["matchingPrecedence"] = precedence.into();
        schema["spec"]["rules"][0]["subjects"] = masters.clone();
        schema.to_string()
    };
    let refused = admin().post(SCHEMAS, jail("aaa", 1)).await.is(422);
    let cause = &refused.json()["details"]["causes"][0]["message"];
    let words = "only the schema named 'exempt' may have matchingPrecedence 1";
    assert!(cause.as_str().unwrap().ends_with(words), "{cause}");
    // The next best place is behind `exempt`.
    admin().post(SCHEMAS, jail("aaa", 2)).await.is(201);
    for (path, value) in [
        ("priorityLevelConfiguration", json!({"name": "jail"})),
        ("rules", json!([])),
    ] {
        let change = json!({"spec": {path: value}}).to_string();
        let changed = admin()
            .header("content-type", "application/merge-patch+json")
            .send(Method::PATCH, &format!("{SCHEMAS}/exempt"), Bytes::from(change))
            .await;
        changed.is(422);
    }
    let limited = json!({"spec": {"type": "Limited", "exempt": null,
        "limited": {"nominalConcurrencyShares": 0, "limitResponse": {"type": "Reject"}}}});
    let changed = admin()
        .header("content-type", "application/merge-patch+json")
        .send(
            Method::PATCH,
            &format!("{LEVELS}/exempt"),
            Bytes::from(limited.to_string()),
        )
        .await;
    changed.is(422);
    admin().get("/readyz").await.is(200);
    admin().get(CONFIG_MAPS).await.is(200);
}

/// Watches on one connection of HTTP/2 whose client lets nothing be sent but the heads of the answers.
async fn unread_watches(
    cluster: &Cluster,
    identity: &Identity,
    count: usize,
) -> (http2::SendRequest<Full<Bytes>>, Vec<http::Response<Incoming>>) {
    let stream = TokioIo::new(cluster.connect(Some(identity)).await);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(0);
    let (mut sender, connection) = builder.handshake(stream).await.unwrap();
    cluster.runtime.spawn("test-connection", connection).detach();
    let mut answers = Vec::new();
    for _ in 0..count {
        let ask = Request::builder().uri(format!("https://x{CONFIG_MAPS}?watch=1"));
        let answer = sender.send_request(ask.body(Full::default()).unwrap()).await;
        answers.push(answer.unwrap());
    }
    (sender, answers)
}

#[tokio::test(flavor = "multi_thread")]
async fn priority_and_fairness_keeps_no_seats_for_watches_that_nobody_reads() {
    let cluster = start().await;
    let anna = anna(&cluster);
    let binding = json!({
        "metadata": {"name": "anna"}, "subjects": [{"kind": "User", "name": "anna"}],
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"},
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    cluster.admin().post(bindings, binding.to_string()).await.is(201);
    let map = json!({"metadata": {"name": "shown"}, "data": {"x": "y"}});
    cluster.admin().post(CONFIG_MAPS, map.to_string()).await.is(201);
    until(&cluster, &anna, CONFIG_MAPS, |answer| answer.code == 200).await;
    let (_connection, watches) = unread_watches(&cluster, &anna, 20).await;
    assert!(watches.iter().all(|answer| answer.status() == StatusCode::OK));
    let metrics = cluster.admin().get("/metrics").await.is(200).body;
    let seats = "apiserver_flowcontrol_current_executing_seats{flow_schema=\"global-default\",priority_level=\"global-default\"} 0";
    assert!(metrics.contains(seats), "{metrics}");
    cluster.as_identity(&anna).get(CONFIG_MAPS).await.is(200);
}
