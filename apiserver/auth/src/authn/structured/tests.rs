//! Rules of upstream's `validation_test.go`, and reading of files.

use super::*;
use serde_json::{Value, json};

/// A good entry.
fn entry() -> Value {
    json!({
        "issuer": {"url": "https://issuer-url", "audiences": ["audience"]},
        "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
    })
}

fn problems_of(file: &Value, disallowed: &[&str]) -> String {
    let mut file = file.clone();
    file["apiVersion"] = json!("apiserver.config.k8s.io/v1");
    file["kind"] = json!("AuthenticationConfiguration");
    let disallowed: Vec<String> = disallowed.iter().map(|&own| own.to_owned()).collect();
    let configuration = AuthenticationConfiguration::decode(&file.to_string()).unwrap();
    configuration
        .compile(&disallowed)
        .err()
        .map_or_else(String::new, |problems| problems.to_string())
}

/// The entry with another value at a place.
#[track_caller]
fn check(place: &str, value: Value, expected: &str) {
    let mut own = entry();
    let (parent, name) = place.rsplit_once('/').unwrap();
    own.pointer_mut(parent).unwrap()[name] = value;
    let expected = expected.replace("PATH", &format!("jwt[0]{}", place.replace('/', ".")));
    assert_eq!(problems_of(&json!({"jwt": [own]}), &[]), expected, "{place}");
}

const UNVERIFIED: &str = "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression";
const UNDECLARED: &str = "\"foo.bar\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo.bar\n | ^";

#[test]
fn issuers_are_checked_as_upstream_does() {
    let invalid = |url: &str, why: &str| format!("PATH: Invalid value: \"{url}\": {why}");
    check("/issuer/url", json!(""), "PATH: Required value");
    for (url, why) in [
        (
            "https://issuer-url:invalid-port",
            "parse \"https://issuer-url:invalid-port\": invalid port \":invalid-port\" after host",
        ),
        ("http://issuer-url", "URL scheme must be https"),
        ("invalid-url", "URL scheme must be https"),
        (
            "https://user:pass@issuer-url",
            "URL must not contain a username or password",
        ),
        ("https://issuer-url?query", "URL must not contain a query"),
        ("https://issuer-url#fragment", "URL must not contain a fragment"),
    ] {
        check("/issuer/url", json!(url), &invalid(url, why));
        if url.starts_with("http") {
            check("/issuer/discoveryURL", json!(url), &invalid(url, why));
        }
    }
    for url in [
        "https://issuer-url",
        "https://issuer-url/",
        "https://issuer-url///",
    ] {
        let why = "discoveryURL must be different from URL";
        check("/issuer/discoveryURL", json!(url), &invalid(url, why));
    }
    check("/issuer/discoveryURL", json!("https://other/a/b"), "");
    check("/issuer/discoveryURL", Value::Null, "");
    let selector = "/issuer/egressSelectorType";
    let off = "egress selector is not supported when StructuredAuthenticationConfigurationEgressSelector feature gate is disabled";
    check(selector, json!("cluster"), &invalid("cluster", off));
    let none = "data does not contain any valid RSA or ECDSA certificates";
    check(
        "/issuer/certificateAuthority",
        json!("invalid"),
        &invalid("<omitted>", none),
    );
}

#[test]
fn audiences_are_checked_as_upstream_does() {
    let place = "/issuer/audiences";
    check(
        place,
        json!([]),
        "PATH: Required value: at least one jwt[0].issuer.audiences is required",
    );
    check(place, json!([""]), "PATH[0]: Required value");
    check(
        place,
        json!(["a", "b"]),
        "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for multiple audiences",
    );
    let policy = "/issuer/audienceMatchPolicy";
    check(policy, json!("MatchAny"), "");
    check(
        policy,
        json!("MatchExact"),
        "PATH: Invalid value: \"MatchExact\": audienceMatchPolicy must be empty or MatchAny for single audience",
    );
    let mut own = entry();
    own["issuer"]["audienceMatchPolicy"] = json!("MatchAny");
    own["issuer"]["audiences"] = json!(["a", "b", "a"]);
    let expected = "jwt[0].issuer.audiences[2]: Duplicate value: \"a\"";
    assert_eq!(problems_of(&json!({"jwt": [own]}), &[]), expected);
}

