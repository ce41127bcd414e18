//! `/metrics` beside upstream's families, and the labels under which requests are counted.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use bytes::Bytes;
use common::{Cluster, start};
use http::Method;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A family as it is served.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
    buckets: Vec<f64>,
}

fn families(text: &str) -> BTreeMap<String, Family> {
    let mut found: BTreeMap<String, Family> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        let mut parts = line.splitn(4, ' ');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("#"), Some("HELP"), Some(own), help) => {
                found.entry(own.into()).or_default().help = help.unwrap_or_default().into();
            }
            (Some("#"), Some("TYPE"), Some(own), kind) => {
                name = own.into();
                found.entry(own.into()).or_default().kind = kind.unwrap_or_default().into();
            }
            _ => read_sample(line, found.entry(name.clone()).or_default()),
        }
    }
    found
}

fn read_sample(line: &str, family: &mut Family) {
    let Some((_, labels)) = line.split_once('{') else {
        return;
    };
    let Some((labels, _)) = labels.rsplit_once('}') else {
        return;
    };
    for label in labels.split("\",") {
        let (name, value) = label.split_once("=\"").unwrap();
        if name != "le" {
            family.labels.insert(name.to_owned());
        } else if let Ok(bound) = value.trim_matches('"').parse::<f64>()
            && bound.is_finite()
            && family.buckets.last().is_none_or(|last| *last < bound)
        {
            family.buckets.push(bound);
        }
    }
}

async fn metrics(cluster: &Cluster) -> String {
    cluster.admin().get("/metrics").await.is(200).body
}

/// The value of the one sample that has all these parts.
fn sample(text: &str, parts: &[&str]) -> Option<f64> {
    let mut lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && parts.iter().all(|part| line.contains(part)));
    let found = lines.next()?;
    assert_eq!(lines.next(), None, "{parts:?}");
    found.rsplit_once(' ')?.1.parse().ok()
}

async fn ask(cluster: &Cluster, method: Method, path: &str, form: &'static str, body: &str) -> u16 {
    let ask = cluster.admin();
    let ask = match form {
        "" => ask,
        form => ask.header("content-type", form),
    };
    ask.send(method, path, Bytes::from(body.to_owned()))
        .await
        .code
        .as_u16()
}

async fn make_map(cluster: &Cluster, name: &str) {
    let body = json!({"metadata": {"name": name}}).to_string();
    cluster.admin().post(MAPS, body).await.is(201);
}

/// Makes one sample of each family.
async fn exercise(cluster: &Cluster) {
    make_map(cluster, "a").await;
    cluster.admin().get(&format!("{MAPS}?limit=1")).await.is(200);
    cluster
        .admin()
        .get(&format!("{MAPS}?watch=1&timeoutSeconds=1"))
        .await
        .is(200);
    cluster.admin().get("/api/v1/componentstatuses").await.is(200);
    cluster.nobody().token("nonsense").get(MAPS).await.is(401);
    cluster.nobody().get(MAPS).await.is(403);
}

