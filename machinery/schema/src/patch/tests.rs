use super::merge::merge_patch;
use super::strategic::strategic_merge_patch;
use super::{PatchError, PatchType, apply_patch};
use crate::testing::{pod_schema, pod_type};
use crate::{Strictness, Tree, decode_json};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    r#type: String,
    object: String,
    patch: String,
    #[serde(default)]
    out: String,
    #[serde(default)]
    strict: Vec<String>,
    #[serde(default)]
    error: String,
}

#[test]
fn patches_change_objects_as_upstreams_do() {
    let schema = pod_schema();
    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("../../testdata/patch.yaml")).unwrap();
    for case in cases {
        let how = match case.r#type.as_str() {
            "json" => PatchType::Json,
            "merge" => PatchType::Merge,
            _ => PatchType::StrategicMerge,
        };
        let object = decode_json(
            &schema,
            pod_type(&schema),
            case.object.as_bytes(),
            Strictness::Ignore,
        )
        .unwrap()
        .tree;
        match apply_patch(&object, how, case.patch.as_bytes(), Strictness::Report) {
            Ok(done) => {
                let spec = done.tree.root().to_json();
                let expected = decode_json(
                    &schema,
                    pod_type(&schema),
                    case.out.as_bytes(),
                    Strictness::Ignore,
                );
                let expected = expected
                    .unwrap_or_else(|_| panic!("{} succeeded: {spec}", case.name))
                    .tree;
                assert_eq!(spec, expected.root().to_json(), "{}", case.name);
                assert_eq!(done.strict_errors, case.strict, "{}", case.name);
            }
            Err(error) => {
                let kind = match &error {
                    PatchError::BadPatch(_) => "400",
                    PatchError::TooManyOperations { .. } | PatchError::TooLarge(_) => "413",
                    PatchError::DoesNotApply(_) => "422",
                    PatchError::Unmergeable(_) => "500",
                    PatchError::Result { .. } => "result",
                };
                assert_eq!(format!("{kind} {error}"), case.error, "{}", case.name);
            }
        }
    }
}

/// Nothing of a patch costs more than in proportion to its size: an arena that grew with the square of it was gigabytes.
#[test]
fn patch_many_members_leave_little_garbage() {
    const MEMBERS: usize = 20_000;
    let schema = pod_schema();
    let flat =
        |prefix: &str| -> Vec<String> { (0..MEMBERS).map(|at| format!(r#""{prefix}{at}":"v""#)).collect() };
    let deep: Vec<String> = (0..MEMBERS)
        .map(|at| format!(r#""k{at}":{{"a":"v","b":{{"c":"w"}}}}"#))
        .collect();
    // Members that are there stand between those that come.
    let object = format!(r#"{{"metadata":{{"labels":{{{}}}}}}}"#, flat("j").join(","));
    for members in [flat("k"), flat("i"), deep] {
        let patch = format!(r#"{{"metadata":{{"labels":{{{}}}}}}}"#, members.join(","));
        let mut merged = Tree::from_json(&object).unwrap();
        merge_patch(&mut merged, patch.as_bytes(), Strictness::Ignore).unwrap();
        let mut strategic = Tree::from_json(&object).unwrap();
        let ty = pod_type(&schema);
        strategic_merge_patch(&schema, ty, &mut strategic, patch.as_bytes(), Strictness::Ignore).unwrap();
        assert_eq!(merged.root().to_json(), strategic.root().to_json());
        for (how, tree) in [("merge", &merged), ("strategic", &strategic)] {
            assert_eq!(
                tree.root().at(&["metadata", "labels"]).map(|own| own.len()),
                Some(2 * MEMBERS),
                "{how}"
            );
            assert!(tree.node_count() < 20 * MEMBERS, "{how}: {}", tree.node_count());
        }
    }
}
