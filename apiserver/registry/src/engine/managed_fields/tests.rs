//! The same requests went to the real server (1.37.1); what it answered is the expectation here.

use super::apply::within;
use super::{ApplyError, Subject, Writer, entries, record, track};
use crate::engine::row::ResourceRow;
use crate::engine::strategy::ObjectPart;
use machinery_schema::apply::Steps;
use machinery_schema::{Exceeded, Step, Strictness, Tree, apply_defaults, decode_json};

fn row(plural: &str) -> ResourceRow {
    crate::kinds::built_in_rows()
        .into_iter()
        .find(|row| row.plural == plural && row.gvk.version == "v1")
        .unwrap()
}

const NOW: &str = "2026-01-01T00:00:00Z";
const LATER: &str = "2026-01-01T00:00:05Z";

fn writer(manager: &str) -> Writer {
    at(manager, NOW)
}

fn at(manager: &str, now: &str) -> Writer {
    Writer {
        manager: manager.to_owned(),
        now: now.to_owned(),
    }
}

fn apply(
    row: &ResourceRow,
    (manager, part): (&str, ObjectPart),
    live: Option<&Tree>,
    configuration: &Tree,
    force: bool,
) -> Result<Tree, ApplyError> {
    super::apply(
        Subject::part(row, part, &()),
        &writer(manager),
        live,
        configuration,
        force,
    )
}

/// The object as an update makes it, with the record of its owners; from nothing, as a create does.
fn updated(row: &ResourceRow, writer: &Writer, live: Option<&Tree>, mut object: Tree) -> Tree {
    let nothing = Tree::new(&row.schema, row.ty);
    let subject = Subject::part(row, ObjectPart::Main, &());
    track(subject, writer, live.unwrap_or(&nothing), &mut object).unwrap();
    if live.is_none() {
        object.set_str(&["metadata", "uid"], "u");
    }
    object
}

fn configuration(json: &str) -> Tree {
    Tree::from_json(json).unwrap()
}

fn object(row: &ResourceRow, json: &str) -> Tree {
    let decoded = decode_json(&row.schema, row.ty, json.as_bytes(), Strictness::Ignore).unwrap();
    let mut tree = decoded.tree;
    apply_defaults(&mut tree);
    row.strategy.defaults(&mut tree);
    tree
}

/// Manager, operation and fields of each entry.
fn owners(object: &Tree) -> Vec<(String, String)> {
    let owners = entries::read(record(object)).unwrap();
    owners
        .into_iter()
        .map(|entry| (entry.shown(), entry.fields.set().to_json()))
        .collect()
}

/// Applies one configuration after the other; gives the last object, or the last refusal.
fn applied(row: &ResourceRow, steps: &[(&str, &str, bool)]) -> Result<Tree, String> {
    let mut live: Option<Tree> = None;
    for (manager, json, force) in steps {
        let made = apply(
            row,
            (manager, ObjectPart::Main),
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
fn owners_field_left_out_is_removed() {
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
fn owners_equal_value_is_shared() {
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
            // It changed nothing, so it has no time and comes first.
            (
                "m2",
                r#"{"f:data":{"f:k":{}},"f:metadata":{"f:labels":{"f:a":{}}}}"#,
            ),
            ("m1", r#"{"f:metadata":{"f:labels":{"f:c":{}}}}"#),
        ],
    );
}

const OTHER_LABEL: &str =
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"c":"d"}}}"#;