#[tokio::test(flavor = "multi_thread")]
async fn metric_families_are_upstreams() {
    let cluster = start().await;
    exercise(&cluster).await;
    // The count of objects begins with the server; a long-running request is one that goes on.
    let watch = format!("GET {MAPS}?watch=1 HTTP/1.1\r\nhost: x\r\n\r\n");
    let _watching = cluster.sent(watch).await;
    let _sending = cluster.sent(without_body()).await;
    let mut text = metrics(&cluster).await;
    let late = [
        "apiserver_resource_objects{",
        "apiserver_longrunning_requests{",
        "apiserver_request_terminations_total{",
    ];
    while !late.iter().all(|family| text.contains(family)) {
        cluster.runtime.sleep(std::time::Duration::from_millis(5)).await;
        text = metrics(&cluster).await;
    }
    let found = families(&text);
    let mut differing = Vec::new();
    let mut compared = 0;
    for line in include_str!("../testdata/metrics.tsv").lines() {
        let [name, kind, labels, buckets, stability, help] = line.split('\t').collect::<Vec<_>>()[..] else {
            continue;
        };
        compared += 1;
        let Some(own) = found.get(name) else {
            differing.push(format!("{name} is absent"));
            continue;
        };
        let of_upstream = Family {
            kind: kind.to_owned(),
            help: format!("[{stability}] {help}"),
            labels: labels
                .split(',')
                .filter(|own| !own.is_empty())
                .map(str::to_owned)
                .collect(),
            buckets: buckets.split(',').filter_map(|own| own.parse().ok()).collect(),
        };
        if format!("{own:?}") != format!("{of_upstream:?}") {
            differing.push(format!(
                "{name}\n  upstream: {of_upstream:?}\n  ours:     {own:?}"
            ));
        }
    }
    assert!(compared > 20);
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// A create whose body does not come within its time.
fn without_body() -> String {
    format!(
        "POST {MAPS}?timeout=100ms HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn request_terminations_are_those_of_filters() {
    let cluster = start().await;
    // A handler's own answer, after it has waited for the revision.
    let late = format!("{MAPS}?resourceVersion=999999999&resourceVersionMatch=NotOlderThan");
    cluster.admin().get(&late).await.is(504);
    let family = "apiserver_request_terminations_total{";
    assert!(!metrics(&cluster).await.contains(family));
    let _sending = cluster.sent(without_body()).await;
    let labels = [family, "code=\"504\"", "resource=\"configmaps\"", "verb=\"POST\""];
    while sample(&metrics(&cluster).await, &labels) != Some(1.0) {
        cluster.runtime.sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn admission_counts_plugins_by_operation_whatever_the_resource() {
    let cluster = start().await;
    make_map(&cluster, "a").await;
    let text = metrics(&cluster).await;
    let count = |name: &str, operation: &str, step: &str| {
        let parts = [
            "apiserver_admission_controller_admission_duration_seconds_count{",
            &format!("name=\"{name}\""),
            &format!("operation=\"{operation}\""),
            &format!("type=\"{step}\""),
        ];
        text.lines()
            .any(|line| parts.iter().all(|part| line.contains(part)))
    };
    for (name, admits, validates) in [
        ("NamespaceLifecycle", true, false),
        ("ServiceAccount", true, true),
        ("NodeRestriction", true, false),
        ("TaintNodesByCondition", true, false),
        ("Priority", true, true),
        ("DefaultTolerationSeconds", true, false),
        ("StorageObjectInUseProtection", true, false),
        ("RuntimeClass", true, true),
        ("PodTopologyLabels", true, false),
        ("DenyServiceExternalIPs", false, true),
    ] {
        assert_eq!(count(name, "CREATE", "admit"), admits, "{name}");
        assert_eq!(count(name, "CREATE", "validate"), validates, "{name}");
        assert!(!count(name, "CONNECT", "admit"), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_timed_by_their_field_validation() {
    let cluster = start().await;
    for (name, query, label) in [
        ("a", "", ""),
        ("b", "?fieldValidation=Strict", "Strict"),
        ("c", "?fieldValidation=Warn&fieldValidation=Warn", "invalid"),
    ] {
        let counted =
            format!("field_validation_request_duration_seconds_count{{field_validation=\"{label}\"}} ");
        let before = sample(&metrics(&cluster).await, &[&counted]).unwrap_or_default();
        let body = json!({"metadata": {"name": name}}).to_string();
        drop(cluster.admin().post(&format!("{MAPS}{query}"), body).await);
        assert!(
            sample(&metrics(&cluster).await, &[&counted]) > Some(before),
            "{query}"
        );
    }
}

/// Method, address, media type, body; the labels of the request's counter, and its code.
type Counted = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

#[rustfmt::skip]
const COUNTED: [Counted; 14] = [
    ("POST", MAPS, "application/json", r#"{"metadata":{"name":"b"}}"#, r#"code="201",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="POST",version="v1""#),
    ("POST", "/api/v1/namespaces/default/configmaps?dryRun=All&dryRun=All", "application/json", r#"{"metadata":{"name":"c"}}"#, r#"code="201",component="apiserver",dry_run="All",group="",resource="configmaps",scope="resource",subresource="",verb="POST",version="v1""#),
    ("POST", "/api/v1/namespaces/default/configmaps?dryRun=Some", "application/json", r#"{"metadata":{"name":"c"}}"#, r#"code="422",component="apiserver",dry_run="invalid",group="",resource="configmaps",scope="resource",subresource="",verb="POST",version="v1""#),
    ("GET", MAPS, "", "", r#"code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="namespace",subresource="",verb="LIST",version="v1""#),
    ("GET", "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Db", "", "", r#"code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="namespace",subresource="",verb="LIST",version="v1""#),
    ("GET", "/api/v1/configmaps", "", "", r#"code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="cluster",subresource="",verb="LIST",version="v1""#),
    ("GET", "/api/v1/namespaces/default/configmaps/b", "", "", r#"code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="GET",version="v1""#),
    ("GET", "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1", "", "", r#"code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="namespace",subresource="",verb="WATCH",version="v1""#),
    ("PATCH", "/api/v1/namespaces/default/configmaps/b?fieldManager=m", "application/apply-patch+yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n", r#"code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="APPLY",version="v1""#),
    ("PATCH", "/api/v1/namespaces/default/configmaps/b", "application/merge-patch+json", "{}", r#"code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="PATCH",version="v1""#),
    ("GET", "/api/v1/namespaces/default/pods/none/log", "", "", r#"code="404",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="log",verb="CONNECT",version="v1""#),
    ("POST", "/api/v1/namespaces/default/pods/none/exec?command=ls", "", "", r#"code="404",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="exec",verb="CONNECT",version="v1""#),
    ("DELETE", MAPS, "", "", r#"code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="namespace",subresource="",verb="DELETE",version="v1""#),
    ("GET", "/readyz", "", "", r#"code="200",component="",dry_run="",group="",resource="",scope="",subresource="/readyz",verb="GET",version="""#),
];

#[tokio::test(flavor = "multi_thread")]
async fn request_labels_are_upstreams() {
    let cluster = start().await;
    for (method, path, form, body, labels) in COUNTED {
        let counter = format!("apiserver_request_total{{{labels}}} ");
        let before = sample(&metrics(&cluster).await, &[&counter]).unwrap_or(0.0);
        let code = ask(&cluster, method.parse().unwrap(), path, form, body).await;
        assert!(
            labels.contains(&format!("code=\"{code}\"")),
            "{method} {path}: {code}"
        );
        // A stream is counted when its body is dropped, which may be after the client has read it.
        let mut text = metrics(&cluster).await;
        let watches = labels.contains("WATCH");
        while watches && sample(&text, &[&counter]).is_none() {
            cluster.runtime.sleep(std::time::Duration::from_millis(5)).await;
            text = metrics(&cluster).await;
        }
        let after = sample(&text, &[&counter]);
        assert!(
            after.is_some_and(|after| after > before),
            "{method} {path}: {before} {after:?}"
        );
        let timed = labels.split_once(',').unwrap().1;
        let timed = format!("apiserver_request_duration_seconds_count{{{timed}}} ");
        assert!(sample(&text, &[&timed]) >= after, "{timed}");
        // A dry run's labels are those of another request.
        if labels.contains("dry_run=\"\"") {
            let objective = timed
                .replace("apiserver_request_duration", "apiserver_request_sli_duration")
                .replace("dry_run=\"\",", "");
            let is_there = sample(&text, &[&objective]).is_some();
            assert_eq!(is_there, !watches, "{objective}");
        }
    }
}

/// Requests that a filter refuses, and those without a route, are not counted: clients cannot make series.
#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_route_are_not_counted() {
    let cluster = start().await;
    cluster.nobody().token("nonsense").get(MAPS).await.is(401);
    cluster.nobody().get("/apis/apps/v1/deployments").await.is(403);
    for (method, path) in [
        ("GET", "/apis/made.up/v1/things"),
        ("GET", "/api/v1/made-up"),
        ("GET", "/api/v1/namespaces/default/pods/x/made-up"),
        ("PUT", MAPS),
        ("OPTIONS", "/api/v1/namespaces/default/configmaps/x"),
        ("GET", "/made/up"),
    ] {
        ask(&cluster, method.parse().unwrap(), path, "application/json", "{}").await;
    }
    let one = format!("{MAPS}/x");
    assert_eq!(
        ask(&cluster, Method::PATCH, &one, "application/json", "{}").await,
        415
    );
    for path in [MAPS, &*one] {
        let image = cluster.admin().header("accept", "image/png").get(path);
        image.await.is(406);
    }
    let text = metrics(&cluster).await;
    for absent in [
        "made",
        "code=\"401\"",
        "code=\"403\"",
        "code=\"405\"",
        "code=\"406\"",
        "code=\"415\"",
        "resource=\"deployments\"",
    ] {
        let mut counted = text
            .lines()
            .filter(|line| line.starts_with("apiserver_request_total{"));
        let found = counted.find(|line| line.contains(absent) && line.contains("component=\"apiserver\""));
        assert_eq!(found, None, "{absent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_running_requests_of_watch_paths_are_lists_as_upstreams() {
    let cluster = start().await;
    let path = "/api/v1/watch/namespaces/default/configmaps";
    let watch = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    let _watching = cluster.sent(watch).await;
    let gauge = |verb: &str| {
        format!(
            "apiserver_longrunning_requests{{component=\"apiserver\",group=\"\",resource=\"configmaps\",scope=\"namespace\",subresource=\"\",verb=\"{verb}\",version=\"v1\"}} "
        )
    };
    while sample(&metrics(&cluster).await, &[&gauge("LIST")]) != Some(1.0) {
        cluster.runtime.sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(sample(&metrics(&cluster).await, &[&gauge("WATCH")]), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn authentication_metrics_tell_bad_credentials_from_none() {
    let cluster = start().await;
    let before = metrics(&cluster).await;
    let refused = r#"authentication_attempts{result="error"}"#;
    assert_eq!(sample(&before, &[refused]), None);
    cluster.nobody().token("nonsense").get("/version").await.is(401);
    cluster.nobody().get("/version").await.is(200);
    let after = metrics(&cluster).await;
    assert_eq!(sample(&after, &[refused]), Some(1.0));
    assert_eq!(
        sample(&after, &[r#"authentication_attempts{result="failure"}"#]),
        None
    );
    let timed = r#"authentication_duration_seconds_count{result="error"}"#;
    assert_eq!(sample(&after, &[timed]), Some(1.0));
    assert!(sample(&after, &[r#"authenticated_user_requests{username="admin"}"#]) >= Some(1.0));
    assert!(sample(&after, &[r#"authenticated_user_requests{username="other"}"#]) >= Some(1.0));
    assert!(sample(&after, &[r#"authorization_attempts_total{result="allowed"}"#]) >= Some(2.0));
    // What authentication refuses reaches no other filter.
    for (filter, more) in [
        ("authentication", 3.0),
        ("constrainedimpersonation", 2.0),
        ("priorityandfairness", 2.0),
        ("authorization", 2.0),
    ] {
        let count = format!("apiserver_request_filter_duration_seconds_count{{filter=\"{filter}\"}}");
        let counted = |text| sample(text, &[&count]).unwrap();
        assert_eq!(counted(&after) - counted(&before), more, "{filter}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn authentication_of_nobody_counts_as_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let file = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "anonymous": {"enabled": true, "conditions": [{"path": "/livez"}]}});
    std::fs::write(&path, file.to_string()).unwrap();
    let mut config = common::config();
    config.authentication.config_file = Some(path);
    let cluster = common::start_with(config).await;
    let attempts = async |result: &str| {
        let name = format!("authentication_attempts{{result=\"{result}\"}}");
        sample(&metrics(&cluster).await, &[&name]).unwrap_or_default()
    };
    let before = attempts("success").await;
    cluster.nobody().get("/livez").await.is(200);
    cluster.nobody().get("/version").await.is(401);
    assert_eq!(
        attempts("success").await - before,
        2.0,
        "those of the metrics' reader are one"
    );
    assert_eq!((attempts("failure").await, attempts("error").await), (1.0, 0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn response_sizes_and_watch_events_are_counted_in_bytes() {
    let cluster = start().await;
    make_map(&cluster, "a").await;
    let got = cluster.admin().get(&format!("{MAPS}/a")).await.is(200);
    let watch = cluster
        .admin()
        .get(&format!(
            "{MAPS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da"
        ))
        .await
        .is(200);
    let text = metrics(&cluster).await;
    let of_get = [
        "apiserver_response_sizes_sum{",
        "resource=\"configmaps\"",
        "verb=\"GET\"",
    ];
    let bytes = |answer: &common::Answer| Some(u32::try_from(answer.body.len()).unwrap().into());
    assert_eq!(sample(&text, &of_get), bytes(&got));
    let of_post = [
        "apiserver_response_sizes_sum{",
        "resource=\"configmaps\"",
        "verb=\"POST\"",
    ];
    assert_eq!(sample(&text, &of_post), None, "those of reads alone");
    let events = r#"apiserver_watch_events_total{group="",resource="configmaps",version="v1"}"#;
    assert_eq!(sample(&text, &[events]), Some(1.0));
    let sizes = r#"apiserver_watch_events_sizes_sum{group="",resource="configmaps",version="v1"}"#;
    assert_eq!(sample(&text, &[sizes]), bytes(&watch));
}

#[tokio::test(flavor = "multi_thread")]
async fn node_ports_are_counted_from_the_start() {
    let cluster = start().await;
    let gauge = |name: &str| format!("kube_apiserver_nodeport_allocator_{name}_ports ");
    while sample(&metrics(&cluster).await, &[&gauge("available")]) != Some(2768.0) {
        cluster.runtime.sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(
        sample(&metrics(&cluster).await, &[&gauge("allocated")]),
        Some(0.0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn request_bodies_are_counted_by_their_bytes() {
    let cluster = start().await;
    let body = r#"{"metadata":{"name":"sized"}}"#;
    cluster.admin().post(MAPS, body).await.is(201);
    let one = format!("{MAPS}/sized");
    ask(&cluster, Method::DELETE, &one, "application/json", "{}").await;
    let text = metrics(&cluster).await;
    for (verb, bytes) in [("create", body.len()), ("delete", 2)] {
        let labels = format!("{{group=\"\",resource=\"configmaps\",verb=\"{verb}\"}} ");
        let sum = sample(&text, &["apiserver_request_body_size_bytes_sum", &labels]);
        assert_eq!(sum, Some(u32::try_from(bytes).unwrap().into()), "{verb}");
    }
    for figure in [
        "process_virtual_memory_max_bytes ",
        "process_network_receive_bytes_total ",
        "process_network_transmit_bytes_total ",
    ] {
        assert!(sample(&text, &[figure]).is_some(), "{figure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_of_admission_count_a_delete_in_both_steps() {
    let cluster = start().await;
    make_map(&cluster, "a").await;
    let admin = || cluster.admin();
    let own = "/api/v1/namespaces/default/configmaps/a";
    admin().send(Method::DELETE, own, Bytes::new()).await.is(200);
    let protected = "/api/v1/namespaces/kube-system";
    admin()
        .send(Method::DELETE, protected, Bytes::new())
        .await
        .is(403);
    let text = metrics(&cluster).await;
    for (step, rejected, count) in [
        ("admit", "false", Some(1.0)),
        ("validate", "false", Some(1.0)),
        // Refused in the first, so that it never comes to the second.
        ("admit", "true", Some(1.0)),
        ("validate", "true", None),
    ] {
        let rest = format!("operation=\"DELETE\",rejected=\"{rejected}\",type=\"{step}\"");
        let steps = "apiserver_admission_step_admission_duration_seconds_count{";
        assert_eq!(sample(&text, &[steps, &rest]), count, "{rest}");
        let plugins =
            "apiserver_admission_controller_admission_duration_seconds_count{name=\"NamespaceLifecycle\"";
        let count = count.filter(|_| step == "admit");
        assert_eq!(sample(&text, &[plugins, &rest]), count, "{rest}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_reset_begins_counts_anew() {
    let cluster = start().await;
    make_map(&cluster, "a").await;
    let created = [
        "apiserver_request_total{",
        "resource=\"configmaps\"",
        "verb=\"POST\"",
    ];
    assert_eq!(sample(&metrics(&cluster).await, &created), Some(1.0));
    let admitted = "apiserver_admission_step_admission_duration_seconds_count{";
    assert!(metrics(&cluster).await.contains(admitted));
    let reset = cluster
        .admin()
        .send(Method::DELETE, "/metrics", Bytes::new())
        .await
        .is(200);
    assert_eq!(reset.body, "metrics reset\n");
    assert_eq!(reset.headers["content-type"], "text/plain; charset=utf-8");
    let text = metrics(&cluster).await;
    assert_eq!(sample(&text, &created), None);
    make_map(&cluster, "b").await;
    let text = metrics(&cluster).await;
    assert_eq!(
        sample(&text, &created),
        Some(1.0),
        "and what is kept at hand counts again"
    );
    let creates = [
        admitted,
        "operation=\"CREATE\"",
        "rejected=\"false\"",
        "type=\"admit\"",
    ];
    assert!(sample(&text, &creates) >= Some(1.0));
    cluster
        .nobody()
        .send(Method::DELETE, "/metrics", Bytes::new())
        .await
        .is(403);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_counted_with_what_they_read_and_return() {
    let cluster = start().await;
    for name in ["a", "b", "c"] {
        make_map(&cluster, name).await;
    }
    let ours = "resource=\"configmaps\"";
    let count = |text: &str, name: &str| {
        let family = format!("apiserver_storage_list_{name}{{");
        sample(text, &[&family, ours, "storage=\"watchcache\""]).unwrap_or(0.0)
    };
    let before = metrics(&cluster).await;
    cluster.admin().get(&format!("{MAPS}?limit=2")).await.is(200);
    cluster
        .admin()
        .get(&format!("{MAPS}?labelSelector=app%3Dnone"))
        .await
        .is(200);
    cluster
        .admin()
        .get(&format!("{MAPS}?fieldSelector=metadata.name%3Db"))
        .await
        .is(200);
    let text = metrics(&cluster).await;
    for (name, expected) in [
        ("total", 3.0),
        ("fetched_objects_total", 6.0),
        ("returned_objects_total", 3.0),
        ("evaluated_objects_total", 0.0),
    ] {
        let grown = count(&text, name) - count(&before, name);
        assert!((grown - expected).abs() < 0.1, "{name}: {grown}");
    }
}
