//! Hostile bytes: whatever comes in, decoders, patches, apply and validation answer, and what they keep and do is bounded
//! by what came: bytes of arenas and steps are counted, no clock is read.
//!
//! See `machinery-fuzz` for how to request more.

mod build;

use crate::apply::{FieldSet, ShownBytes, Steps, Typed};
use crate::protobuf::{decode_message, encode_message};
use crate::structural::{Patterns, check_defaults, check_openapi, check_structural, compile, validate};
use crate::testing::{pod_schema, pod_type};
use crate::{
    MAX_DEPTH, PatchType, Strictness, Tree, apply_defaults, apply_patch, decode_json, decode_protobuf,
    decode_yaml, encode_protobuf, json_patch, merge_patch, strategic_merge_patch, to_untyped,
};
use machinery_fuzz::{fuzz, fuzz_built};
use machinery_meta::FieldPath;

/// Nodes and text of a tree may be this many times the input, plus a constant: two bytes can request a zero struct.
const GROWTH: usize = 160;

const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","generation":-5,"creationTimestamp":"2026-01-02T02:04:05Z","labels":{"a":"","b":"1"},"finalizers":["x","y"]},"spec":{"containers":[{"name":"a","ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"500m","memory":"1Gi"}},"livenessProbe":{"httpGet":{"path":"/x\u00e4\n","port":"http"},"periodSeconds":3},"stdin":true},{"name":"b"}],"nodeSelector":{"k":"v"},"overhead":{"z":1e3,"a":[null]},"token":"aGk="},"status":{"phase":"Running"}}"#;
const JSON_PATCH: &str = r#"[{"op":"test","path":"/metadata/name","value":"a"},{"op":"remove","path":"/metadata/labels/a"},{"op":"add","path":"/spec/containers/-","value":{"name":"c"}},{"op":"move","from":"/metadata/labels/b","path":"/metadata/labels/c"},{"op":"copy","from":"/spec","path":"/spec/overhead"},{"op":"replace","path":"/spec/containers/-1","value":null}]"#;
const MERGE_PATCH: &str =
    r#"{"metadata":{"labels":{"a":null,"c":"3"}},"spec":{"overhead":{"z":{"y":null}},"containers":[{}]}}"#;