#[test]
fn claim_rules_are_checked_as_upstream_does() {
    let place = "/claimValidationRules";
    for (rules, expected) in [
        (
            json!([{}]),
            "PATH[0]: Required value: claim or expression is required",
        ),
        (
            json!([{"claim": "claim", "expression": "expression"}]),
            "PATH[0]: Invalid value: \"claim\": claim and expression can't both be set",
        ),
        (
            json!([{"claim": "claim", "message": "message"}]),
            "PATH[0].message: Invalid value: \"message\": may not be specified when claim is set",
        ),
        (
            json!([{"expression": "claims.foo == 'bar'", "requiredValue": "value"}]),
            "PATH[0].requiredValue: Invalid value: \"value\": may not be specified when expression is set",
        ),
        (
            json!([{"claim": "claim"}, {"claim": "claim"}]),
            "PATH[1].claim: Duplicate value: \"claim\"",
        ),
        (
            json!([{"expression": "claims.foo == 'bar'"}, {"expression": "claims.foo == 'bar'"}]),
            "PATH[1].expression: Duplicate value: \"claims.foo == 'bar'\"",
        ),
        (
            json!([{"expression": "foo.bar"}]),
            &format!("PATH[0].expression: Invalid value: {UNDECLARED}"),
        ),
        (
            json!([{"expression": "claims.foo"}]),
            "PATH[0].expression: Invalid value: \"claims.foo\": must evaluate to bool",
        ),
        (
            json!([{"claim": "a", "requiredValue": "b"}, {"expression": "has(claims.c)"}]),
            "",
        ),
    ] {
        check(place, rules, expected);
    }
    let place = "/userValidationRules";
    let twice = json!({"expression": "user.username == 'foo'"});
    check(
        place,
        json!([twice, twice, {}]),
        "[PATH[1].expression: Duplicate value: \"user.username == 'foo'\", PATH[2].expression: Required value]"
            .replace("PATH", "jwt[0].userValidationRules")
            .as_str(),
    );
    check(
        place,
        json!([{"expression": "user.groups.all(group, !group.startsWith('system:'))"}]),
        "",
    );
}

#[test]
fn mappings_are_checked_as_upstream_does() {
    let both = "PATH: Invalid value: \"\": claim and expression can't both be set";
    let no_prefix = "PATH.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing";
    let prefix = "PATH.prefix: Invalid value: \"prefix\": may not be specified when expression is set";
    for place in ["/claimMappings/username", "/claimMappings/groups"] {
        check(place, json!({"claim": "claim", "expression": "claims.x"}), both);
        check(place, json!({"claim": "claim"}), no_prefix);
        check(
            place,
            json!({"expression": "claims.x", "prefix": "prefix"}),
            prefix,
        );
        let undeclared = format!("PATH.expression: Invalid value: {UNDECLARED}");
        check(place, json!({"expression": "foo.bar"}), &undeclared);
    }
    check(
        "/claimMappings/username",
        json!({}),
        "PATH: Required value: claim or expression is required",
    );
    check(
        "/claimMappings/uid",
        json!({"claim": "a", "expression": "b"}),
        both,
    );
    let extra = |key: &str, value: &str| json!([{"key": key, "valueExpression": value}]);
    let place = "/claimMappings/extra";
    let reserved = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
    for (key, why) in [
        ("foo", "must be a domain-prefixed path (such as \"acme.io/foo\")"),
        ("example.org/Foo", "must be lowercase"),
        ("k8s.io/foo", reserved),
        ("example.kubernetes.io/foo", reserved),
    ] {
        let expected = format!("PATH[0].key: Invalid value: \"{key}\": {why}");
        check(place, extra(key, "claims.a"), &expected);
    }
    check(place, extra("", "claims.a"), "PATH[0].key: Required value");
    check(
        place,
        extra("example.org/a", ""),
        "PATH[0].valueExpression: Required value",
    );
    check(place, extra("notk8s.io/a", "claims.a"), "");
    let one = json!({"key": "example.org/a", "valueExpression": "claims.a"});
    check(
        place,
        json!([one, one]),
        "PATH[1].key: Duplicate value: \"example.org/a\"",
    );
}

