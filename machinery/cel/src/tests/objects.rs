//! Rules of whole schemas, run over objects.

use crate::value::Data;
use crate::{Env, Rules, Verdict};
use serde_json::{Value as Json, json};

fn checked(schema: &Json, object: &Json, old: Option<&Json>) -> Verdict {
    let rules = Rules::compile(schema).expect("the schema has rules");
    rules.check(Data::from(object), old.map(Data::from), None)
}

#[track_caller]
fn check(schema: &Json, object: &Json, old: Option<&Json>, expected: &[&str]) {
    let found = checked(schema, object, old).problems;
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

fn schema() -> Json {
    json!({
        "type": "object",
        "x-kubernetes-validations": [
            {"rule": "self.spec.min <= self.spec.max", "message": "min is above max"},
            {"rule": "self.metadata.name.startsWith('a')"},
        ],
        "properties": {
            "spec": {"type": "object", "properties": {
                "min": {"type": "integer"},
                "max": {"type": "integer", "x-kubernetes-validations": [
                    {"rule": "self >= oldSelf", "messageExpression": "'may not shrink below %d'.format([oldSelf])"},
                    {"rule": "self < 100", "reason": "FieldValueForbidden"},
                ]},
                "list": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object",
                        "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
                        "x-kubernetes-validations": [
                            {"rule": "self.v == oldSelf.v", "fieldPath": ".v", "message": "is immutable"},
                        ]},
                },
                "map": {"type": "object", "additionalProperties": {"type": "string", "x-kubernetes-validations": [
                    {"rule": "self.size() < 4"},
                ]}},
            }},
        },
    })
}

#[test]
fn rules_hold_at_every_depth() {
    let object = json!({"metadata": {"name": "a"}, "spec": {"min": 1, "max": 2, "map": {"x": "abc"}}});
    check(&schema(), &object, None, &[]);
    let object = json!({"metadata": {"name": "b"}, "spec": {"min": 200, "max": 150, "map": {"x": "abcd"}}});
    check(
        &schema(),
        &object,
        None,
        &[
            "<nil>: Invalid value: min is above max",
            "<nil>: Invalid value: failed rule: self.metadata.name.startsWith('a')",
            "spec.map[x]: Invalid value: \"abcd\": failed rule: self.size() < 4",
            "spec.max: Forbidden: failed rule: self < 100",
        ],
    );
}

#[test]
fn rules_of_transitions_see_what_was() {
    let object = |max: i64, v: i64| json!({"metadata": {"name": "a"}, "spec": {"min": 1, "max": max, "list": [{"k": "n", "v": 0}, {"k": "o", "v": v}]}});
    check(&schema(), &object(5, 1), Some(&object(5, 1)), &[]);
    check(
        &schema(),
        &object(3, 2),
        Some(&object(5, 1)),
        &[
            "spec.list[1].v: Invalid value: is immutable",
            "spec.max: Invalid value: 3: may not shrink below 5",
        ],
    );
}

#[test]
fn rules_of_values_that_stay_only_warn() {
    let object = |min: i64| json!({"metadata": {"name": "a"}, "spec": {"min": min, "max": 100}});
    let found = checked(&schema(), &object(2), Some(&object(1)));
    assert_eq!(found.problems, []);
    assert_eq!(found.warnings, ["spec.max: Forbidden: failed rule: self < 100"]);
}

#[test]
fn rules_share_a_budget() {
    let schema = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer",
        "x-kubernetes-validations": [{"rule": "[1, 2, 3, 4, 5, 6, 7, 8, 9].all(a, [1, 2, 3, 4, 5, 6, 7, 8, 9].all(b, [1, 2, 3].all(c, self >= 0)))"}]}}}});
    let object = json!({"l": vec![1; 20_000]});
    let found = checked(&schema, &object, None);
    let [problem] = &found.problems[..] else {
        panic!("one problem")
    };
    assert!(
        problem
            .detail
            .starts_with("validation failed due to running out of cost budget"),
        "{problem}"
    );
    assert!(found.cost <= 11_000_000);
}

#[test]
fn rules_that_do_not_compile_are_told() {
    let schema =
        json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.nope"}, {"rule": "1"}]});
    let found = checked(&schema, &json!({}), None).problems;
    let details: Vec<_> = found
        .iter()
        .map(|own| own.detail.lines().next().unwrap())
        .collect();
    assert_eq!(
        details,
        [
            "rule compile error: compilation failed: ERROR: <input>:1:5: undefined field 'nope'",
            "rule compile error: cel expression must evaluate to a bool",
        ]
    );
}

#[test]
fn rules_that_cannot_be_are_problems_of_the_definition() {
    let schema = json!({"type": "object", "properties": {"l": {
        "type": "array", "items": {"type": "string", "x-kubernetes-validations": [
            {"rule": "self.contains('x')"},
            {"rule": "self == oldSelf"},
            {"rule": "self.nope()"},
        ]},
        "x-kubernetes-validations": [
            {"rule": "self.all(a, self.all(b, a == b))"},
            {"rule": "self.size() > 0", "messageExpression": "1"},
            {"rule": "self.size() > 0", "optionalOldSelf": true},
        ],
    }}});
    let path = machinery_meta::FieldPath::new("s");
    let found = Rules::compile(&schema).unwrap().problems(&path);
    let found: Vec<_> = found
        .iter()
        .map(|own| own.to_string().lines().next().unwrap().to_owned())
        .collect();
    let budget = "exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";
    let own = "s.properties[l].x-kubernetes-validations";
    let items = "s.properties[l].items.x-kubernetes-validations";
    assert_eq!(
        found,
        [
            format!("{own}[0].rule: Forbidden: estimated rule cost {budget}"),
            format!(
                "{own}[1].messageExpression: Invalid value: \"self.size() > 0\": messageExpression must evaluate to a string"
            ),
            format!(
                "{own}[2].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"
            ),
            format!("{items}[0].rule: Forbidden: estimated rule cost {budget}"),
            format!("{items}[1].rule: Forbidden: estimated rule cost {budget}"),
            format!(
                "{items}[1].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[l]"
            ),
            format!(
                "{items}[2].rule: Invalid value: \"self.nope()\": compilation failed: ERROR: <input>:1:10: undeclared reference to 'nope' (in container '')"
            ),
            format!(
                "s: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema {budget}"
            ),
        ]
    );
}

#[test]
fn rules_use_no_function_of_this_release_yet() {
    let refused = Env::new().compile("[1].includes(1)").unwrap_err().to_string();
    assert!(
        refused.contains("undeclared reference to 'includes' (in container '')"),
        "{refused}"
    );
}

#[test]
fn rules_know_their_greatest_work() {
    let work = |rule: &str| {
        let schema = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer"}}},
            "x-kubernetes-validations": [{"rule": rule}]});
        Rules::compile(&schema).unwrap().greatest_work()
    };
    assert!(work("has(self.l)") < 100);
    assert!(work("self.l.all(a, self.l.all(b, a >= b))") > 10_000_000);
}
