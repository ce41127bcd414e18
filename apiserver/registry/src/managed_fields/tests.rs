//! The same requests went to the real server (1.37.1); what it answered is the expectation here.

use super::apply::within;
use super::{ApplyError, Writer, apply, entries, track};
use crate::row::ResourceRow;
use crate::strategy::Part;
use machinery_schema::apply::Steps;
use machinery_schema::{Exceeded, Strictness, Tree, apply_defaults, decode_json};

fn row(plural: &str) -> ResourceRow {
    crate::kinds::built_in()
        .into_iter()
        .find(|row| row.plural == plural && row.gvk.version == "v1")
        .unwrap()
}

fn writer(manager: &str, part: Part) -> Writer {
    Writer {
        manager: manager.to_owned(),
        part,
        now: "2026-01-01T00:00:00Z".to_owned(),
    }
}

fn configuration(json: &str) -> Tree {
    Tree::from_json(json).unwrap()
}

fn object(row: &ResourceRow, json: &str) -> Tree {
    let decoded = decode_json(&row.schema, row.ty, json.as_bytes(), Strictness::Ignore).unwrap();
    let mut tree = decoded.tree;
    apply_defaults(&mut tree);
    tree
}

/// Manager, operation and fields of each entry.
fn owners(object: &Tree) -> Vec<(String, String)> {
    entries::read(object)
        .into_iter()
        .map(|entry| (entry.shown(), entry.fields.to_json()))
        .collect()
}

/// Applies one configuration after the other; gives the last object, or the last refusal.
fn applied(row: &ResourceRow, steps: &[(&str, &str, bool)]) -> Result<Tree, String> {
    let mut live: Option<Tree> = None;
    for (manager, json, force) in steps {
        let made = apply(
            row,
            &writer(manager, Part::Main),
            live.as_ref(),
            &configuration(json),
            *force,
        );
        let mut made = made.map_err(|error| error.to_string())?;
        apply_defaults(&mut made);
        live = Some(made);
    }
    Ok(live.unwrap())
}

#[track_caller]
fn check(plural: &str, steps: &[(&str, &str, bool)], member: &str, expected: &str, fields: &[(&str, &str)]) {
    let made = applied(&row(plural), steps).unwrap();
    assert_eq!(made.get(member).unwrap().to_json(), expected);
    let fields: Vec<(String, String)> = fields
        .iter()
        .map(|(manager, fields)| (format!("{manager:?}"), (*fields).to_owned()))
        .collect();
    assert_eq!(owners(&made), fields);
}

const FIRST: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a":"b"}},"data":{"k":"v","l":"w"}}"#;
const LESS: &str =
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a":"b"}},"data":{"k":"v2"}}"#;
const OTHER: &str =
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"k":"v3","z":"q"}}"#;

#[test]
fn what_is_left_out_goes() {
    check(
        "configmaps",
        &[("m1", FIRST, false), ("m1", LESS, false)],
        "data",
        r#"{"k":"v2"}"#,
        &[(
            "m1",
            r#"{"f:data":{"f:k":{}},"f:metadata":{"f:labels":{"f:a":{}}}}"#,
        )],
    );
}

#[test]
fn fields_of_others_are_conflicts_unless_forced() {
    let row = row("configmaps");
    let refused = applied(&row, &[("m1", LESS, false), ("m2", OTHER, false)]).unwrap_err();
    assert_eq!(
        refused,
        r#"Apply failed with 1 conflict: conflict with "m1": .data.k"#
    );
    check(
        "configmaps",
        &[("m1", LESS, false), ("m2", OTHER, true)],
        "data",
        r#"{"k":"v3","z":"q"}"#,
        &[
            ("m1", r#"{"f:metadata":{"f:labels":{"f:a":{}}}}"#),
            ("m2", r#"{"f:data":{"f:k":{},"f:z":{}}}"#),
        ],
    );
}

#[test]
fn the_same_value_is_shared() {
    check(
        "configmaps",
        &[
            ("m1", LESS, false),
            ("m2", LESS, false),
            ("m1", OTHER_LABEL, false),
        ],
        "data",
        r#"{"k":"v2"}"#,
        &[
            ("m1", r#"{"f:metadata":{"f:labels":{"f:c":{}}}}"#),
            (
                "m2",
                r#"{"f:data":{"f:k":{}},"f:metadata":{"f:labels":{"f:a":{}}}}"#,
            ),
        ],
    );
}

const OTHER_LABEL: &str =
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"c":"d"}}}"#;

