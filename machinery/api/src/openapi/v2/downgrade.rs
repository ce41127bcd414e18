//! From the v3 form of a schema to its v2 form.

use serde_json::{Value, json};

const V3: &str = "#/components/schemas/";
const V2: &str = "#/definitions/";

/// A schema: references go to `definitions`, defaults are not published, alternatives are not known.
pub(super) fn schema(value: &mut Value) {
    let Value::Object(own) = value else { return };
    own.remove("default");
    if let Some(Value::Array(mut all)) = own.remove("allOf")
        && let Some(Value::Object(only)) = all.pop()
    {
        own.extend(only);
    }
    let alternatives = ["oneOf", "anyOf", "not"].map(|name| own.remove(name));
    if alternatives[0].is_some() && !own.contains_key("type") {
        // Quantities and integers-or-strings: strings, as far as v2 can say.
        own.insert("type".to_owned(), json!("string"));
    }
    if let Some(Value::String(target)) = own.get_mut("$ref")
        && let Some(model) = target.strip_prefix(V3)
    {
        *target = format!("{V2}{model}");
    }
    if let Some(Value::Object(properties)) = own.get_mut("properties") {
        properties.values_mut().for_each(schema);
    }
    for below in ["items", "additionalProperties"] {
        if let Some(inner) = own.get_mut(below) {
            schema(inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openapi_v2_schema_loses_unsupported_keywords() {
        let mut own = json!({
            "type": "object",
            "properties": {
                "default": {"type": "string", "default": "x"},
                "port": {"allOf": [{"$ref": "#/components/schemas/a.B"}], "default": {}, "description": "d"},
                "either": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
            },
        });
        schema(&mut own);
        assert_eq!(
            own,
            json!({
                "type": "object",
                "properties": {
                    "default": {"type": "string"},
                    "port": {"$ref": "#/definitions/a.B", "description": "d"},
                    "either": {"type": "string"},
                },
            })
        );
    }
}
