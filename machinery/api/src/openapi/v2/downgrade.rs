//! From the v3 form of a path or a schema to its v2 form.

use serde_json::{Map, Value, json};

const V3: &str = "#/components/schemas/";
const V2: &str = "#/definitions/";
const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

/// A path's operations: bodies become parameters, media types `consumes` and `produces`.
pub(super) fn path(item: &mut Value) {
    let Value::Object(item) = item else { return };
    parameters(item);
    for method in METHODS {
        if let Some(Value::Object(operation)) = item.get_mut(method) {
            one_operation(operation);
        }
    }
}

fn one_operation(operation: &mut Map<String, Value>) {
    parameters(operation);
    operation.insert("schemes".to_owned(), json!(["https"]));
    let mut consumes = vec![Value::from("*/*")];
    if let Some(mut body) = operation.remove("requestBody") {
        let required = body.get("required").cloned().unwrap_or(Value::Bool(false));
        if let Some(Value::Object(content)) = body.get_mut("content").map(Value::take) {
            consumes = content.keys().map(|key| Value::from(key.as_str())).collect();
            let mut own = content_schema(content);
            schema(&mut own);
            let parameter = json!({"name": "body", "in": "body", "required": required, "schema": own});
            match operation.get_mut("parameters") {
                Some(Value::Array(all)) => all.insert(0, parameter),
                _ => drop(operation.insert("parameters".to_owned(), json!([parameter]))),
            }
        }
    }
    operation.insert("consumes".to_owned(), Value::Array(consumes));
    let produces = responses(operation);
    operation.insert("produces".to_owned(), Value::Array(produces));
}

/// Schema of the first media type; the others have the same.
fn content_schema(content: Map<String, Value>) -> Value {
    let first = content.into_iter().next();
    first
        .and_then(|(_, mut media)| media.get_mut("schema").map(Value::take))
        .unwrap_or_default()
}

/// Gives each answer its schema; returns the media types.
fn responses(operation: &mut Map<String, Value>) -> Vec<Value> {
    let mut produces = Vec::new();
    let Some(Value::Object(all)) = operation.get_mut("responses") else {
        return produces;
    };
    for answer in all.values_mut() {
        let Value::Object(answer) = answer else { continue };
        if let Some(Value::Object(content)) = answer.remove("content") {
            produces = content.keys().map(|key| Value::from(key.as_str())).collect();
            let mut own = content_schema(content);
            schema(&mut own);
            answer.insert("schema".to_owned(), own);
        }
    }
    produces
}

/// A parameter says its type itself.
fn parameters(holder: &mut Map<String, Value>) {
    let Some(Value::Array(all)) = holder.get_mut("parameters") else {
        return;
    };
    for parameter in all {
        let Value::Object(parameter) = parameter else {
            continue;
        };
        if let Some(Value::Object(own)) = parameter.remove("schema") {
            parameter.extend(own);
        }
    }
}

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

    #[test]
    fn openapi_v2_body_becomes_a_parameter() {
        let mut item = json!({"post": {
            "requestBody": {"required": true, "content": {"*/*": {"schema": {"$ref": "#/components/schemas/a.B"}}}},
            "parameters": [{"name": "dryRun", "in": "query", "schema": {"type": "string"}}],
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": {"type": "string"}}}}},
        }});
        path(&mut item);
        assert_eq!(
            item,
            json!({"post": {
                "consumes": ["*/*"],
                "produces": ["application/json"],
                "schemes": ["https"],
                "parameters": [
                    {"name": "body", "in": "body", "required": true, "schema": {"$ref": "#/definitions/a.B"}},
                    {"name": "dryRun", "in": "query", "type": "string"},
                ],
                "responses": {"200": {"description": "OK", "schema": {"type": "string"}}},
            }})
        );
    }
}
