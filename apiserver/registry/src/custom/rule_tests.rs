//! Rules of a definition, run on writes of its objects.

use super::definition::rows;
use crate::engine::context::RequestContext;
use crate::engine::strategy::ObjectPart;
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;
use machinery_schema::{Strictness, Tree, decode_json};
use std::time::Duration;

fn definition(rule: &str) -> Tree {
    let schema = format!(
        r#"{{"type":"object","properties":{{"spec":{{"type":"object","x-kubernetes-validations":[{{"rule":"{rule}","message":"too many"}}],"properties":{{"n":{{"type":"integer"}},"s":{{"type":"string","maxLength":2}}}}}}}}}}"#
    );
    let text = format!(
        r#"{{"spec":{{"group":"t.dev","scope":"Namespaced","names":{{"plural":"boats","kind":"Boat"}},"versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{schema}}}}}]}},"status":{{"acceptedNames":{{"plural":"boats","kind":"Boat"}}}}}}"#
    );
    Tree::from_json(&text).unwrap()
}

#[track_caller]
fn check(rule: &str, object: &str, expected: &[&str]) {
    let rows = rows(&definition(rule), None);
    let row = rows.first().expect("a version is served");
    let object = decode_json(&row.schema, row.ty, object.as_bytes(), Strictness::Ignore).unwrap();
    let found = row.strategy.validate(object.tree.root());
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

#[test]
fn rules_of_a_definition_refuse_objects() {
    check("self.n < 3", r#"{"spec":{"n":2}}"#, &[]);
    check(
        "self.n < 3",
        r#"{"spec":{"n":3}}"#,
        &["spec: Invalid value: too many"],
    );
}

#[test]
fn rules_are_not_run_on_what_has_no_right_form() {
    let blocked = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    let found = r#"{"spec":{"n":3,"s":"long"}}"#;
    check(
        "self.n < 3",
        found,
        &["spec.s: Too long: may not be more than 2 bytes", blocked],
    );
}

/// A rule that an object broke before is a warning of the update, and the rules run once for problems and warnings.
#[tokio::test]
async fn rules_run_once_and_warn_of_what_an_update_leaves() {
    let rows = rows(&definition("self.n < 3"), None);
    let row = rows.first().expect("a version is served");
    let read = |json: &str| decode_json(&row.schema, row.ty, json.as_bytes(), Strictness::Ignore).unwrap();
    let object = read(r#"{"metadata":{"labels":{"a":"b"}},"spec":{"n":3}}"#);
    let old = read(r#"{"spec":{"n":3}}"#);
    let ctx = RequestContext::internal(UserInfo::named("u", [UserInfo::AUTHENTICATED]), Runtime::real());
    let (object, old) = (object.tree.root(), old.tree.root());
    let problems = row.strategy.validate_update(&ctx, ObjectPart::Main, object, old);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(ctx.warnings.take(), ["spec: Invalid value: too many"]);
    let again = row.strategy.warnings(object, Some(old));
    assert!(again.is_empty(), "{again:?}");
}

/// Rules of a request whose client has left, or whose time is over, end early.
#[tokio::test]
async fn rules_end_where_nobody_waits_for_them() {
    let rows = rows(&definition("[1].all(e, self.n < 3)"), None);
    let row = rows.first().expect("a version is served");
    let read = |json: &str| decode_json(&row.schema, row.ty, json.as_bytes(), Strictness::Ignore).unwrap();
    let (object, old) = (read(r#"{"spec":{"n":2}}"#), read(r#"{"spec":{"n":1}}"#));
    let (object, old) = (object.tree.root(), old.tree.root());
    let user = || UserInfo::named("u", [UserInfo::AUTHENTICATED]);
    let found = |ctx: &RequestContext| {
        let created = row.strategy.validate_within(ctx, object);
        let updated = row.strategy.validate_update(ctx, ObjectPart::Main, object, old);
        let both = created.iter().chain(&updated).map(ToString::to_string);
        both.collect::<Vec<_>>()
    };
    let ctx = RequestContext::internal(user(), Runtime::real());
    assert_eq!(found(&ctx), Vec::<String>::new());
    let ended = "spec: Invalid value: \"object\": operation interrupted evaluating rule: too many";
    assert!(ctx.point_of_no_return.abandon());
    assert_eq!(found(&ctx), [ended; 2]);
    let late = RequestContext {
        deadline: Some(Duration::ZERO),
        ..RequestContext::internal(user(), Runtime::real())
    };
    assert_eq!(found(&late), [ended; 2]);
    // What is written already is carried out.
    let ctx = RequestContext::internal(user(), Runtime::real());
    assert!(ctx.point_of_no_return.pass() && !ctx.point_of_no_return.abandon());
    assert_eq!(found(&ctx), Vec::<String>::new());
}
