//! Rules of upstream's `validation_test.go`, and reading of files.

use super::*;
use serde_json::{Value, json};

fn hook(file: &str) -> Value {
    json!({
        "type": "Webhook",
        "name": "default",
        "webhook": {
            "timeout": "5s",
            "authorizedTTL": "60s",
            "unauthorizedTTL": "30s",
            "failurePolicy": "NoOpinion",
            "subjectAccessReviewVersion": "v1",
            "matchConditionSubjectAccessReviewVersion": "v1",
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": file},
        },
    })
}

fn configuration(authorizers: &[Value]) -> AuthorizationConfiguration {
    let file = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": authorizers});
    AuthorizationConfiguration::decode(&file.to_string()).unwrap()
}

fn problems_of(authorizers: &[Value]) -> String {
    let compiled = configuration(authorizers).compile();
    compiled
        .err()
        .map_or_else(String::new, |problems| problems.to_string())
}

/// A webhook with another value at a place.
#[track_caller]
fn check(place: &str, value: Value, expected: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut own = hook(&file.path().display().to_string());
    let (parent, name) = place.rsplit_once('/').unwrap();
    own.pointer_mut(&format!("/webhook{parent}")).unwrap()[name] = value;
    let expected = expected.replace("PATH", &format!("authorizers[0]{}", place.replace('/', ".")));
    assert_eq!(problems_of(&[own]), expected, "{place}");
}

#[test]
fn authorizers_are_checked_as_upstream_does() {
    let of = |kind: &str, name: &str| json!({"type": kind, "name": name});
    for (authorizers, expected) in [
        (
            vec![],
            "authorizers: Required value: at least one authorization mode must be defined",
        ),
        (vec![json!({})], "authorizers[0].type: Required value"),
        (
            vec![of("Foo", "foo")],
            "authorizers[0].type: Unsupported value: \"Foo\": supported values: \"ABAC\", \"AlwaysAllow\", \"AlwaysDeny\", \"Node\", \"RBAC\", \"Webhook\"",
        ),
        (
            vec![of("RBAC", "rbac"), of("RBAC", "again")],
            "authorizers[1].type: Duplicate value: \"RBAC\"",
        ),
        (vec![of("RBAC", "")], "authorizers[0].name: Required value"),
        (
            vec![of("RBAC", "a"), of("Node", "a")],
            "authorizers[1].name: Duplicate value: \"a\"",
        ),
        (
            vec![of("Webhook", "a")],
            "authorizers[0].webhook: Required value: required when type=Webhook",
        ),
        (
            vec![json!({"type": "RBAC", "name": "rbac", "webhook": {}})],
            "authorizers[0].webhook: Invalid value: \"non-null\": may only be specified when type=Webhook",
        ),
        (
            vec![
                of("Node", "node"),
                of("RBAC", "rbac"),
                of("ABAC", "abac"),
                of("AlwaysDeny", "alwaysdeny"),
            ],
            "",
        ),
    ] {
        assert_eq!(problems_of(&authorizers), expected);
    }
    let bad = problems_of(&[of("RBAC", "Mine!")]);
    assert!(
        bad.starts_with("authorizers[0].name: Invalid value: \"Mine!\": authorizer name is invalid: "),
        "{bad}"
    );
    let misnamed = configuration(&[of("Node", "node"), of("RBAC", "mine")]).misnamed();
    assert_eq!(
        misnamed,
        ["expected name rbac for authorizer RBAC instead of mine"]
    );
}

