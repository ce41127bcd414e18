//! Users made of claims, and what tokens must say; signatures and issuers stand in the tests of the server.

use super::claims::Claims;
use super::user;
use crate::authn::structured::AuthenticationConfiguration;
use jiff::Timestamp;
use machinery_meta::UserInfo;
use serde_json::{Value, json};

fn user_of(edit: Value, claims: &Value) -> Result<UserInfo, String> {
    let mut entry = json!({
        "issuer": {"url": "https://issuer", "audiences": ["me"]},
        "claimMappings": {"username": {"claim": "sub", "prefix": "oidc:"}, "groups": {"claim": "groups", "prefix": "g:"}},
    });
    for (name, value) in edit.as_object().unwrap() {
        match name.as_str() {
            "username" | "groups" | "uid" | "extra" => entry["claimMappings"][name] = value.clone(),
            name => entry[name] = value.clone(),
        }
    }
    let file = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [entry]});
    let configuration = AuthenticationConfiguration::decode(&file.to_string()).unwrap();
    let rules = configuration.compile(&[]).unwrap().remove(0);
    user::of_claims(&rules, &Claims::read(claims.to_string().as_bytes()).unwrap())
}

#[track_caller]
fn check(edit: Value, claims: Value, expected: Result<(&str, &[&str], &str), &str>) {
    let found = user_of(edit, &claims);
    let expected = expected.map_err(str::to_owned);
    let found = found.as_ref();
    let shown = found.map(|own| {
        let groups: Vec<&str> = own.groups.iter().map(String::as_str).collect();
        (own.name.as_str(), groups, own.uid.as_str())
    });
    let expected = expected.map(|(name, groups, uid)| (name, groups.to_vec(), uid));
    assert_eq!(shown.map_err(Clone::clone), expected, "{claims}");
}

#[test]
fn user_is_made_of_claims() {
    check(
        json!({}),
        json!({"sub": "anna", "groups": ["a", "b"]}),
        Ok(("oidc:anna", &["g:a", "g:b"], "")),
    );
    check(
        json!({}),
        json!({"sub": "anna", "groups": "a"}),
        Ok(("oidc:anna", &["g:a"], "")),
    );
    check(json!({}), json!({"sub": "anna"}), Ok(("oidc:anna", &[], "")));
    check(
        json!({"uid": {"claim": "uid"}}),
        json!({"sub": "anna", "uid": "7"}),
        Ok(("oidc:anna", &[], "7")),
    );
    check(
        json!({}),
        json!({}),
        Err("oidc: parse username claims \"sub\": claim not present"),
    );
    check(
        json!({}),
        json!({"sub": 7}),
        Err("oidc: parse username claims \"sub\": json: cannot unmarshal number into another type"),
    );
    check(
        json!({}),
        json!({"sub": "anna", "groups": [7]}),
        Err("oidc: parse groups claim \"groups\": json: cannot unmarshal array into another type"),
    );
}

#[test]
fn user_with_an_email_has_it_verified() {
    let email = json!({"username": {"claim": "email", "prefix": ""}});
    let anna = "anna@example.com";
    check(email.clone(), json!({"email": anna}), Ok((anna, &[], "")));
    check(
        email.clone(),
        json!({"email": anna, "email_verified": true}),
        Ok((anna, &[], "")),
    );
    check(
        email.clone(),
        json!({"email": anna, "email_verified": false}),
        Err("oidc: email not verified"),
    );
    check(
        email,
        json!({"email": anna, "email_verified": "true"}),
        Err("oidc: parse 'email_verified' claim: json: cannot unmarshal string into another type"),
    );
}

#[test]
fn user_is_made_by_expressions() {
    let by = json!({
        "username": {"expression": "claims.sub + ':' + claims.org__dot__name"},
        "groups": {"expression": "claims.roles.split(',')"},
        "uid": {"expression": "string(claims.number)"},
        "extra": [
            {"key": "example.org/a", "valueExpression": "claims.list"},
            {"key": "example.org/none", "valueExpression": "''"},
        ],
    });
    let claims = json!({"sub": "anna", "org.name": "x", "roles": "a,,b", "number": 7, "list": ["p", "", "q"], "jti": "id"});
    check(by.clone(), claims.clone(), Ok(("anna:x", &["a", "b"], "7")));
    let extra = user_of(by, &claims).unwrap().extra;
    assert_eq!(
        json!(extra),
        json!({"authentication.kubernetes.io/credential-id": ["JTI=id"], "example.org/a": ["p", "q"]})
    );
    let name = |text: &str| json!({"username": {"expression": text}});
    let failed = "oidc: error evaluating username claim expression:";
    check(
        name("claims.a"),
        json!({"a": ""}),
        Err("oidc: empty username via CEL expression is not allowed"),
    );
    check(
        name("claims.a"),
        json!({"a": 7}),
        Err(&format!(
            "{failed} username claim expression must return a string"
        )),
    );
    check(
        name("claims.a"),
        json!({}),
        Err(&format!(
            "{failed} expression 'claims.a' resulted in error: no such key: a"
        )),
    );
    let groups = json!({"groups": {"expression": "claims.g"}});
    let other =
        "oidc: error evaluating group claim expression: expression must return a string or a list of strings";
    check(groups.clone(), json!({"sub": "a", "g": {"x": "y"}}), Err(other));
    check(groups.clone(), json!({"sub": "a", "g": ["x", 7]}), Err(other));
    check(groups, json!({"sub": "a", "g": null}), Ok(("oidc:a", &[], "")));
}

