//! The objects that every cluster has, as upstream's servers make them.

use machinery_schema::Ref;
use serde_json::Value;
use std::sync::OnceLock;

/// The objects as JSON, with empty lines between them.
pub const BOOTSTRAP_OBJECTS: &str = include_str!("bootstrap.jsons");

pub(super) const EXEMPT: &str = "exempt";
const CATCH_ALL: &str = "catch-all";

/// Reports whether a mandatory object has its fixed spec; `None` for other kinds and names.
///
/// Members in `ignored` may differ.
pub(super) fn has_fixed_spec(kind: &str, object: Ref<'_>, ignored: &[&str]) -> Option<bool> {
    let name = object.str_at(&["metadata", "name"]);
    let fixed = specs()
        .iter()
        .find(|fixed| (fixed.kind.as_str(), fixed.name.as_str()) == (kind, name))?;
    let own = object.get("spec").map(Ref::to_json).unwrap_or_default();
    let own = serde_json::from_str(&own).unwrap_or_default();
    Some(comparable(&own, ignored) == comparable(&fixed.spec, ignored))
}

struct Fixed {
    kind: String,
    name: String,
    spec: Value,
}

fn specs() -> &'static [Fixed] {
    static SPECS: OnceLock<Vec<Fixed>> = OnceLock::new();
    SPECS.get_or_init(|| {
        let objects = BOOTSTRAP_OBJECTS
            .split("\n\n")
            .map(str::trim)
            .filter(|text| !text.is_empty());
        let objects = objects.map(|text| serde_json::from_str(text).expect("the file is well formed"));
        let fixed = objects.map(|mut object: Value| Fixed {
            kind: object["kind"].as_str().unwrap_or_default().to_owned(),
            name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            spec: object["spec"].take(),
        });
        fixed
            .filter(|fixed| [EXEMPT, CATCH_ALL].contains(&fixed.name.as_str()))
            .collect()
    })
}

/// A spec without members that mean the same as absent ones: null, false and empty lists.
fn comparable(spec: &Value, ignored: &[&str]) -> Value {
    let is_unset = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    match spec {
        Value::Object(members) => members
            .iter()
            .filter(|(name, value)| !is_unset(value) && !ignored.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), comparable(value, &[])))
            .collect(),
        Value::Array(items) => items.iter().map(|item| comparable(item, &[])).collect(),
        other => other.clone(),
    }
}