const STRATEGIC: &str = r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["x"],"labels":{"$patch":"replace"}},"spec":{"$retainKeys":["containers"],"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"a","$patch":"delete"},{"name":"b","ports":[{"containerPort":1}]}]}}"#;
const YAML: &str = "kind: Pod\nmetadata:\n  labels: &l {a: yes, b: 0644}\n  annotations:\n    <<: *l\n    c: |\n      x\nspec:\n  containers:\n  - name: a\n    command: [\"x\", 'y', z]\n";

#[track_caller]
fn bounded(tree: &Tree, input: usize) {
    let size = tree.arena_bytes();
    assert!(size <= input * GROWTH + 4096, "{size} bytes for {input}");
    assert!(tree.depth() <= MAX_DEPTH, "{} deep", tree.depth());
}

fn decoded(text: &str) -> Tree {
    let schema = pod_schema();
    decode_json(&schema, pod_type(&schema), text.as_bytes(), Strictness::Ignore)
        .unwrap()
        .tree
}

#[test]
fn json_is_answered() {
    let schema = pod_schema();
    let ty = pod_type(&schema);
    fuzz_built([POD], build::json, |input| {
        let Ok(decoded) = decode_json(&schema, ty, input, Strictness::Report) else {
            return;
        };
        bounded(&decoded.tree, input.len());
        let said: usize = decoded.strict_errors.iter().map(String::len).sum();
        assert!(said <= (1 << 20) + 2 * input.len(), "{said} bytes of problems");
        let text = decoded.tree.root().to_json();
        let again = decode_json(&schema, ty, text.as_bytes(), Strictness::Report).unwrap();
        assert!(again.strict_errors.is_empty());
        assert_eq!(again.tree.root().to_json(), text, "the normal form is stable");
        let message = encode_protobuf(&decoded.tree);
        assert!(message.len() <= 2 * text.len() + 1024);
        let back = decode_protobuf(&schema, ty, &message).unwrap();
        assert_eq!(back.root().to_json(), text, "protobuf says the same");
        let mut defaulted = decoded.tree;
        apply_defaults(&mut defaulted);
        bounded(&defaulted, input.len());
    });
}

#[test]
fn free_json_is_answered() {
    let untyped = Tree::untyped();
    fuzz_built([POD], build::json, |input| {
        let Ok(decoded) = decode_json(untyped.schema(), untyped.ty(), input, Strictness::Report) else {
            return;
        };
        bounded(&decoded.tree, input.len());
        let text = decoded.tree.root().to_json();
        assert!(serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok() || decoded.tree.depth() > 120);
    });
}

#[test]
fn yaml_is_answered() {
    let schema = pod_schema();
    let build = |random: &mut machinery_fuzz::Random| match random.below(3) {
        0 => build::pod(random, false).into_bytes(),
        1 => {
            let (count, width) = (random.below(8), random.below(8));
            let mut bomb = "a0: &a0 [x,x,x]\n".to_owned();
            for level in 1..count {
                let refs = vec![format!("*a{}", level - 1); width].join(",");
                bomb.push_str(&format!("a{level}: &a{level} [{refs}]\n"));
            }
            bomb.into_bytes()
        }
        _ => random
            .pick(&["- ", "a: ", "? ", "{a: ", "[", "  a:\n"])
            .repeat(random.count())
            .into_bytes(),
    };
    fuzz_built([YAML], build, |input| {
        if let Ok(json) = crate::yaml_to_json(input) {
            assert!(
                json.len() <= (2 << 20) + 9 * input.len(),
                "{} of {}",
                json.len(),
                input.len()
            );
            // What aliases make of it has been read once.
            if json.len() < 1 << 16 {
                let _ = decode_yaml(&schema, pod_type(&schema), input, Strictness::Report);
                let _ = crate::yaml::decode_document(input);
            }
        }
    });
}

#[test]
fn protobuf_is_answered() {
    let schema = pod_schema();
    let ty = pod_type(&schema);
    let tree = decoded(POD);
    let mut message = Vec::new();
    encode_message(tree.root(), &mut message);
    fuzz_built(
        [&message],
        |random| build::message(random, 0),
        |input| {
            let Ok(tree) = decode_message(&schema, ty, input) else {
                return;
            };
            bounded(&tree, input.len());
            let text = tree.root().to_json();
            let again = decode_json(&schema, ty, text.as_bytes(), Strictness::Report).unwrap();
            assert_eq!(again.tree.root().to_json(), text, "the normal form is stable");
        },
    );
    fuzz([encode_protobuf(&tree)], |input| {
        drop(decode_protobuf(&schema, ty, input))
    });
}

/// Asserts that a patch's memory and steps are in proportion to document and patch, whatever it contains.
#[track_caller]
fn patched_within_bounds(document: &Tree, patch: &[u8], before: usize, linear: bool) {
    let size = document.arena_bytes();
    assert!(
        size <= 10 * before + 160 * patch.len() + (80 << 20),
        "{size} bytes of {before} and {}",
        patch.len()
    );
    assert!(document.depth() <= MAX_DEPTH);
    let steps = super::patch::MAX_STEPS - document.steps_left();
    if linear && document.check_bounds().is_ok() {
        let most = 10 * (before + 17 * patch.len()) + (8 << 20);
        assert!(steps <= most as u64, "{steps} steps");
    }
}

#[test]
fn patches_are_answered() {
    let schema = pod_schema();
    let ty = pod_type(&schema);
    let pods = [
        decoded(POD),
        decoded(&build::pod(&mut machinery_fuzz::Random::new(7), false)),
    ];
    for (how, corpus) in [
        (PatchType::Json, JSON_PATCH),
        (PatchType::Merge, MERGE_PATCH),
        (PatchType::StrategicMerge, STRATEGIC),
    ] {
        let build = |random: &mut machinery_fuzz::Random| match how {
            PatchType::Json => build::json_patch(random),
            PatchType::Merge if random.below(2) == 0 => build::json(random),
            _ => build::pod(random, how == PatchType::StrategicMerge).into_bytes(),
        };
        fuzz_built([corpus], build, |input| {
            let pod = &pods[input.len() % 2];
            let mut document = to_untyped(pod);
            let before = document.arena_bytes();
            let _ = match how {
                PatchType::Json => json_patch(&mut document, input),
                PatchType::Merge => merge_patch(&mut document, input, Strictness::Report).map(drop),
                PatchType::StrategicMerge => {
                    strategic_merge_patch(&schema, ty, &mut document, input, Strictness::Report).map(drop)
                }
            };
            patched_within_bounds(&document, input, before, how != PatchType::Json);
            if let Ok(done) = apply_patch(pod, how, input, Strictness::Report) {
                assert!(done.tree.depth() <= MAX_DEPTH);
                let text = done.tree.root().to_json();
                let again = decode_json(&schema, ty, text.as_bytes(), Strictness::Report).unwrap();
                assert_eq!(again.tree.root().to_json(), text, "the normal form is stable");
            }
        });
    }
}

#[test]
fn applied_configurations_are_answered() {
    let schema = pod_schema();
    let ty = pod_type(&schema);
    let live = to_untyped(&decoded(POD));
    fuzz_built(
        [POD],
        |random| build::pod(random, false).into_bytes(),
        |input| {
            let Ok(configuration) = crate::yaml::decode_document(input) else {
                return;
            };
            let typed = |document| Typed {
                schema: &schema,
                ty,
                document,
            };
            let (own, wanted) = (typed(&live), typed(&configuration.tree));
            let said: usize = wanted.problems().iter().map(String::len).sum();
            assert!(said <= 200 * input.len() + (1 << 20), "{said} bytes of problems");
            let fields = wanted.fields();
            let text = fields.to_json();
            assert_eq!(FieldSet::from_json(&text).map(|again| again.to_json()), Ok(text));
            let Ok(merged) = own.merge(&configuration.tree) else {
                return;
            };
            bounded(&merged, input.len() + POD.len());
            let changes = own.compare(&merged);
            let steps = Steps::default();
            let changed = steps.union(&changes.added, &changes.modified).unwrap();
            let paths = changed.paths(&mut ShownBytes::default());
            let shown: usize = paths.iter().map(String::len).sum();
            assert!(shown <= (1 << 20) + 2 * input.len(), "{shown} bytes of paths");
            let left = typed(&merged).remove(&fields).unwrap();
            assert!(left.arena_bytes() <= 2 * merged.arena_bytes() + 4096);
        },
    );
}

#[test]
fn field_sets_are_answered() {
    let good = r#"{"f:metadata":{".":{},"f:labels":{"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:ports":{"v:1":{},"i:2":{}}}}}}"#;
    let build = |random: &mut machinery_fuzz::Random| {
        let (times, element) = (random.count(), random.pick(&["f:a", "k:{}", "v:1", "i:0", "."]));
        let open = format!("{{{element:?}:");
        format!("{}{{}}{}", open.repeat(times), "}".repeat(times)).into_bytes()
    };
    fuzz_built([good], build, |input| {
        let text = String::from_utf8_lossy(input);
        if let Ok(set) = FieldSet::from_json(&text) {
            let written = set.to_json();
            assert!(written.len() <= 8 * input.len() + 64);
            assert_eq!(FieldSet::from_json(&written).as_ref(), Ok(&set));
            assert_eq!(FieldSet::from_json(&set.to_json_by_text()).as_ref(), Ok(&set));
            let steps = Steps::default();
            assert_eq!(steps.union(&set, &set).unwrap(), set);
            assert!(set.difference(&set).is_empty());
            assert_eq!(steps.intersection(&set, &set).unwrap(), set);
            assert!(Steps::default().left() - steps.left() <= 3 * input.len() as u64);
        }
    });
}

#[test]
fn structural_schemas_are_answered() {
    let table = pod_schema();
    let meta = table.type_named("v1.ObjectMeta").unwrap();
    let good = r#"{"type":"object","properties":{"a":{"type":"string","pattern":"^a"},"l":{"type":"array","items":{"type":"integer"}}}}"#;
    let objects: Vec<String> = (0..8)
        .map(|seed| build::value(&mut machinery_fuzz::Random::new(seed), 0))
        .filter(|text| text.starts_with('{'))
        .chain([r#"{"l":["",1,{"k":"a"},{"k":"a"}],"m":{"a":"b"},"a":{"a":{"a":3}}}"#.to_owned()])
        .collect();
    let path = FieldPath::new("schema");
    fuzz_built(
        [good],
        |random| build::schema(random, 0).into_bytes(),
        |input| {
            // Compiling costs milliseconds a kilobyte where nothing is optimised.
            if input.len() > 4096 {
                return;
            }
            let Ok(schema) = Tree::from_json(&String::from_utf8_lossy(input)) else {
                return;
            };
            let mut patterns = Patterns::default();
            let refused = check_structural(schema.root(), &path, &mut patterns);
            drop(check_openapi(schema.root(), &path));
            if !refused.is_empty() {
                return;
            }
            drop(check_defaults(schema.root(), &path));
            let compiled = compile(
                Some(schema.root()),
                (&table, meta),
                &path,
                &mut Patterns::default(),
            );
            let Ok(compiled) = compiled else {
                return;
            };
            for object in &objects {
                let read = decode_json(
                    &compiled.schema,
                    compiled.ty,
                    object.as_bytes(),
                    Strictness::Report,
                );
                let Ok(mut decoded) = read else { continue };
                apply_defaults(&mut decoded.tree);
                bounded(&decoded.tree, object.len() + input.len());
                let errors = validate(decoded.tree.root(), Some(decoded.tree.root()));
                let said: usize = errors.iter().map(|error| error.to_string().len()).sum();
                assert!(said <= 8 << 20, "{said} bytes of errors");
            }
        },
    );
}

#[test]
fn patterns_are_answered() {
    let corpus = [
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z]+)*$",
        r"(?i:\pL{2,3}|\Qa.\E)[^[:alpha:]\d]",
    ];
    let build = |random: &mut machinery_fuzz::Random| {
        let (open, close) = [
            ("(", ")"),
            ("(?:", ")*"),
            ("[", "]"),
            ("(a|", ")"),
            ("(?i:", "){2}"),
        ][random.below(5)];
        let times = random.count();
        format!("{}a{}", open.repeat(times), close.repeat(times)).into_bytes()
    };
    fuzz_built(corpus, build, |input| {
        let Ok(text) = std::str::from_utf8(input) else {
            return;
        };
        let mut patterns = crate::structural::Patterns::default();
        if let Some(pattern) = patterns.get(text) {
            pattern.is_match("some text 123 with Ümläute");
        }
        assert!(patterns.bytes() <= crate::structural::MAX_PATTERN_BYTES + (16 << 20));
    });
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
