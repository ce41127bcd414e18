//! Hostile bytes: whatever comes in, decoders and patches answer, and what they keep is bounded by what came.
//!
//! See `machinery-fuzz` for how to ask for more.

use crate::protobuf::{decode_message, encode_message};
use crate::testing::{pod_schema, pod_type};
use crate::{
    PatchType, Strictness, Tree, apply_patch, decode_json, decode_protobuf, decode_yaml, encode_protobuf,
};
use machinery_fuzz::fuzz;

/// Nodes and text of a tree may be this many times the input, plus a constant: two bytes can ask for a zero struct.
const GROWTH: usize = 160;

const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","generation":-5,"creationTimestamp":"2026-01-02T02:04:05Z","labels":{"a":"","b":"1"},"finalizers":["x","y"]},"spec":{"containers":[{"name":"a","ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"500m","memory":"1Gi"}},"livenessProbe":{"httpGet":{"path":"/x\u00e4\n","port":"http"},"periodSeconds":3},"stdin":true},{"name":"b"}],"nodeSelector":{"k":"v"},"overhead":{"z":1e3,"a":[null]},"token":"aGk="},"status":{"phase":"Running"}}"#;
const JSON_PATCH: &str = r#"[{"op":"test","path":"/metadata/name","value":"a"},{"op":"remove","path":"/metadata/labels/a"},{"op":"add","path":"/spec/containers/-","value":{"name":"c"}},{"op":"move","from":"/metadata/labels/b","path":"/metadata/labels/c"},{"op":"copy","from":"/spec","path":"/spec/overhead"},{"op":"replace","path":"/spec/containers/-1","value":null}]"#;
const MERGE_PATCH: &str =
    r#"{"metadata":{"labels":{"a":null,"c":"3"}},"spec":{"overhead":{"z":{"y":null}},"containers":[{}]}}"#;
const STRATEGIC: &str = r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["x"],"labels":{"$patch":"replace"}},"spec":{"$retainKeys":["containers"],"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"a","$patch":"delete"},{"name":"b","ports":[{"containerPort":1}]}]}}"#;
const YAML: &str = "kind: Pod\nmetadata:\n  labels: &l {a: yes, b: 0644}\n  annotations:\n    <<: *l\n    c: |\n      x\nspec:\n  containers:\n  - name: a\n    command: [\"x\", 'y', z]\n";

#[track_caller]
fn bounded(tree: &Tree, input: usize) {
    let size = tree.node_count() * 16 + tree.text.len();
    assert!(size <= input * GROWTH + 4096, "{size} bytes for {input}");
}

#[test]
fn json_is_answered() {
    let schema = pod_schema();
    let ty = pod_type(&schema);
    fuzz([POD], |input| {
        let Ok(decoded) = decode_json(&schema, ty, input, Strictness::Report) else {
            return;
        };
        bounded(&decoded.tree, input.len());
        let text = decoded.tree.root().to_json();
        let again = decode_json(&schema, ty, text.as_bytes(), Strictness::Report).unwrap();
        assert!(again.strict_errors.is_empty());
        assert_eq!(again.tree.root().to_json(), text, "the normal form is stable");
        let back = decode_protobuf(&schema, ty, &encode_protobuf(&decoded.tree)).unwrap();
        assert_eq!(back.root().to_json(), text, "protobuf says the same");
    });
}

#[test]
fn yaml_is_answered() {
    let schema = pod_schema();
    fuzz([YAML], |input| {
        let _ = decode_yaml(&schema, pod_type(&schema), input, Strictness::Report);
    });
}

#[test]
fn protobuf_is_answered() {
    let schema = pod_schema();
    let ty = pod_type(&schema);
    let tree = decode_json(&schema, ty, POD.as_bytes(), Strictness::Ignore)
        .unwrap()
        .tree;
    let mut message = Vec::new();
    encode_message(tree.root(), &mut message);
    fuzz([&message], |input| {
        let Ok(tree) = decode_message(&schema, ty, input) else {
            return;
        };
        bounded(&tree, input.len());
        let text = tree.root().to_json();
        let again = decode_json(&schema, ty, text.as_bytes(), Strictness::Report).unwrap();
        assert_eq!(again.tree.root().to_json(), text, "the normal form is stable");
    });
    fuzz([encode_protobuf(&tree)], |input| {
        drop(decode_protobuf(&schema, ty, input))
    });
}

#[test]
fn patches_are_answered() {
    let schema = pod_schema();
    let ty = pod_type(&schema);
    let pod = decode_json(&schema, ty, POD.as_bytes(), Strictness::Ignore)
        .unwrap()
        .tree;
    for (how, patch) in [
        (PatchType::Json, JSON_PATCH),
        (PatchType::Merge, MERGE_PATCH),
        (PatchType::StrategicMerge, STRATEGIC),
    ] {
        fuzz([patch], |input| {
            if let Ok(done) = apply_patch(&pod, how, input, Strictness::Report) {
                let text = done.tree.root().to_json();
                let again = decode_json(&schema, ty, text.as_bytes(), Strictness::Report).unwrap();
                assert_eq!(again.tree.root().to_json(), text, "the normal form is stable");
            }
        });
    }
}

#[test]
fn copies_of_copies_end() {
    let mut operations =
        vec![r#"{"op":"add","path":"/metadata/annotations","value":{"a":"0123456789"}}"#.to_owned()];
    for _ in 0..60 {
        operations.push(r#"{"op":"copy","from":"/metadata","path":"/metadata/annotations/b"}"#.to_owned());
    }
    let schema = pod_schema();
    let pod = decode_json(&schema, pod_type(&schema), POD.as_bytes(), Strictness::Ignore)
        .unwrap()
        .tree;
    let patch = format!("[{}]", operations.join(","));
    assert!(apply_patch(&pod, PatchType::Json, patch.as_bytes(), Strictness::Ignore).is_err());
}
