//! Patches that build depth and size: they are refused, and cost what their bytes may cost.

use super::{PatchError, PatchType, apply_patch, json_patch, merge_patch};
use crate::testing::{pod_schema, pod_type};
use crate::tree::Exceeded;
use crate::{MAX_DEPTH, Strictness, Tree, decode_json};

const DEEP: &str = "exceeded max depth";

#[track_caller]
fn patched(document: &str, operations: &[String]) -> (Result<(), PatchError>, Tree) {
    let mut tree = Tree::from_json(document).unwrap();
    let patch = format!("[{}]", operations.join(","));
    let outcome = json_patch(&mut tree, patch.as_bytes());
    (outcome, tree)
}

#[track_caller]
fn refused(document: &str, operations: &[String], expected: &PatchError) {
    let (outcome, tree) = patched(document, operations);
    assert_eq!(outcome.as_ref().err(), Some(expected));
    assert!(tree.depth() <= MAX_DEPTH);
}

fn lists(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

fn too_deep() -> PatchError {
    PatchError::DoesNotApply(DEEP.to_owned())
}

#[test]
fn json_patch_copies_double_no_depth() {
    let mut operations = vec![format!(r#"{{"op":"add","path":"/x","value":{}}}"#, lists(250))];
    let mut depth = 250;
    for _ in 0..10 {
        let path = "/0".repeat(depth - 1);
        operations.push(format!(r#"{{"op":"copy","from":"/x","path":"/x{path}/-"}}"#));
        depth *= 2;
    }
    refused("{}", &operations, &too_deep());
}

#[test]
fn json_patch_adds_below_each_other_end() {
    let below = |at| format!(r#"{{"op":"add","path":"/x{}/-","value":[]}}"#, "/0".repeat(at));
    let mut operations = vec![r#"{"op":"add","path":"/x","value":[]}"#.to_owned()];
    operations.extend((0..1000).map(below));
    refused("{}", &operations, &too_deep());
    // To the bound they are carried out: `/x` is the second of the lists and maps.
    let (outcome, tree) = patched("{}", &operations[..MAX_DEPTH - 1]);
    assert_eq!((outcome, tree.depth()), (Ok(()), MAX_DEPTH));
}

#[test]
fn json_patch_moves_build_no_depth() {
    let document = format!(r#"{{"a":{},"b":{}}}"#, lists(200), lists(200));
    let into = |depth| {
        format!(
            r#"{{"op":"move","from":"/a","path":"/b{}/-"}}"#,
            "/0".repeat(depth)
        )
    };
    refused(&document, &[into(150)], &too_deep());
    let (outcome, tree) = patched(&document, &[into(50)]);
    assert_eq!((outcome, tree.depth()), (Ok(()), 1 + 51 + 200));
    let replaced = format!(r#"{{"op":"replace","path":"/b/0/0","value":{}}}"#, lists(254));
    refused(&document, &[replaced], &too_deep());
}

#[test]
fn json_patch_moves_copy_nothing() {
    let moves: Vec<String> = (0..4000)
        .map(|at| match at % 2 {
            0 => r#"{"op":"move","from":"/data","path":"/d"}"#.to_owned(),
            _ => r#"{"op":"move","from":"/d","path":"/data"}"#.to_owned(),
        })
        .collect();
    let text = format!(r#"{{"data":{{"k":"{}"}}}}"#, "x".repeat(1 << 20));
    let numbers = format!(r#"{{"data":[{}0]}}"#, "0,".repeat(300_000));
    for document in [text, numbers] {
        let before = Tree::from_json(&document).unwrap();
        let (outcome, tree) = patched(&document, &moves);
        assert_eq!(outcome, Ok(()));
        assert_eq!(tree.root().to_json(), document);
        let grown = tree.arena_bytes() - before.arena_bytes();
        assert!(grown < 200_000, "{grown} bytes for moves of nothing");
    }
}

#[test]
fn json_patch_steps_are_counted() {
    let document = format!("[{}0]", "0,".repeat(300_000));
    let first = vec![r#"{"op":"add","path":"/0","value":1}"#.to_owned(); 9_000];
    refused(&document, &first, &PatchError::TooLarge(Exceeded::Steps));
    let around = vec![r#"{"op":"move","from":"/0","path":"/-"}"#.to_owned(); 9_000];
    refused(&document, &around, &PatchError::TooLarge(Exceeded::Steps));
}

#[test]
fn merge_patch_keeps_to_the_bound_of_depth() {
    let mut tree = Tree::from_json(&format!(r#"{{"a":{}}}"#, lists(MAX_DEPTH - 1))).unwrap();
    let patch = format!("{}1{}", r#"{"b":"#.repeat(MAX_DEPTH), "}".repeat(MAX_DEPTH));
    merge_patch(&mut tree, patch.as_bytes(), Strictness::Ignore).unwrap();
    assert_eq!(tree.depth(), MAX_DEPTH);
}

fn pod(spec: &str) -> Tree {
    let schema = pod_schema();
    let text = format!(r#"{{"spec":{spec}}}"#);
    let decoded = decode_json(&schema, pod_type(&schema), text.as_bytes(), Strictness::Ignore);
    decoded.unwrap().tree
}

/// Each mention of an item takes over what the item has so far.
#[test]
fn strategic_merge_patch_growth_is_bounded() {
    let limits: Vec<String> = (0..6_000).map(|at| format!(r#""r{at}":"1""#)).collect();
    let pod = pod(&format!(
        r#"{{"containers":[{{"name":"a","resources":{{"limits":{{{}}}}}}}]}}"#,
        limits.join(",")
    ));
    let items = vec![r#"{"name":"a","resources":{"limits":{"r1":"2"}}}"#; 6_000];
    let patch = format!(r#"{{"spec":{{"containers":[{}]}}}}"#, items.join(","));
    let outcome = apply_patch(
        &pod,
        PatchType::StrategicMerge,
        patch.as_bytes(),
        Strictness::Ignore,
    );
    assert_eq!(outcome.err(), Some(PatchError::TooLarge(Exceeded::Size)));
}

/// Lists by keys, by values, in an order, and deleted: one look per item, not one per pair of them.
#[test]
fn strategic_merge_patch_lists_are_hashed() {
    const ITEMS: usize = 20_000;
    let list = |range: std::ops::Range<usize>, item: &dyn Fn(usize) -> String| {
        range.map(item).collect::<Vec<_>>().join(",")
    };
    let named = |at: usize| format!(r#"{{"name":"c{at}"}}"#);
    let deleted = |at: usize| format!(r#"{{"name":"c{at}","$patch":"delete"}}"#);
    let text = |at: usize| format!(r#""f{at}""#);
    let pod = pod(&format!(
        r#"{{"containers":[{}]}},"metadata":{{"finalizers":[{}]}}"#,
        list(0..ITEMS, &named),
        list(0..ITEMS, &text)
    ));
    let half = ITEMS / 2;
    for (patch, containers, finalizers) in [
        (
            format!(
                r#"{{"spec":{{"containers":[{}]}}}}"#,
                list(half..ITEMS + half, &named)
            ),
            ITEMS + half,
            ITEMS,
        ),
        (
            format!(r#"{{"spec":{{"containers":[{}]}}}}"#, list(half..ITEMS, &deleted)),
            half,
            ITEMS,
        ),
        (
            format!(
                r#"{{"spec":{{"$setElementOrder/containers":[{}]}}}}"#,
                list(0..ITEMS, &|at| named(ITEMS - 1 - at))
            ),
            ITEMS,
            ITEMS,
        ),
        (
            format!(
                r#"{{"metadata":{{"finalizers":[{}]}}}}"#,
                list(half..ITEMS + half, &text)
            ),
            ITEMS,
            ITEMS + half,
        ),
        (
            format!(
                r#"{{"metadata":{{"$deleteFromPrimitiveList/finalizers":[{}]}}}}"#,
                list(half..ITEMS, &text)
            ),
            ITEMS,
            half,
        ),
    ] {
        let done = apply_patch(
            &pod,
            PatchType::StrategicMerge,
            patch.as_bytes(),
            Strictness::Ignore,
        )
        .unwrap();
        let count = |path: [&str; 2]| done.tree.at(&path).map(|list| list.len());
        assert_eq!(count(["spec", "containers"]), Some(containers));
        assert_eq!(count(["metadata", "finalizers"]), Some(finalizers));
    }
}