#[test]
fn a_services_ports_are_told_apart() {
    let service = |ports: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"x"}},"spec":{{"selector":{{"a":"b"}},"ports":[{ports}]}}}}"#
        )
    };
    let row = row("services");
    let made = applied(&row, &[("m1", &service(r#"{"port":80}"#), false)]).unwrap();
    assert_eq!(
        owners(&made),
        [(
            r#""m1""#.to_owned(),
            r#"{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}},"f:selector":{}}}"#
                .to_owned()
        )]
    );
    let refused = |ports: &str| applied(&row, &[("m1", &service(ports), false)]).unwrap_err();
    assert_eq!(
        refused(r#"{"port":80},{"port":80,"protocol":"TCP"}"#),
        r#"failed to create typed patch object (/x; /v1, Kind=Service): .spec.ports: duplicate entries for key [port=80,protocol="TCP"]"#
    );
}

#[test]
fn other_writes_take_fields_too() {
    let row = row("configmaps");
    let live = applied(&row, &[("m1", FIRST, false)]).unwrap();
    let mut changed = object(
        &row,
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a":"b","x":"y"}},"data":{"k":"new","u":"1"}}"#,
    );
    track(&row, &writer("upd", Part::Main), &live, &mut changed).unwrap();
    assert_eq!(
        owners(&changed),
        [
            (
                r#""m1""#.to_owned(),
                r#"{"f:metadata":{"f:labels":{"f:a":{}}}}"#.to_owned()
            ),
            (
                r#""upd" using v1"#.to_owned(),
                r#"{"f:data":{"f:k":{},"f:u":{}},"f:metadata":{"f:labels":{"f:x":{}}}}"#.to_owned()
            ),
        ]
    );
}

#[test]
fn what_was_there_before_the_first_apply_has_an_owner() {
    let row = row("configmaps");
    let live = object(
        &row,
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"k":"v"}}"#,
    );
    let run = |json: &str| {
        apply(
            &row,
            &writer("m1", Part::Main),
            Some(&live),
            &configuration(json),
            false,
        )
    };
    assert_eq!(
        run(OTHER).unwrap_err().to_string(),
        r#"Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.k"#
    );
    let shared =
        run(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"k":"v","n":"1"}}"#)
            .unwrap();
    assert_eq!(shared.get("data").unwrap().to_json(), r#"{"k":"v","n":"1"}"#);
}

#[test]
fn an_object_that_nobody_applied_carries_no_record() {
    let row = row("configmaps");
    let live = object(&row, OTHER);
    let mut changed = object(&row, LESS);
    track(&row, &writer("upd", Part::Main), &live, &mut changed).unwrap();
    assert!(owners(&changed).is_empty());
}

#[test]
fn a_status_has_owners_of_its_own() {
    let row = row("deployments");
    let live = object(
        &row,
        r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x"},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{}}}"#,
    );
    let wanted = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x"},"spec":{"replicas":3},"status":{"replicas":4,"conditions":[{"type":"A","status":"True"}]}}"#;
    let made = apply(
        &row,
        &writer("st", Part::Status),
        Some(&live),
        &configuration(wanted),
        false,
    )
    .unwrap();
    let own = owners(&made)
        .into_iter()
        .find(|(manager, _)| manager.contains("status"))
        .unwrap();
    assert_eq!(
        own,
        (
            r#""st" with subresource "status""#.to_owned(),
            r#"{"f:status":{"f:conditions":{"k:{\"type\":\"A\"}":{".":{},"f:status":{},"f:type":{}}},"f:replicas":{}}}"#
                .to_owned()
        )
    );
}

/// What `kubectl apply` left, after somebody set `l`.
fn applied_by_the_client(row: &ResourceRow) -> Tree {
    let last = r#"{\"apiVersion\":\"v1\",\"data\":{\"k\":\"v\",\"l\":\"w\"},\"kind\":\"ConfigMap\",\"metadata\":{\"annotations\":{},\"name\":\"x\"}}"#;
    let json = format!(
        r#"{{"metadata":{{"name":"x","annotations":{{"kubectl.kubernetes.io/last-applied-configuration":"{last}"}}}},"data":{{"k":"v","l":"other"}}}}"#
    );
    object(row, &json)
}

#[test]
fn kubectl_goes_on_from_what_it_applied_as_a_client() {
    let row = row("configmaps");
    let live = applied_by_the_client(&row);
    let apply = |manager: &str, data: &str| {
        let configuration = configuration(&format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"x","annotations":{{"note":"<a>"}}}},"data":{data}}}"#
        ));
        let writer = writer(manager, Part::Main);
        apply(&row, &writer, Some(&live), &configuration, false).map_err(|error| error.to_string())
    };
    let made = apply("kubectl", r#"{"k":"v2","l":"other"}"#).unwrap();
    assert_eq!(made.get("data").unwrap().to_json(), r#"{"k":"v2","l":"other"}"#);
    let annotation = [
        "metadata",
        "annotations",
        "kubectl.kubernetes.io/last-applied-configuration",
    ];
    assert_eq!(
        made.str_at(&annotation),
        "{\"apiVersion\":\"v1\",\"data\":{\"k\":\"v2\",\"l\":\"other\"},\"kind\":\"ConfigMap\",\"metadata\":{\"annotations\":{\"note\":\"\\u003ca\\u003e\"},\"name\":\"x\"}}\n"
    );
    let conflict = |path: &str| {
        format!(r#"Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.{path}"#)
    };
    assert_eq!(
        apply("kubectl", r#"{"k":"v2","l":"w3"}"#).unwrap_err(),
        conflict("l"),
        "what somebody else has set meanwhile stays theirs"
    );
    assert_eq!(apply("other", r#"{"k":"v2"}"#).unwrap_err(), conflict("k"));
}

/// A config map with so many managers of one field each.
fn with_managers(row: &ResourceRow, operation: &str, count: usize) -> Tree {
    let entry = |number: usize| {
        format!(
            r#"{{"manager":"m{number}","operation":"{operation}","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:data":{{"f:k{number}":{{}}}}}}}}"#
        )
    };
    let entries: Vec<String> = (0..count).map(entry).collect();
    let data: Vec<String> = (0..count).map(|number| format!(r#""k{number}":"v""#)).collect();
    let text = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c","namespace":"d","managedFields":[{}]}},"data":{{{}}}}}"#,
        entries.join(","),
        data.join(",")
    );
    object(row, &text)
}

#[test]
fn apply_takes_steps_in_proportion_to_all_owners() {
    const MANAGERS: usize = 2_000;
    let row = row("configmaps");
    for operation in ["Apply", "Update"] {
        let live = with_managers(&row, operation, MANAGERS);
        let wanted = configuration(
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"d"},"data":{"k0":"w"}}"#,
        );
        let (most, writer) = (60 * MANAGERS as u64, writer("m0", Part::Main));
        let made = within(&Steps::new(most), &row, &writer, Some(&live), (&wanted, true));
        made.unwrap_or_else(|error| panic!("{operation}: {error}"));
        let few = within(&Steps::new(1_000), &row, &writer, Some(&live), (&wanted, true));
        assert!(
            matches!(few, Err(ApplyError::TooLong(Exceeded::Steps))),
            "{operation}"
        );
    }
}

#[test]
fn apply_shows_no_more_paths_than_fit_a_message() {
    let row = row("configmaps");
    let name = "n".repeat(4_000);
    let keys: Vec<String> = (0..20)
        .map(|number| format!(r#""f:{name}{number}":{{}}"#))
        .collect();
    let entry = |number: usize| {
        format!(
            r#"{{"manager":"m{number}","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{"f:data":{{{}}}}}}}"#,
            keys.join(",")
        )
    };
    let entries: Vec<String> = (0..100).map(entry).collect();
    let data = |value: &str| {
        let data = (0..20).map(|number| format!(r#""{name}{number}":"{value}""#));
        data.collect::<Vec<_>>().join(",")
    };
    let head = r#""apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"d""#;
    let live = format!(
        r#"{{{head},"managedFields":[{}]}},"data":{{{}}}}}"#,
        entries.join(","),
        data("v")
    );
    let wanted = configuration(&format!(r#"{{{head}}},"data":{{{}}}}}"#, data("w")));
    let live = object(&row, &live);
    let refused = apply(&row, &writer("other", Part::Main), Some(&live), &wanted, false).unwrap_err();
    let bytes = refused.to_string().len();
    assert!(bytes > 1 << 20 && bytes < 2 << 20, "{bytes}");
}
