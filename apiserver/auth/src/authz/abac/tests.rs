//! Upstream's tables, and lines that are no policies.

use super::*;
use crate::authz::AttributesTarget;
use crate::authz::attributes::ResourceTarget;
use crate::testing::block_on;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Tables {
    files: Vec<Table<RequestCase>>,
    rules: Table<RulesCase>,
    subjects: Vec<PolicyCase>,
    requests: Vec<PolicyCase>,
}

#[derive(Deserialize)]
struct Table<C> {
    policies: Vec<String>,
    cases: Vec<C>,
}

#[derive(Debug, Deserialize)]
struct RequestCase {
    #[serde(flatten)]
    request: Request,
    allowed: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Request {
    user: String,
    groups: Vec<String>,
    verb: String,
    api_group: String,
    resource: String,
    namespace: String,
    path: String,
    is_resource: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RulesCase {
    user: String,
    groups: Vec<String>,
    namespace: String,
    resource_rules: Vec<PolicyRule>,
    non_resource_rules: Vec<PolicyRule>,
}

#[derive(Debug, Deserialize)]
struct PolicyCase {
    name: String,
    policy: Value,
    matches: bool,
    #[serde(flatten)]
    request: Request,
}

fn tables() -> Tables {
    serde_json::from_str(include_str!("../../../testdata/abac.json")).unwrap()
}

fn parse(content: &str) -> Result<AbacAuthorizer, PolicyFileError> {
    AbacAuthorizer::parse(Path::new("/policies"), content)
}

impl Request {
    fn user(&self) -> UserInfo {
        UserInfo::named(self.user.clone(), self.groups.clone())
    }

    fn decision(&self, abac: &AbacAuthorizer) -> Decision {
        let target = ResourceTarget {
            group: &self.api_group,
            resource: &self.resource,
            namespace: &self.namespace,
            ..ResourceTarget::default()
        };
        let user = self.user();
        let attributes = Attributes {
            user: &user,
            asker: None,
            verb: &self.verb,
            target: match self.is_resource {
                true => AttributesTarget::Resource(target),
                false => AttributesTarget::Path(&self.path),
            },
        };
        block_on(abac.authorize(&attributes)).unwrap()
    }
}

#[test]
fn abac_decides_as_upstream() {
    let tables = tables();
    let mut cases = 0;
    for Table { policies, cases: own } in tables.files {
        let abac = parse(&policies.join("\n")).unwrap();
        for case in own {
            let decision = case.request.decision(&abac);
            assert_eq!(decision.is_allowed(), case.allowed, "{case:?}");
            let reason = if case.allowed { "" } else { "No policy matched." };
            assert_eq!(decision.reason().to_string(), reason);
            cases += 1;
        }
    }
    for case in tables.requests {
        let abac = parse(&case.policy.to_string()).unwrap();
        assert_eq!(
            case.request.decision(&abac).is_allowed(),
            case.matches,
            "{case:?}"
        );
        cases += 1;
    }
    assert_eq!(cases, 83);
}

#[test]
fn abac_policies_are_for_users_as_upstreams() {
    let subjects = tables().subjects;
    assert_eq!(subjects.len(), 36);
    for case in subjects {
        let abac = parse(&case.policy.to_string()).unwrap();
        let matches = abac.0[0].is_for(&case.request.user());
        assert_eq!(matches, case.matches, "{}", case.name);
    }
}

#[test]
fn abac_rules_of_a_user_are_listed_as_upstream() {
    let Table { policies, cases } = tables().rules;
    let abac = parse(&policies.join("\n")).unwrap();
    assert_eq!(cases.len(), 5);
    for case in cases {
        let user = UserInfo::named(case.user.clone(), case.groups.clone());
        let listed = block_on(abac.rules_for(&user, &case.namespace));
        assert!(!listed.incomplete);
        let (paths, resources): (Vec<_>, Vec<_>) = listed
            .rules
            .into_iter()
            .partition(|rule| rule.resources.is_empty());
        assert_eq!(resources, case.resource_rules, "{}", case.user);
        assert_eq!(paths, case.non_resource_rules, "{}", case.user);
    }
    let alice = UserInfo::named("alice", [UserInfo::AUTHENTICATED]);
    let elsewhere = block_on(abac.rules_for(&alice, "ns1")).rules;
    assert!(elsewhere.iter().all(|rule| rule.resources == ["events"]));
}

#[track_caller]
fn check(line: &str, expected: &str) {
    let error = parse(&format!("\n # {{\n{line}\r\n")).err();
    let expected = match expected {
        "" => None,
        why => Some(format!(
            "error reading policy file /policies, line 3: {line}: {why}"
        )),
    };
    assert_eq!(error.map(|error| error.to_string()), expected);
}

/// Causes in front of a colon are upstream's, the parser's are not. A line of nothing is ours alone to refuse.
#[test]
fn abac_lines_are_refused_where_upstream_refuses_them() {
    for line in [
        r#"{"kind":"Policy"}"#,
        r#"{"apiVersion":"abac.authorization.kubernetes.io/v0","user":"x"}"#,
        r#"{"apiVersion":"abac.authorization.kubernetes.io/v0","kind":"Policy","user":"x"}"#,
        r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":null}"#,
        r#"{"User":"x","foo":1}"#,
        r#"{"user":null}"#,
        r#"{"user":"a","user":"b"}"#,
        "user: bob",
    ] {
        check(line, "");
    }
    check(
        r#"{"kind":"Foo","apiVersion":"v1"}"#,
        r#"no kind "Foo" is registered for version "v1""#,
    );
    check(
        r#"{"kind":"Foo"}"#,
        r#"no kind "Foo" is registered for version "abac.authorization.kubernetes.io/v0""#,
    );
    check(
        r#"{"apiVersion":"abac.authorization.kubernetes.io/v2","kind":"Policy"}"#,
        r#"no kind "Policy" is registered for version "abac.authorization.kubernetes.io/v2""#,
    );
    check(
        r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1"}"#,
        r#"a policy of abac.authorization.kubernetes.io/v1beta1 must have the kind "Policy""#,
    );
    check(
        r#"{"apiVersion":"a/b/c","kind":"Policy"}"#,
        "unexpected GroupVersion string: a/b/c",
    );
    check(r#"{"user": 1}"#, "invalid type: integer `1`, expected a string");
    check(
        r#"{"readonly":"true"}"#,
        "invalid type: string \"true\", expected a boolean",
    );
    check(
        r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":["x"]}"#,
        "spec is no object",
    );
    check(
        r#"{"apiVersion":1}"#,
        "couldn't get version/kind; json parse error: apiVersion is no text",
    );
    for no_object in ["bob", "[]", "null", "---", "~"] {
        let why = "couldn't get version/kind; json parse error: the line is no object";
        check(no_object, why);
    }
    for unreadable in ["{", "{user: bob}", "{} {}"] {
        let error = parse(unreadable).unwrap_err().to_string();
        let start = format!(
            "error reading policy file /policies, line 1: {unreadable}: couldn't get version/kind; json parse error: "
        );
        assert!(error.starts_with(&start), "{error}");
    }
}

#[test]
fn abac_lines_have_a_bound() {
    let longest = format!("#{}", "x".repeat(MAX_LINE_BYTES - 2));
    assert!(parse(&longest).unwrap().0.is_empty());
    let error = parse(&format!("{longest}\n{longest}x")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "error reading policy file /policies: line 2 has 65536 bytes or more"
    );
}

/// Of two fields of one name the last counts.
#[test]
fn abac_policies_reach_users_that_were_not_authenticated() {
    let abac = parse(
        r#"{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"group":"system:unauthenticated", "nonResourcePath": "*", "readonly": true}}
{"user":"a","user":"b"}"#,
    )
    .unwrap();
    let request = |user: &str, groups: &[&str], verb: &str| {
        let request = Request {
            user: user.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            verb: verb.to_owned(),
            path: "/version".to_owned(),
            ..Request::default()
        };
        request.decision(&abac).is_allowed()
    };
    assert!(request("system:anonymous", &["system:unauthenticated"], "get"));
    assert!(!request("system:anonymous", &["system:unauthenticated"], "post"));
    assert!(request("b", &[], "post"));
    assert!(!request("a", &[], "post"));
}