#[test]
fn owners_service_ports_are_distinct() {
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
    let changed = object(
        &row,
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a":"b","x":"y"}},"data":{"k":"new","u":"1"}}"#,
    );
    let changed = updated(&row, &writer("upd"), Some(&live), changed);
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
fn owners_fields_before_first_apply_have_an_owner() {
    let row = row("configmaps");
    let live = object(
        &row,
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"k":"v"}}"#,
    );
    let run = |json: &str| {
        apply(
            &row,
            ("m1", ObjectPart::Main),
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
fn owners_record_begins_with_the_create() {
    let row = row("configmaps");
    let made = updated(&row, &writer("upd"), None, object(&row, FIRST));
    assert_eq!(
        owners(&made),
        [(
            r#""upd" using v1"#.to_owned(),
            r#"{"f:data":{".":{},"f:k":{},"f:l":{}},"f:metadata":{"f:labels":{".":{},"f:a":{}}}}"#.to_owned()
        )]
    );
}

#[test]
fn owners_update_by_an_applier_is_an_entry_of_its_own() {
    let row = row("configmaps");
    let mut live = applied(&row, &[("m", FIRST, false)]).unwrap();
    live.set_str(&["metadata", "uid"], "u");
    for value in ["v2", "v3"] {
        let mut changed = live.clone();
        changed.set_str(&["data", "k"], value);
        live = updated(&row, &writer("m"), Some(&live), changed);
        let expected = [
            (
                r#""m""#,
                r#"{"f:data":{"f:l":{}},"f:metadata":{"f:labels":{"f:a":{}}}}"#,
            ),
            (r#""m" using v1"#, r#"{"f:data":{"f:k":{}}}"#),
        ];
        let expected = expected.map(|(name, fields)| (name.to_owned(), fields.to_owned()));
        assert_eq!(owners(&live), expected, "{value}");
    }
}

#[test]
fn record_that_was_reset_stays_away_until_an_apply() {
    let row = row("configmaps");
    let made = updated(&row, &writer("upd"), None, object(&row, FIRST));
    for reset in [r#"[{}]"#, "[]"] {
        let mut without = made.clone();
        let list = configuration(reset);
        without.set(
            &[Step::Name("metadata"), Step::Name("managedFields")],
            list.root(),
        );
        let without = updated(&row, &writer("upd"), Some(&made), without);
        assert!(record(&without).is_none(), "{reset}");
        let mut more = without.clone();
        more.set_str(&["data", "n"], "1");
        let more = updated(&row, &writer("upd"), Some(&without), more);
        assert!(record(&more).is_none(), "{reset}");
        let wanted = configuration(OTHER_LABEL);
        let applied = apply(&row, ("m1", ObjectPart::Main), Some(&more), &wanted, false).unwrap();
        let names: Vec<String> = owners(&applied).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [r#""m1""#, r#""before-first-apply" using v1"#]);
    }
}

/// Manager and time of each entry.
fn times(object: &Tree) -> Vec<(String, String)> {
    let owners = entries::read(record(object)).unwrap();
    owners
        .into_iter()
        .map(|entry| (entry.manager, entry.time))
        .collect()
}

#[test]
fn time_moves_with_every_change_of_a_manager() {
    let row = row("configmaps");
    let made = updated(&row, &writer("upd"), None, object(&row, FIRST));
    let mut changed = made.clone();
    changed.set_str(&["data", "k"], "other");
    let changed = updated(&row, &at("upd", LATER), Some(&made), changed);
    assert_eq!(times(&changed), [("upd".to_owned(), LATER.to_owned())]);
    assert_eq!(owners(&changed), owners(&made), "the fields are the same");
    let mut less = changed.clone();
    less.remove(&["data", "l"]);
    let less = updated(&row, &at("upd", "2026-01-01T00:00:09Z"), Some(&changed), less);
    assert_eq!(
        times(&less),
        [("upd".to_owned(), LATER.to_owned())],
        "nothing was taken"
    );
}

#[test]
fn owners_time_alone_is_no_change() {
    let row = row("configmaps");
    let made = updated(&row, &writer("upd"), None, object(&row, FIRST));
    let mut same = made.clone();
    let moved = super::entries::read(record(&made))
        .unwrap()
        .into_iter()
        .map(|entry| super::entries::Entry {
            time: LATER.to_owned(),
            ..entry
        });
    entries::store(
        Subject::part(&row, ObjectPart::Main, &()),
        &mut same,
        moved.collect(),
    )
    .unwrap();
    assert!(same != made);
    super::keep_times(&mut same, &made);
    assert!(same == made);
    let mut other = same.clone();
    other.set_str(&["data", "k"], "other");
    super::keep_times(&mut other, &made);
    assert!(other != made);
}

#[test]
fn time_of_an_apply_moves_only_with_the_object() {
    let row = row("configmaps");
    let made = applied(
        &row,
        &[("m1", FIRST, false), ("m2", LESS, true), ("m3", LESS, false)],
    )
    .unwrap();
    let times = times(&made);
    let of = |name: &str| {
        times
            .iter()
            .find(|(own, _)| own == name)
            .map(|(_, time)| time.as_str())
    };
    assert_eq!((of("m2"), of("m3")), (Some(NOW), Some("")));
}

#[test]
fn managers_of_updates_are_joined_when_there_are_too_many() {
    let row = row("configmaps");
    let mut live = updated(&row, &writer("first"), None, object(&row, FIRST));
    for number in 0..12 {
        let mut next = live.clone();
        next.set_str(&["data", &format!("n{number}")], "1");
        let now = format!("2026-01-01T00:01:{number:02}Z");
        live = updated(&row, &at(&format!("m{number}"), &now), Some(&live), next);
    }
    let names: Vec<String> = times(&live).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "ancient-changes",
            "m3",
            "m4",
            "m5",
            "m6",
            "m7",
            "m8",
            "m9",
            "m10",
            "m11"
        ]
    );
    assert_eq!(
        owners(&live)[0].1,
        r#"{"f:data":{".":{},"f:k":{},"f:l":{},"f:n0":{},"f:n1":{},"f:n2":{}},"f:metadata":{"f:labels":{".":{},"f:a":{}}}}"#
    );
}

#[test]
fn record_of_a_create_names_fields_as_upstream_does() {
    let row = row("deployments");
    let made = object(
        &row,
        r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":8080},{"containerPort":443},{"containerPort":80,"protocol":"UDP"}],"env":[{"name":"x","value":"1"},{"name":"x","value":"2"},{"name":"y"}]}],"tolerations":[{"key":"k"}]}}},"status":{"replicas":3}}"#,
    );
    let made = updated(&row, &writer("upd"), None, made);
    assert_eq!(
        owners(&made)[0].1,
        r#"{"f:spec":{"f:progressDeadlineSeconds":{},"f:replicas":{},"f:revisionHistoryLimit":{},"f:selector":{},"f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{},"f:maxUnavailable":{}},"f:type":{}},"f:template":{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"x\"}":{},"k:{\"name\":\"y\"}":{".":{},"f:name":{}}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"UDP\"}":{".":{},"f:containerPort":{},"f:protocol":{}},"k:{\"containerPort\":443,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{},"f:tolerations":{}}}}}"#
    );
}

#[test]
fn record_of_a_body_is_taken_where_it_can_be_read() {
    let row = row("configmaps");
    let check = |given: &str, expected: &[&str]| {
        let made = updated(&row, &writer("upd"), None, object(&row, FIRST));
        let mut changed = made.clone();
        let list = configuration(given);
        changed.set(
            &[Step::Name("metadata"), Step::Name("managedFields")],
            list.root(),
        );
        let changed = updated(&row, &writer("upd"), Some(&made), changed);
        let names: Vec<String> = times(&changed).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, expected, "{given}");
    };
    let entry = |more: &str, fields: &str| {
        format!(r#"[{{"manager":"given","fieldsType":"FieldsV1",{more},"fieldsV1":{fields}}}]"#)
    };
    let update = r#""operation":"Update","apiVersion":"v1""#;
    check(&entry(update, r#"{"f:data":{"f:k":{}}}"#), &["given"]);
    check(
        &entry(
            r#""operation":"Update","apiVersion":"gone/v1""#,
            r#"{"f:data":{}}"#,
        ),
        &[],
    );
    check(&entry(update, r#"{"data":{}}"#), &["upd"]);
    check(&entry(update, r#"{"f:data":1}"#), &["upd"]);
    check(&entry(r#""operation":"Steal","apiVersion":"v1""#, "{}"), &["upd"]);
    check(&entry(r#""operation":"Apply""#, "{}"), &["upd"]);
    check("null", &["upd"]);
}

#[test]
fn record_has_a_bound() {
    let row = row("configmaps");
    let live = updated(&row, &writer("upd"), None, object(&row, FIRST));
    let mut large = live.clone();
    for number in 0..2_000 {
        large.set_str(&["data", &format!("{number:0600}")], "");
    }
    let made = updated(&row, &writer("upd"), Some(&live), large.clone());
    assert!(record(&made).is_none());
    let text = large.root().to_json();
    let refused = apply(
        &row,
        ("m1", ObjectPart::Main),
        Some(&live),
        &configuration(&text),
        true,
    )
    .unwrap_err();
    assert!(matches!(refused, ApplyError::TooManyOwners), "{refused}");
}

#[test]
fn owners_status_has_its_own() {
    let row = row("deployments");
    let live = object(
        &row,
        r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x"},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{}}}"#,
    );
    let wanted = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x"},"spec":{"replicas":3},"status":{"replicas":4,"conditions":[{"type":"A","status":"True"}]}}"#;
    let made = apply(
        &row,
        ("st", ObjectPart::Status),
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

/// The object that `kubectl apply` left, after another manager set `l`.
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
        apply(
            &row,
            (manager, ObjectPart::Main),
            Some(&live),
            &configuration,
            false,
        )
        .map_err(|error| error.to_string())
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
        let (most, writer) = (60 * MANAGERS as u64, writer("m0"));
        let subject = Subject::part(&row, ObjectPart::Main, &());
        let made = within(&Steps::new(most), subject, &writer, Some(&live), (&wanted, true));
        made.unwrap_or_else(|error| panic!("{operation}: {error}"));
        let few = within(&Steps::new(1_000), subject, &writer, Some(&live), (&wanted, true));
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
    let refused = apply(&row, ("other", ObjectPart::Main), Some(&live), &wanted, false).unwrap_err();
    let bytes = refused.to_string().len();
    assert!(bytes > 1 << 20 && bytes < 2 << 20, "{bytes}");
}

#[test]
fn record_of_a_create_is_what_comparing_finds() {
    for (plural, json) in [
        ("configmaps", FIRST),
        (
            "services",
            r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"x","labels":{},"finalizers":["a/b","a\"&b"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]},"spec":{"ports":[{"port":443},{"port":80},{"port":80}],"selector":{"a":"b"}},"status":{"loadBalancer":{}}}"#,
        ),
        (
            "pods",
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"x","annotations":{"a\"b":"c"}},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":8080},{"containerPort":443}],"env":[{"name":"x","value":"1"},{"name":"x","value":"2"},{"name":"a\"<b","value":"3"},{"name":"x y"},{"name":"x!"},{"name":"xa"},{"name":"x\ty"}],"resources":{"limits":{"cpu":"1"}}}],"volumes":[{"name":"v","emptyDir":{}}],"tolerations":[{"key":"k"}]},"status":{"phase":"Running"}}"#,
        ),
        (
            "controllerrevisions",
            r#"{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"c"},"revision":1,"data":{"a":{"b":1}}}"#,
        ),
        (
            "certificatesigningrequests",
            r#"{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"c","labels":{"a":"b"}},"spec":{"request":"AA==","signerName":"a/b","usages":["any"]}}"#,
        ),
    ] {
        let row = row(plural);
        let (new, nothing) = (object(&row, json), Tree::new(&row.schema, row.ty));
        let subject = Subject::part(&row, ObjectPart::Main, &());
        let (steps, none) = (Steps::default(), Vec::new());
        let long = super::update::updated(&steps, subject, &writer("m"), &nothing, &new, none).unwrap();
        let made = updated(&row, &writer("m"), None, new);
        let texts = |owners: Vec<entries::Entry>| -> Vec<String> {
            let texts = owners.iter().map(|entry| entry.fields.text(false).into_owned());
            texts.collect()
        };
        assert_eq!(
            texts(entries::stored(record(&made)).unwrap()),
            texts(long),
            "{plural}"
        );
    }
}
