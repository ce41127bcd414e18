//! The order of migrations, their messages, and the status of definitions.

use super::definitions::{begun, finished};
use super::plan::{MigrationRef, Step, next, running};
use machinery_client::object::object_of;
use serde_json::{Value, json};
use std::slice::from_ref;
use std::sync::Arc;

/// A migration of widgets, made in this second, with these conditions and this revision.
fn migration(name: &str, second: u8, conditions: &[(&str, &str)], revision: &str) -> MigrationRef {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status)| json!({"type": kind, "status": status}))
        .collect();
    let json = json!({"metadata": {"name": name, "uid": name, "creationTimestamp": format!("2026-01-01T00:00:0{second}Z")},
        "spec": {"resource": {"group": "example.com", "resource": "widgets"}},
        "status": {"conditions": conditions, "resourceVersion": revision}});
    Arc::new(object_of(&json.to_string()).unwrap())
}

#[test]
fn migrations_of_a_resource_take_turns() {
    let (running, over) = (("Running", "True"), ("Succeeded", "True"));
    let old = migration("b", 1, &[], "");
    let young = migration("a", 2, &[], "");
    let same = migration("c", 1, &[], "");
    let all = [old.clone(), young.clone(), same.clone()];
    assert_eq!(next(&old, &all), Step::Begin);
    assert_eq!(next(&young, &all), Step::Nothing, "the oldest first");
    assert_eq!(next(&same, &all), Step::Nothing, "then by name");
    let runs = migration("b", 1, &[running], "");
    assert_eq!(next(&runs, &[runs.clone(), young.clone()]), Step::NoteRevision);
    assert_eq!(next(&young, &[runs, young.clone()]), Step::Nothing);
    let noted = migration("b", 1, &[running], "7");
    assert_eq!(next(&noted, from_ref(&noted)), Step::Migrate);
    let done = migration("b", 1, &[running, over], "7");
    assert_eq!(next(&done, from_ref(&done)), Step::Finish);
    let ended = migration("b", 1, &[("Running", "False"), over], "7");
    assert_eq!(next(&ended, from_ref(&ended)), Step::Nothing);
    assert_eq!(next(&young, &[ended, young.clone()]), Step::Begin);
}

#[test]
fn running_migrations_say_what_is_left() {
    assert_eq!(running(0, 0, None), "The migration is running");
    assert_eq!(
        running(2, 5, None),
        "The migration is running, 2/5 objects not yet migrated"
    );
    let busy = running(0, 5, Some("busy"));
    assert_eq!(
        busy,
        "The migration is running, 5 objects verified migrated; transient error: busy"
    );
}

#[test]
fn definitions_store_one_version_after_a_migration() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut definition = json!({"metadata": {"name": "widgets.example.com", "generation": 3},
        "spec": {"versions": [{"name": "v1", "storage": false}, {"name": "v2", "storage": true}]}, "status": {}});
    let status = begun(&definition, "m", now);
    assert_eq!(status["conditions"][0]["message"], "Migration m is running");
    definition["status"] = status;
    assert_eq!(finished(&definition, true, now)["storedVersions"], json!(["v2"]));
    assert!(finished(&definition, false, now).get("storedVersions").is_none());
    definition["metadata"]["generation"] = json!(4);
    let status = finished(&definition, true, now);
    assert!(status.get("storedVersions").is_none(), "it changed meanwhile");
    assert_eq!(status["conditions"][0]["reason"], "MigrationSucceeded");
}