#[test]
fn unverified_email_is_no_user_name() {
    let place = "/claimMappings/username";
    for (text, is_good) in [
        ("claims.email", false),
        ("claims.?email", false),
        ("[\"a\"].map(i, i + claims.email)", false),
        ("claims.email_", true),
        (
            "claims.?email_verified.orValue(false) ? claims.email : claims.sub",
            true,
        ),
    ] {
        let expected = match is_good {
            true => String::new(),
            false => format!("PATH.expression: Invalid value: {text:?}: {UNVERIFIED}"),
        };
        check(place, json!({"expression": text}), &expected);
    }
    let mut own = entry();
    own["claimMappings"]["username"] = json!({"expression": "claims.email"});
    for (part, value) in [
        (
            "claimValidationRules",
            json!([{"expression": "claims.email_verified == true"}]),
        ),
        (
            "extra",
            json!([{"key": "panda.io/foo", "valueExpression": "claims.?email_verified"}]),
        ),
    ] {
        let mut own = own.clone();
        match part {
            "extra" => own["claimMappings"]["extra"] = value,
            part => own[part] = value,
        }
        assert_eq!(problems_of(&json!({"jwt": [own]}), &[]), "", "{part}");
    }
}

#[test]
fn issuers_are_apart_from_each_other_and_from_this_server() {
    let with = |url: &str, discovery: &str| {
        let mut own = entry();
        own["issuer"]["url"] = json!(url);
        own["issuer"]["discoveryURL"] = json!(discovery);
        own
    };
    let twice = json!({"jwt": [with("https://a", "https://d"), with("https://a", "https://d")]});
    let expected = "[jwt[1].issuer.url: Duplicate value: \"https://a\", jwt[1].issuer.discoveryURL: Duplicate value: \"https://d\"]";
    assert_eq!(problems_of(&twice, &[]), expected);
    let expected = "jwt[0].issuer.url: Invalid value: \"https://issuer-url\": URL must not overlap with disallowed issuers: [a b https://issuer-url]";
    let own = json!({"jwt": [entry()]});
    assert_eq!(problems_of(&own, &["b", "a", "https://issuer-url"]), expected);
    let many: Vec<Value> = (0..65).map(|at| with(&format!("https://a{at}"), "")).collect();
    let expected = "jwt: Too many: 65: must have at most 64 items";
    assert_eq!(problems_of(&json!({"jwt": many}), &[]), expected);
    let anonymous = json!({"anonymous": {"enabled": false, "conditions": [{"path": "/livez"}]}});
    let expected = "anonymous.conditions: Invalid value: [{\"Path\":\"/livez\"}]: enabled should be set to true when conditions are defined";
    assert_eq!(problems_of(&anonymous, &[]), expected);
}

#[test]
fn file_is_decoded_strictly() {
    let decode = |text: &str| AuthenticationConfiguration::decode(text);
    let good = "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: https://a\n    discoveryURL: https://b\n    audiences: [x]\n  claimMappings:\n    username: {claim: sub, prefix: null}\n    groups: null\nanonymous:\n  enabled: true\n  conditions:\n  - path: /livez\n";
    let read = decode(good).unwrap();
    assert_eq!(read.jwt[0].issuer.discovery_url, "https://b");
    assert_eq!(read.jwt[0].claim_mappings.username.prefix, None);
    assert_eq!(read.anonymous.unwrap().conditions[0].path, "/livez");
    for (text, why) in [
        (String::new(), "empty config data"),
        (
            good.replace("v1beta1", "v9"),
            "no kind \"AuthenticationConfiguration\" is registered for version \"apiserver.config.k8s.io/v9\"",
        ),
        (
            good.replace("kind: Auth", "kind: Other"),
            "no kind \"OtherenticationConfiguration\"",
        ),
        (
            good.replace("claim: sub", "claims: sub"),
            "strict decoding error: unknown field \"jwt[0].claimMappings.username.claims\"",
        ),
        (
            good.replace("    audiences", "    url: https://c\n    audiences"),
            "duplicate field `url`",
        ),
        (good.replace("[x]", "7"), "strict decoding error"),
        (
            good.replace("enabled: true", "enabled: \"yes\""),
            "strict decoding error",
        ),
    ] {
        let error = decode(&text).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
