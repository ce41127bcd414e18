//! Tables of upstream's rules. The hashes are those of a program in Go with upstream's `HashControllerRevision`.

use super::revisions::{canonical, equal, hash, name, next_number, sort, surplus, template_data};
use super::{RevisionRef, RevisionView};
use machinery_client::object::object_of;
use serde_json::json;
use std::sync::Arc;

fn revision(name: &str, number: i64, minute: u32, data: &str) -> RevisionRef {
    let json = json!({
        "metadata": {"name": name, "namespace": "n", "uid": name,
            "creationTimestamp": format!("2026-01-01T00:{minute:02}:00Z")},
        "data": serde_json::from_str::<serde_json::Value>(data).unwrap(), "revision": number,
    });
    Arc::new(object_of::<RevisionView>(&json.to_string()).unwrap())
}

fn names<'a>(revisions: impl IntoIterator<Item = &'a RevisionRef>) -> Vec<&'a str> {
    revisions.into_iter().map(|own| own.name()).collect()
}

#[test]
fn revision_order_is_number_then_age_then_name() {
    let mut all = [
        revision("d", 3, 0, "{}"),
        revision("c", 2, 1, "{}"),
        revision("b", 1, 2, "{}"),
        revision("a", 1, 2, "{}"),
        revision("e", 1, 0, "{}"),
    ];
    sort(&mut all);
    assert_eq!(names(&all), ["e", "a", "b", "c", "d"]);
    assert_eq!(next_number(&all), 4);
    assert_eq!(next_number([]), 1);
    assert_eq!(next_number(&[revision("a", -7, 0, "{}")]), 1);
    assert_eq!(next_number(&[revision("a", i64::MAX, 0, "{}")]), i64::MAX);
}

#[test]
fn revisions_are_equal_by_data_alone() {
    let all = [
        revision("a", 1, 0, r#"{"spec":{"b":1,"a":"<"}}"#),
        revision("b", 2, 0, r#"{"spec":{"a":"<","b":1}}"#),
        revision("c", 3, 0, r#"{"spec":{"a":"<","b":2}}"#),
    ];
    let data = canonical(r#"{ "spec": {"b": 1, "a": "\u003c"} }"#);
    assert_eq!(names(equal(&all, &data)), ["a", "b"]);
}

#[test]
fn revision_names_are_upstreams() {
    HASHES.iter().for_each(|(data, collisions, expected)| {
        assert_eq!(hash(data, *collisions), *expected, "{data} {collisions:?}");
    });
    assert_eq!(name("web", "abc"), "web-abc");
    assert_eq!(name(&"a".repeat(300), "abc"), format!("{}-abc", "a".repeat(223)));
}

#[test]
fn template_data_replaces_the_template() {
    let data = template_data(r#"{"spec":{"containers":[]},"metadata":{"labels":{"a":"b"}}}"#).unwrap();
    assert_eq!(
        data,
        r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"a":"b"}},"spec":{"containers":[]}}}}"#
    );
    assert_eq!(data, canonical(&data));
}

#[test]
fn surplus_spares_what_is_in_use() {
    let old = [
        revision("c", 3, 0, "{}"),
        revision("a", 1, 0, "{}"),
        revision("b", 2, 0, "{}"),
    ];
    let in_use = |used: &'static [&str]| move |own: &RevisionRef| used.contains(&own.name());
    for (limit, used, expected) in [
        (3, &[][..], &[][..]),
        (10, &[], &[]),
        (1, &[], &["a", "b"]),
        (0, &[], &["a", "b", "c"]),
        (2, &["a"], &["b"]),
        (1, &["a", "b", "c"], &[]),
    ] {
        let all = surplus(&old, limit, in_use(used));
        assert_eq!(names(&all), expected, "{limit} {used:?}");
    }
}

/// Data, collisions and hash, by Go's `hash/fnv` and upstream's `SafeEncodeString`.
const HASHES: [(&str, Option<i32>, &str); 4] = [
    ("{}", None, "5894b84845"),
    (TEMPLATE, None, "6b5c6d56fc"),
    (TEMPLATE, Some(2), "6cd69dcddf"),
    (r#"{"a":"<&"}"#, None, "f759c4474"),
];
const TEMPLATE: &str =
    r#"{"spec":{"template":{"$patch":"replace","spec":{"containers":[{"image":"i","name":"c"}]}}}}"#;
