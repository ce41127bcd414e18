use super::review::{Review, ReviewVersion, restored};
use machinery_meta::GroupVersionKind;
use machinery_schema::Tree;
use serde_json::{Value, json};

fn tree(value: &Value) -> Tree {
    Tree::from_json(&value.to_string()).unwrap()
}

fn boat(version: &str, metadata: Value) -> Tree {
    tree(&json!({"apiVersion": format!("hooks.example/{version}"), "kind": "Boat", "metadata": metadata}))
}

#[test]
fn converted_objects_keep_their_metadata_but_for_labels_and_annotations() {
    let to = GroupVersionKind::new("hooks.example", "v2", "Boat");
    let before = boat(
        "v1",
        json!({"name": "b", "uid": "u", "finalizers": ["a/b"], "labels": {"old": "yes"}}),
    );
    let of = |version: &str, metadata: Value| {
        restored(boat(version, metadata), &before, &to).map(|own| own.get("metadata").unwrap().to_json())
    };
    let kept = of(
        "v2",
        json!({"name": "b", "uid": "u", "generation": 7, "labels": {"new": "yes"}, "annotations": {"a": "b"}}),
    );
    let kept: Value = serde_json::from_str(&kept.unwrap()).unwrap();
    let expected = json!({"name": "b", "uid": "u", "finalizers": ["a/b"], "labels": {"new": "yes"}, "annotations": {"a": "b"}});
    assert_eq!(kept, expected);
    for (version, metadata, why) in [
        (
            "v1",
            json!({"name": "b", "uid": "u"}),
            "invalid groupVersion (expected hooks.example/v2, received hooks.example/v1)",
        ),
        (
            "v2",
            json!({"name": "c", "uid": "u"}),
            "must have the same name: b != c",
        ),
        (
            "v2",
            json!({"name": "b", "uid": "w"}),
            "must have the same UID: u != w",
        ),
        (
            "v2",
            json!({"name": "b", "uid": "u", "labels": [1]}),
            "invalid metadata.labels in converted object",
        ),
        (
            "v2",
            json!({"name": "b", "uid": "u", "labels": {"a": 1}}),
            "metadata.labels[a] must be a string",
        ),
    ] {
        assert_eq!(of(version, metadata).unwrap_err(), why);
    }
    assert!(of("v2", json!({"name": "b", "uid": "u", "labels": {"a b": "c"}})).is_err());
}

#[test]
fn conversion_answers_are_checked_as_upstreams() {
    let to = GroupVersionKind::new("hooks.example", "v2", "Boat");
    let review = |version| Review {
        version,
        uid: "123".to_owned(),
        to: to.clone(),
    };
    let answer = |version: &str, response: Value| json!({"kind": "ConversionReview", "apiVersion": format!("apiextensions.k8s.io/{version}"), "response": response});
    let success = json!({"status": "Success"});
    let read = |version, answer: &Value| {
        review(version)
            .read(answer.to_string().as_bytes())
            .map(|own| own.len())
    };
    let (v1, beta) = (ReviewVersion::V1, ReviewVersion::V1Beta1);
    let whole = answer(
        "v1",
        json!({"uid": "123", "result": success, "convertedObjects": [{}, {}]}),
    );
    assert_eq!(read(v1, &whole), Ok(2));
    let other = answer(
        "v1beta1",
        json!({"uid": "other", "result": success, "convertedObjects": []}),
    );
    assert_eq!(read(beta, &other), Ok(0));
    for (answer, why) in [
        (json!({}), "Object 'Kind' is missing in the answer"),
        (
            other.clone(),
            "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1beta1, Kind=ConversionReview",
        ),
        (answer("v1", Value::Null), "no response provided"),
        (
            answer("v1", json!({"uid": "x", "result": success})),
            "expected response.uid=\"123\", got \"x\"",
        ),
        (
            answer(
                "v1",
                json!({"uid": "123", "result": {"status": "Failed", "message": "no"}}),
            ),
            "no",
        ),
        (
            answer("v1", json!({"uid": "123", "result": {}})),
            "response.result.status was '', not 'Success'",
        ),
    ] {
        assert_eq!(read(v1, &answer).unwrap_err(), why);
    }
}

/// A number of two characters is a node of a tree.
const HELD_BY_BYTE: usize = 64;

#[test]
fn conversion_answers_of_any_bytes_are_read() {
    let to = GroupVersionKind::new("hooks.example", "v2", "Boat");
    let before = boat("v1", json!({"name": "b", "uid": "u"}));
    let object = json!({"apiVersion": "hooks.example/v2", "kind": "Boat", "metadata": {"name": "b", "uid": "u", "labels": {"a": "b"}}});
    let seed = json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": {"uid": "123", "result": {"status": "Success"}, "convertedObjects": [object]}});
    machinery_fuzz::fuzz([seed.to_string()], |input| {
        let review = Review {
            version: ReviewVersion::V1,
            uid: "123".to_owned(),
            to: to.clone(),
        };
        machinery_fuzz::in_proportion(input, HELD_BY_BYTE, || {
            for own in review.read(input).into_iter().flatten() {
                let _ = restored(own, &before, &to);
            }
        });
    });
}