#[test]
fn user_meets_the_rules() {
    let rules = json!({
        "claimValidationRules": [
            {"claim": "hd", "requiredValue": "example"},
            {"expression": "claims.exp - claims.nbf <= 86400", "message": "too long"},
        ],
        "userValidationRules": [
            {"expression": "!user.username.startsWith('oidc:system:')", "message": "reserved"},
            {"expression": "user.groups.all(group, group != 'g:root') && has(user.extra)"},
        ],
    });
    let claims = json!({"sub": "anna", "hd": "example", "nbf": 0, "exp": 86400, "groups": ["a"]});
    let with = |name: &str, value: Value| {
        let mut claims = claims.clone();
        claims[name] = value;
        claims
    };
    check(rules.clone(), claims.clone(), Ok(("oidc:anna", &["g:a"], "")));
    for (claims, why) in [
        (
            with("hd", json!("other")),
            "oidc: required claim hd value does not match. want = example",
        ),
        (
            with("exp", json!(86401)),
            "oidc: error evaluating claim validation expression: validation expression 'claims.exp - claims.nbf <= 86400' failed: too long",
        ),
        (
            with("sub", json!("system:admin")),
            "oidc: error evaluating user info validation rule: validation expression '!user.username.startsWith('oidc:system:')' failed: reserved",
        ),
        (
            with("groups", json!("root")),
            "oidc: error evaluating user info validation rule: validation expression 'user.groups.all(group, group != 'g:root') && has(user.extra)' failed: ",
        ),
    ] {
        check(rules.clone(), claims, Err(why));
    }
    let mut without = claims;
    without.as_object_mut().unwrap().remove("hd");
    check(
        rules,
        without,
        Err("oidc: required claim hd not present in ID token"),
    );
}

#[test]
fn groups_that_are_elsewhere_are_refused() {
    let refused = "oidc: could not expand distributed claims: claim \"groups\" is a distributed claim, which this server does not support";
    let with =
        |sources: Value| json!({"sub": "anna", "_claim_names": {"groups": "src"}, "_claim_sources": sources});
    check(
        json!({}),
        with(json!({"src": {"endpoint": "https://x", "access_token": "t"}})),
        Err(refused),
    );
    check(json!({}), with(json!({})), Err(refused));
    check(
        json!({}),
        with(json!({"src": {"JWT": "x"}})),
        Ok(("oidc:anna", &[], "")),
    );
    let other = json!({"sub": "anna", "_claim_names": {"address": "src"}, "_claim_sources": {}});
    check(json!({}), other, Ok(("oidc:anna", &[], "")));
}

#[test]
fn token_is_for_one_of_the_audiences_and_for_its_time() {
    let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
    let at = now.as_second();
    let check = |claims: Value, is_good: bool| {
        let own = Claims::read(claims.to_string().as_bytes()).unwrap();
        let checked = own.check_issuer("https://issuer");
        let checked = checked.and_then(|()| own.check_audience(&["a".to_owned(), "b".to_owned()]));
        let checked = checked.and_then(|()| own.check_times(now));
        assert_eq!(checked.is_ok(), is_good, "{claims} {checked:?}");
    };
    let claims = |edit: Value| {
        let mut own = json!({"iss": "https://issuer", "aud": ["x", "b"], "exp": at + 1});
        for (name, value) in edit.as_object().unwrap() {
            own[name] = value.clone();
        }
        own
    };
    for good in [
        json!({}),
        json!({"aud": "a"}),
        json!({"exp": 4e9}),
        json!({"nbf": at + 60}),
        json!({"exp": i64::MAX}),
    ] {
        check(claims(good), true);
    }
    for bad in [
        json!({"iss": "https://other"}),
        json!({"iss": null}),
        json!({"aud": "x"}),
        json!({"aud": []}),
        json!({"aud": 7}),
        json!({"exp": at - 1}),
        json!({"exp": null}),
        json!({"exp": "4000000000"}),
        json!({"nbf": at + 61}),
    ] {
        check(claims(bad), false);
    }
    assert!(Claims::read(b"[]").is_err());
    assert!(Claims::read("[".repeat(60_000).as_bytes()).is_err());
}
