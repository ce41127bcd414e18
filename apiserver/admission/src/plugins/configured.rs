//! Configurations of plugins, as upstream's strict decoder reads them.

use serde_json::Value;

/// Checks that a configuration is of one of these versions and kinds.
///
/// # Errors
/// Upstream's sentence for another one.
pub(super) fn check_kind(written: &Value, known: &[(&str, &str)]) -> Result<(), String> {
    let text = |member: &str| written.get(member).and_then(Value::as_str).unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        own if known.contains(&own) => Ok(()),
        (_, "") => Err(format!("Object 'Kind' is missing in '{written}'")),
        ("", _) => Err(format!("Object 'apiVersion' is missing in '{written}'")),
        (api_version, kind) => Err(format!(
            "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
        )),
    }
}

/// Problems as Go's aggregate prints them: each once, in brackets where there are several.
pub(super) fn aggregate(problems: impl IntoIterator<Item = String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for problem in problems {
        if !distinct.contains(&problem) {
            distinct.push(problem);
        }
    }
    match distinct.len() {
        1 => distinct.swap_remove(0),
        _ => format!("[{}]", distinct.join(", ")),
    }
}

/// Fields that are not among the known ones of their object, with their paths: of the whole (`""`) or of a member.
///
/// # Errors
/// Upstream's sentence that names them.
pub(super) fn check_fields(written: &Value, known: &[(&str, &[&str])]) -> Result<(), String> {
    let mut unknown = Vec::new();
    for (member, fields) in known {
        let object = if member.is_empty() {
            Some(written)
        } else {
            written.get(*member)
        };
        let names = object
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(|own| own.keys());
        for name in names.filter(|name| !fields.contains(&name.as_str())) {
            let path = if member.is_empty() {
                name.clone()
            } else {
                format!("{member}.{name}")
            };
            unknown.push(format!("unknown field {path:?}"));
        }
    }
    match unknown.is_empty() {
        true => Ok(()),
        false => Err(format!("strict decoding error: {}", unknown.join(", "))),
    }
}