#[test]
fn webhooks_are_checked_as_upstream_does() {
    check("/timeout", json!("0s"), "PATH: Required value");
    check("/timeout", Value::Null, "PATH: Required value");
    for timeout in ["-30s", "60s"] {
        let shown = if timeout == "60s" { "1m0s" } else { timeout };
        let expected = format!("PATH: Invalid value: \"{shown}\": must be > 0s and <= 30s");
        check("/timeout", json!(timeout), &expected);
    }
    for place in ["/authorizedTTL", "/unauthorizedTTL"] {
        check(
            place,
            json!("-30s"),
            "PATH: Invalid value: \"-30s\": must be > 0s",
        );
        // The default.
        check(place, json!("0s"), "");
    }
    let place = "/subjectAccessReviewVersion";
    check(place, json!(""), "PATH: Required value");
    check(
        place,
        json!("v2beta1"),
        "PATH: Unsupported value: \"v2beta1\": supported values: \"v1\", \"v1beta1\"",
    );
    let place = "/matchConditionSubjectAccessReviewVersion";
    check(place, json!(""), "");
    check(
        place,
        json!("v1beta1"),
        "PATH: Unsupported value: \"v1beta1\": supported values: \"v1\"",
    );
    let place = "/failurePolicy";
    check(place, json!(""), "PATH: Required value");
    check(
        place,
        json!("AlwaysAllow"),
        "PATH: Unsupported value: \"AlwaysAllow\": supported values: \"NoOpinion\", \"Deny\"",
    );
    check("/connectionInfo/type", json!(""), "PATH: Required value");
    let file = "/connectionInfo/kubeConfigFile";
    check(file, Value::Null, "PATH: Required value");
    check(file, json!(""), "PATH: Required value");
    check(
        file,
        json!("relative"),
        "PATH: Invalid value: \"relative\": must be an absolute path",
    );
    check(
        file,
        json!("/"),
        "PATH: Invalid value: \"/\": must be a regular file",
    );
    check(
        "/connectionInfo",
        json!({"type": "InClusterConfig"}),
        "PATH.type: Invalid value: \"InClusterConfig\": is not supported by this server; name a kubeConfigFile",
    );
}

#[test]
fn match_conditions_are_checked_as_upstream_does() {
    let place = "/matchConditions";
    let of = |text: &str| json!({"expression": text});
    check(place, json!([of(" ")]), "PATH[0].expression: Required value");
    let twice = of("has(request.resourceAttributes)");
    check(
        place,
        json!([twice, twice]),
        "PATH[1].expression: Duplicate value: \"has(request.resourceAttributes)\"",
    );
    check(
        place,
        json!([of("request.user")]),
        "PATH[0].expression: Invalid value: \"request.user\": must evaluate to bool but got string",
    );
    check(
        place,
        json!([
            of("request.user == 'a'"),
            of("request.groups.exists(g, g == 'b')")
        ]),
        "",
    );
    let many: Vec<Value> = (0..65).map(|at| of(&format!("request.user == '{at}'"))).collect();
    check(
        place,
        json!(many),
        "PATH: Too many: 65: must have at most 64 items",
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut own = hook(&file.path().display().to_string());
    own["webhook"]["matchConditionSubjectAccessReviewVersion"] = json!("");
    own["webhook"]["matchConditions"] = json!([of("true")]);
    let expected = "authorizers[0].matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified";
    assert_eq!(problems_of(&[own]), expected);
}

#[test]
fn webhook_has_upstreams_defaults() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let of = |edit: fn(&mut Value)| {
        let mut own = hook(&file.path().display().to_string());
        edit(&mut own["webhook"]);
        match configuration(&[own]).compile().unwrap().remove(0) {
            AuthorizerRules::Webhook(rules) => {
                (rules.authorized_ttl.as_secs(), rules.unauthorized_ttl.as_secs())
            }
            other => panic!("{other:?}"),
        }
    };
    let without = |own: &mut Value| {
        let own = own.as_object_mut().unwrap();
        own.remove("authorizedTTL");
        own.remove("unauthorizedTTL");
    };
    assert_eq!(of(without), (300, 30));
    assert_eq!(of(|_| {}), (60, 30));
    assert_eq!(of(|own| own["cacheAuthorizedRequests"] = json!(false)), (0, 30));
    assert_eq!(of(|own| own["cacheUnauthorizedRequests"] = json!(false)), (60, 0));
    let text = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": [{"type": "Webhook", "name": "a", "webhook": {"ttl": "5m"}}]});
    let error = AuthorizationConfiguration::decode(&text.to_string())
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "strict decoding error: unknown field \"authorizers[0].webhook.ttl\""
    );
}
