//! Upstream's own round-trip fixtures (`k8s.io/api/testdata/HEAD`), when `KNARR_API_TESTDATA` says where they are:
//! every kind decodes from JSON, YAML and protobuf to the same object, and its JSON is upstream's.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test that is given a path"
)]

use machinery_schema::{Strictness, decode_json, decode_protobuf, decode_yaml, encode_protobuf};
use std::path::Path;

#[test]
#[ignore = "needs KNARR_API_TESTDATA, the testdata/HEAD folder of k8s.io/api"]
fn fixtures_round_trip() {
    let folder = std::env::var("KNARR_API_TESTDATA").expect("KNARR_API_TESTDATA is set");
    let (mut seen, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            match check(&path) {
                None => {}
                Some(Ok(())) => seen += 1,
                Some(Err(problem)) => wrong.push(format!("{}: {problem}", path.display())),
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        seen + wrong.len(),
        wrong.join("\n")
    );
    assert!(seen > 80, "only {seen} kinds were there");
}

/// `None` for kinds that are not GA.
fn check(path: &Path) -> Option<Result<(), String>> {
    let text = std::fs::read(path).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let api_version = value["apiVersion"].as_str()?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let (schema, ty) = machinery_api::schema_for(group, version, value["kind"].as_str()?)?;
    let compare = || {
        let from_json =
            decode_json(schema, ty, &text, Strictness::Report).map_err(|e| format!("json: {e}"))?;
        if let Some(error) = from_json.strict_errors.first() {
            return Err(error.clone());
        }
        let own: serde_json::Value = serde_json::from_str(&from_json.tree.root().to_json()).unwrap();
        same("json", &own, &value)?;
        let yaml = std::fs::read(path.with_extension("yaml")).map_err(|e| e.to_string())?;
        let from_yaml =
            decode_yaml(schema, ty, &yaml, Strictness::Report).map_err(|e| format!("yaml: {e}"))?;
        let own: serde_json::Value = serde_json::from_str(&from_yaml.tree.root().to_json()).unwrap();
        same("yaml", &own, &value)?;
        let body = std::fs::read(path.with_extension("pb")).map_err(|e| e.to_string())?;
        let from_pb = decode_protobuf(schema, ty, &body).map_err(|e| format!("protobuf: {e}"))?;
        let own: serde_json::Value = serde_json::from_str(&from_pb.root().to_json()).unwrap();
        same("protobuf", &own, &value)?;
        let again =
            decode_protobuf(schema, ty, &encode_protobuf(&from_pb)).map_err(|e| format!("again: {e}"))?;
        if again == from_pb {
            Ok(())
        } else {
            Err("protobuf written is not protobuf read".to_owned())
        }
    };
    Some(compare())
}

fn same(what: &str, own: &serde_json::Value, theirs: &serde_json::Value) -> Result<(), String> {
    if own == theirs {
        return Ok(());
    }
    let path = first_difference(own, theirs, String::new());
    Err(format!("{what} differs: {path}"))
}

fn first_difference(own: &serde_json::Value, theirs: &serde_json::Value, path: String) -> String {
    use serde_json::Value::{Array, Object};
    match (own, theirs) {
        (Object(a), Object(b)) => {
            for key in a.keys().chain(b.keys()) {
                let (x, y) = (a.get(key), b.get(key));
                if x != y {
                    let null = serde_json::Value::Null;
                    let there = format!("{path}.{key}");
                    return match (x, y) {
                        (None, _) => format!("{there} is missing, should be {}", y.unwrap_or(&null)),
                        (_, None) => format!("{there} should not be, is {}", x.unwrap_or(&null)),
                        (Some(x), Some(y)) => first_difference(x, y, there),
                    };
                }
            }
            path
        }
        (Array(a), Array(b)) => match a.iter().zip(b).position(|(x, y)| x != y) {
            Some(at) => first_difference(&a[at], &b[at], format!("{path}[{at}]")),
            None => format!("{path}: {} items, should be {}", a.len(), b.len()),
        },
        _ => format!("{path}: {own}, should be {theirs}"),
    }
}
