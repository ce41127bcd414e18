//! Upstream's answers to rare requests.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use bytes::Bytes;
use common::start;
use http::Method;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Method, path, content type and body; the code and some words that kube-apiserver 1.37 gave for the same.
type Question = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    u16,
    &'static str,
);

const JSON: &str = "application/json";
const PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const C: &str = "/api/v1/namespaces/default/configmaps/c";
const NONE: &str = "/api/v1/namespaces/default/configmaps/none";
const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const SELF_ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const LOCAL_ACCESS: &str = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
const BOTH: &str = r#"is invalid: spec: Invalid value: {\"Path\":\"/x\",\"Verb\":\"get\"}: exactly one of nonResourceAttributes or resourceAttributes must be specified"#;
const NO_METHOD: &str = "the server does not allow this method on the requested resource";
const OTHER_NAMESPACE: &str =
    "the namespace of the provided object does not match the namespace sent on the request";

#[rustfmt::skip]
const QUESTIONS: &[Question] = &[
    // Upstream's delete_test.go.
    ("DELETE", NONE, JSON, r#"{"orphanDependents":"randomString"}"#, 400, "DeleteOptions.orphanDependents of type bool"),
    ("DELETE", NONE, JSON, r#"{"apiVersion":"v1","kind":"APIResourceList"}"#, 400, "converting (v1.APIResourceList) to (v1.DeleteOptions): unknown conversion"),
    ("DELETE", NONE, JSON, r#"{"apiVersion":false,"kind":"DeleteOptions"}"#, 400, ".apiVersion of type string"),
    ("DELETE", NONE, JSON, r#"{"apiVersion":"foo/v1","kind":"DeleteOptions","gracePeriodSeconds":123}"#, 404, ""),
    ("DELETE", NONE, JSON, r#"{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":123}"#, 404, ""),
    ("DELETE", CONFIG_MAPS, JSON, r#"{"orphanDependents":"randomString"}"#, 400, "DeleteOptions.orphanDependents of type bool"),
    ("DELETE", CONFIG_MAPS, JSON, r#"{"apiVersion":"v1","kind":"APIResourceList"}"#, 400, "converting (v1.APIResourceList) to (v1.DeleteOptions): unknown conversion"),
    ("DELETE", CONFIG_MAPS, JSON, r#"{"apiVersion":"v1","kind":"Pod"}"#, 400, r#"no kind \"Pod\" is registered for version \"v1\" in scheme"#),
    ("DELETE", CONFIG_MAPS, JSON, r#"{"kind":"Pod"}"#, 400, r#"no kind \"Pod\" is registered for version \"meta.k8s.io/v1\" in scheme"#),
    ("DELETE", CONFIG_MAPS, JSON, r#"{"apiVersion":false,"kind":"DeleteOptions"}"#, 400, ".apiVersion of type string"),
    ("DELETE", CONFIG_MAPS, JSON, r#"{"apiVersion":"foo/v1","kind":"DeleteOptions","gracePeriodSeconds":123}"#, 200, ""),
    ("DELETE", CONFIG_MAPS, JSON, r#"{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":123}"#, 200, ""),
    ("POST", CONFIG_MAPS, JSON, r#"{"metadata":{"name":"c"}}"#, 201, ""),
    ("PATCH", C, PATCH, r#"[{"op":"replace","path":"/apiVersion","value":"v2"}]"#, 422, r#"no kind \"ConfigMap\" is registered for version \"v2\""#),
    ("PATCH", C, MERGE, r#"{"kind":"Pod"}"#, 422, "converting (v1.Pod) to (core.ConfigMap): unknown conversion"),
    ("PATCH", C, MERGE, r#"{"apiVersion":null}"#, 400, "the name of the object (c based on URL) was undeterminable: name must be provided"),
    ("PATCH", C, PATCH, r#"[{"op":"remove","path":"/kind"}]"#, 200, ""),
    ("PATCH", C, STRATEGIC, r#"{"apiVersion":"v2","kind":"Pod"}"#, 200, r#""kind":"ConfigMap","apiVersion":"v1""#),
    ("PATCH", C, MERGE, r#"{"metadata":{"name":"d","namespace":"other"}}"#, 400, OTHER_NAMESPACE),
    ("PUT", C, JSON, r#"{"metadata":{"name":"c","namespace":"other"}}"#, 400, OTHER_NAMESPACE),
    ("POST", "/api/v1/namespaces/default/serviceaccounts", JSON, r#"{"metadata":{"name":"default"}}"#, 201, ""),
    ("POST", TOKEN, JSON, r#"{"metadata":{"name":"other"},"spec":{}}"#, 422, "must match the service account name if specified"),
    ("POST", TOKEN, JSON, r#"{"metadata":{"namespace":"other"},"spec":{}}"#, 400, OTHER_NAMESPACE),
    ("POST", TOKEN, JSON, r#"{"metadata":{"name":"default"},"spec":{}}"#, 201, ""),
    ("POST", CLASSES, JSON, r#"{"metadata":{"name":"p"},"value":5}"#, 201, r#""generation":1"#),
    ("PATCH", "/apis/scheduling.k8s.io/v1/priorityclasses/p", MERGE, r#"{"description":"d"}"#, 200, r#""generation":1"#),
    ("POST", "/healthz", JSON, "{}", 200, "ok"),
    ("DELETE", "/livez", JSON, "", 200, "ok"),
    ("PUT", "/readyz/ping", JSON, "{}", 200, "ok"),
    ("POST", "/readyz/nonsense", JSON, "{}", 404, "404 page not found"),
    ("POST", "/metrics", JSON, "{}", 200, "apiserver_request_total"),
    ("POST", "/version", JSON, "{}", 405, NO_METHOD),
    ("HEAD", "/version", JSON, "", 405, ""),
    ("POST", "/api", JSON, "{}", 405, NO_METHOD),
    ("POST", "/api/v1", JSON, "{}", 405, NO_METHOD),
    ("HEAD", "/api/v1", JSON, "", 405, ""),
    ("OPTIONS", "/apis/apps/v1", JSON, "", 405, NO_METHOD),
    ("POST", "/openid/v1/jwks", JSON, "{}", 405, NO_METHOD),
    ("POST", "/apis", JSON, "{}", 200, "APIGroupList"),
    ("HEAD", "/apis/apps", JSON, "", 200, ""),
    ("POST", "/openapi/v3", JSON, "{}", 200, "serverRelativeURL"),
    ("GET", "/apis/apps/v2/deployments", JSON, "", 404, "the server could not find the requested resource"),
    ("GET", "/apis/none.example.com/v1/things", JSON, "", 404, "404 page not found"),
    ("POST", "/nothing", JSON, "{}", 404, "404 page not found"),
    ("GET", "//api/v1/namespaces", JSON, "", 404, "404 page not found"),
    ("GET", "//version", JSON, "", 404, "404 page not found"),
    ("GET", "//healthz", JSON, "", 404, "404 page not found"),
    ("GET", "/healthz/", JSON, "", 404, "404 page not found"),
    ("GET", "/api//v1/namespaces", JSON, "", 404, "the server could not find the requested resource"),
    ("GET", "/api/v1//namespaces", JSON, "", 404, "the server could not find the requested resource"),
    ("GET", "/api/v1/namespaces//", JSON, "", 200, "NamespaceList"),
    ("GET", "/apis//apps/v1", JSON, "", 404, "404 page not found"),
    ("GET", ACCESS, JSON, "", 405, NO_METHOD),
    ("DELETE", ACCESS, JSON, "", 405, NO_METHOD),
    ("POST", ACCESS, JSON, r#"{"spec":{"user":"x","resourceAttributes":{"verb":"get"},"nonResourceAttributes":{"path":"/x","verb":"get"}}}"#, 422, BOTH),
    ("POST", SELF_ACCESS, JSON, r#"{"spec":{"resourceAttributes":{"verb":"get"},"nonResourceAttributes":{"path":"/x","verb":"get"}}}"#, 422, BOTH),
    ("POST", SELF_ACCESS, JSON, r#"{"spec":{}}"#, 422, r#"is invalid: spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"#),
    ("POST", LOCAL_ACCESS, JSON, r#"{"metadata":{"namespace":"default"},"spec":{"user":"x","nonResourceAttributes":{"path":"/x","verb":"get"}}}"#, 422, r#"spec.nonResourceAttributes: Invalid value: {\"Path\":\"/x\",\"Verb\":\"get\"}: disallowed on this kind of request"#),
    ("GET", "/apis/authorization.k8s.io/v1/subjectaccessreviews?watch=1", JSON, "", 405, NO_METHOD),
    ("GET", "/apis/authorization.k8s.io/v1/subjectaccessreviews/x", JSON, "", 404, "the server could not find the requested resource"),
    ("POST", ACCESS, JSON, r#"{"metadata":{"name":"x"},"spec":{"user":"u","resourceAttributes":{"verb":"get"}}}"#, 422, "metadata: Invalid value: {\\\"name\\\":\\\"x\\\",\\\"managedFields\\\":[{"),
    ("POST", ACCESS, JSON, r#"{"metadata":{"labels":{"a":"b"}},"spec":{"user":"u","resourceAttributes":{"verb":"get"}}}"#, 422, "]}: must be empty"),
    ("POST", ACCESS, JSON, r#"{"metadata":{"annotations":{"a":"b"}},"spec":{}}"#, 422, "at least one of user or group must be specified, metadata: Invalid value"),
    ("POST", ACCESS, JSON, r#"{"metadata":{"labels":{},"uid":"u"},"spec":{"user":"u","resourceAttributes":{"verb":"get"}}}"#, 201, r#""allowed":false"#),
    ("POST", SELF_ACCESS, JSON, r#"{"metadata":{"generateName":"x"},"spec":{"resourceAttributes":{"verb":"get"}}}"#, 422, "]}: must be empty"),
    ("POST", LOCAL_ACCESS, JSON, r#"{"metadata":{"name":"x"},"spec":{"user":"u","resourceAttributes":{"verb":"get","namespace":"default"}}}"#, 422, "must be empty except for namespace"),
    ("POST", LOCAL_ACCESS, JSON, r#"{"metadata":{"namespace":"default"},"spec":{"user":"u","resourceAttributes":{"verb":"get","namespace":"default"}}}"#, 201, r#""allowed":false"#),
];

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_answers_to_what_is_asked_rarely() {
    let cluster = start().await;
    for (method, path, form, body, code, words) in QUESTIONS {
        let ask = cluster.admin().header("content-type", *form);
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let answer = ask
            .send(method.clone(), path, Bytes::from_static(body.as_bytes()))
            .await;
        let said = format!("{method} {path} {body}: {} {}", answer.code, answer.body);
        assert!(answer.code == *code && answer.body.contains(words), "{said}");
    }
}

/// A patch's `kind` is not stored.
#[tokio::test(flavor = "multi_thread")]
async fn patch_of_kind_alone_changes_nothing() {
    let cluster = start().await;
    let body = r#"{"metadata":{"name":"c"}}"#;
    let made = cluster.admin().post(CONFIG_MAPS, body).await.is(201).json();
    for (form, patch) in [
        (STRATEGIC, r#"{"apiVersion":"v2","kind":"Pod"}"#),
        (PATCH, r#"[{"op":"remove","path":"/kind"}]"#),
    ] {
        let ask = cluster.admin().header("content-type", form);
        let patched = ask
            .send(Method::PATCH, C, Bytes::from_static(patch.as_bytes()))
            .await;
        assert_eq!(patched.is(200).json(), made, "{patch}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn patch_of_too_many_operations_is_refused_in_upstreams_words() {
    let cluster = start().await;
    let map = r#"{"metadata":{"name":"c"}}"#;
    cluster.admin().post(CONFIG_MAPS, map).await.is(201);
    let test = r#"{"op":"test","path":"/a","value":1}"#;
    let patch = format!("[{}]", vec![test; 10_001].join(","));
    let ask = cluster.admin().header("content-type", PATCH);
    let refused = ask.send(Method::PATCH, C, patch.into()).await.is(413).json();
    assert_eq!(
        refused["message"],
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
}

/// Errors as well as objects, for human readers: of curl, Wget and browsers, and of requests that say so.
#[tokio::test(flavor = "multi_thread")]
async fn answers_to_humans_are_indented() {
    let cluster = start().await;
    let namespaces = "/api/v1/namespaces";
    for (agent, query, is_pretty) in [
        ("curl/8.0", "", true),
        ("Mozilla/5.0 (X11)", "", true),
        ("Wget", "", true),
        ("curl/8.0", "?pretty=0", false),
        ("kubectl/v1.37.1", "", false),
        ("kubectl/v1.37.1", "?pretty=true", true),
    ] {
        let ask = || cluster.admin().header("user-agent", agent);
        let path = |path: &str| format!("{path}{query}");
        let answers = [
            (
                ask().header("impersonate-user", "x").get(&path(namespaces)).await,
                403,
            ),
            (ask().get(&path("/api/v1/namespaces/none")).await, 404),
            (ask().get(&path("/api/v1/namespaces/default")).await, 200),
        ];
        for (answer, code) in answers {
            let answer = answer.is(code);
            let (begins, ends) = match is_pretty {
                true => ("{\n  \"kind\": ", "\n}"),
                false => ("{\"kind\":", "}\n"),
            };
            assert!(answer.body.starts_with(begins), "{agent} {code} {}", answer.body);
            assert!(answer.body.ends_with(ends), "{agent} {code} {}", answer.body);
        }
        let nobody = cluster.nobody().header("user-agent", agent).token("wrong");
        let refused = nobody.get(&path(namespaces)).await.is(401);
        assert_eq!(
            refused.body.contains("\n  \"reason\": \"Unauthorized\""),
            is_pretty
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_vary_by_encoding_where_they_are_encoded() {
    let cluster = start().await;
    let map = format!(
        r#"{{"metadata":{{"name":"c"}},"data":{{"k":"{}"}}}}"#,
        "v".repeat(200_000)
    );
    cluster.admin().post(CONFIG_MAPS, map).await.is(201);
    for (encoding, expected) in [("identity", None), ("gzip", Some("Accept-Encoding"))] {
        let ask = || cluster.admin().header("accept-encoding", encoding);
        let large = ask().get(C).await.is(200);
        let vary = large.headers.get("vary").map(|vary| vary.to_str().unwrap());
        assert_eq!(vary, expected);
        let small = ask().get("/api/v1/namespaces/default").await.is(200);
        assert!(!small.headers.contains_key("vary"));
    }
}
