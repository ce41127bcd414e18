use std::path::PathBuf;

use serde_json::json;

use super::record::Records;
use super::*;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn groups() -> Vec<Group> {
    let facts = Facts::read(&folder("../machinery/api/facts")).unwrap();
    read_all(&folder("cases"), &facts).unwrap()
}

/// The quick half of the replay: it needs no server.
#[test]
fn generated_cases_differ_and_recordings_are_theirs() {
    let groups = groups();
    let records = Records::read(&folder("generated")).unwrap();
    let ids: BTreeSet<&str> = groups.iter().map(|group| group.case.id.as_str()).collect();
    let mut problems: Vec<String> = groups
        .iter()
        .filter_map(|group| Some(records.answers(group).err()?.to_string()))
        .collect();
    let gone = records.ids().filter(|id| !ids.contains(id));
    problems.extend(gone.map(|id| format!("{id} is gone; run `cargo xtask diff --record`")));
    let namespaces: BTreeSet<_> = groups.iter().map(|group| group.case.namespace()).collect();
    assert_eq!(namespaces.len(), groups.len(), "two groups share a namespace");
    let probes: Vec<String> = groups
        .iter()
        .flat_map(|group| group.compared().map(|probe| group.id(probe)))
        .collect();
    let different: BTreeSet<_> = probes.iter().collect();
    assert_eq!(different.len(), probes.len(), "an id is used twice");
    assert!(probes.len() > 4_000, "only {} probes", probes.len());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// kube-apiserver takes the options of a delete from its body alone where it has one.
#[test]
fn generated_writes_are_dry_runs() {
    for group in groups() {
        for probe in group.compared() {
            let (method, path) = probe.step.request.split_once(' ').unwrap();
            let in_body = probe.step.body.as_ref().map(|body| body.get("dryRun").is_some());
            let is_dry = path.contains("dryRun=") && (method != "DELETE" || in_body != Some(false));
            assert!(method == "GET" || is_dry, "{}", group.id(probe));
        }
    }
}

#[test]
fn generated_recordings_are_small() {
    let files = super::super::recording::files(&folder("generated")).unwrap();
    let bytes: u64 = files
        .iter()
        .map(|path| path.metadata().map(|metadata| metadata.len()).unwrap())
        .sum();
    // 13,000 lines of some 200 bytes.
    assert!(bytes < 3 << 20, "{bytes} bytes");
}

#[test]
fn recorded_answers_that_never_came_out_alike_are_not_compared() {
    for (answer, expected) in [
        (json!({"code": 200}), true),
        (json!("varies"), false),
        (json!("no answer"), false),
    ] {
        assert_eq!(super::record::is_compared(&answer), expected, "{answer}");
    }
}

#[track_caller]
fn check(path: &str, value: Option<Value>, expected: &Value) {
    let mut document = json!({"a": [{"b": 1, "c": 2}], "d": 3});
    let path = path.split('.').map(str::to_owned).collect();
    Edit { path, value }.apply(&mut document);
    assert_eq!(&document, expected);
}

#[test]
fn edit_changes_one_field() {
    check("a.0.b", Some(7.into()), &json!({"a": [{"b": 7, "c": 2}], "d": 3}));
    check("a.0.b", None, &json!({"a": [{"c": 2}], "d": 3}));
    check("a.0", Some(7.into()), &json!({"a": [7], "d": 3}));
    check("a.5.b", Some(7.into()), &json!({"a": [{"b": 1, "c": 2}], "d": 3}));
    check(
        "e.f",
        Some(7.into()),
        &json!({"a": [{"b": 1, "c": 2}], "d": 3, "e": {"f": 7}}),
    );
    check("d", None, &json!({"a": [{"b": 1, "c": 2}]}));
}
