//! Schema of a custom kind in v2: reduced wherever readers of v2 would take it for more.

use serde_json::{Map, Value};

/// Alternatives are not known in v2.
const JUNCTORS: [&str; 4] = ["allOf", "anyOf", "oneOf", "not"];

/// Reports whether the flag is set.
pub(super) fn is(schema: &Map<String, Value>, flag: &str) -> bool {
    schema.get(flag).and_then(Value::as_bool) == Some(true)
}

/// Brings a structural schema and all below it to what v2 can express.
pub(in crate::openapi) fn simplify(schema: &mut Map<String, Value>) {
    for junctor in JUNCTORS {
        schema.remove(junctor);
    }
    let preserving = is(schema, "x-kubernetes-preserve-unknown-fields");
    if is(schema, "nullable") {
        schema.remove("type");
        forget_contents(schema);
    }
    schema.remove("nullable");
    if preserving {
        // Readers would refuse members that are not named.
        forget_contents(schema);
        if schema.get("type").is_some_and(|own| own == "object") {
            schema.remove("type");
        }
    }
    if !schema.contains_key("items") && schema.get("type").is_some_and(|own| own == "array") {
        schema.remove("type");
    }
    forgive_nulls(schema);
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.values_mut().for_each(below);
    }
    for name in ["items", "additionalProperties"] {
        schema.get_mut(name).into_iter().for_each(below);
    }
}

fn below(schema: &mut Value) {
    if let Value::Object(own) = schema {
        simplify(own);
    }
}

fn forget_contents(schema: &mut Map<String, Value>) {
    schema.remove("items");
    schema.remove("properties");
}

/// A member that may be null is not required: v2 has no word for null.
fn forgive_nulls(schema: &mut Map<String, Value>) {
    let nullable = |own: &Value| own.get("nullable").and_then(Value::as_bool) == Some(true);
    if schema.get("additionalProperties").is_some_and(nullable) {
        schema.remove("required");
    }
    let forgiven: Vec<String> = match schema.get("properties") {
        Some(Value::Object(properties)) => properties
            .iter()
            .filter(|(_, own)| nullable(own))
            .map(|(name, _)| name.clone())
            .collect(),
        _ => Vec::new(),
    };
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| !forgiven.iter().any(|own| name == own));
        if required.is_empty() {
            schema.remove("required");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(schema: Value, expected: &Value) {
        let Value::Object(mut own) = schema else {
            panic!("a schema is an object")
        };
        simplify(&mut own);
        assert_eq!(&Value::Object(own), expected);
    }

    #[test]
    fn openapi_v2_unsupported_structural_keywords_are_dropped() {
        check(
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "string"}}}),
            &json!({"x-kubernetes-preserve-unknown-fields": true}),
        );
        check(
            json!({"type": "array", "nullable": true, "items": {"type": "string"}}),
            &json!({}),
        );
        check(
            json!({"type": "object", "required": ["a", "b"], "properties": {
                "a": {"type": "string", "nullable": true},
                "b": {"type": "integer", "anyOf": [{"minimum": 3}]},
            }}),
            &json!({"type": "object", "required": ["b"], "properties": {"a": {}, "b": {"type": "integer"}}}),
        );
    }
}
