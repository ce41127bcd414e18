//! Custom kinds in a document: their own schema, with what every object has.

use super::paths::custom::CustomResource;
use super::paths::{Options, Route};
use super::schemas::{Schemas, model_name};
use super::{Edition, v2};
use serde_json::{Map, Value, json};

/// One served version of a CustomResourceDefinition.
#[derive(Debug, Clone, Copy)]
pub struct CustomKind<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub list_kind: &'a str,
    pub plural: &'a str,
    pub namespaced: bool,
    /// `openAPIV3Schema` as JSON.
    pub schema: Option<&'a str>,
    pub status: bool,
    pub scale: bool,
}

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const LIST_METADATA: &str = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
/// Members of a schema that say nothing about values.
const UNPUBLISHED: [&str; 4] = ["$schema", "id", "example", "externalDocs"];
/// Descriptions of an embedded object's type members.
const EMBEDDED_TYPE: [&str; 2] = [
    "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources",
    "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
];

impl<'a> CustomKind<'a> {
    /// Adds the schemas of the kind and its list; gives the operations on it.
    pub(super) fn add<'w: 'a>(
        &self,
        schemas: &mut Schemas<'_>,
        options: Options<'w>,
        edition: Edition,
    ) -> Vec<Route<'a>> {
        let (model, list_model) = (self.model(self.kind), self.model(self.list_kind));
        let own = self.object(schemas, edition);
        schemas.add_custom(model.clone(), own);
        let items = self.list(&model, schemas);
        schemas.add_custom(list_model.clone(), items);
        let status = self.status.then(|| ("status", model.clone()));
        let scale = self.scale.then(|| ("scale", model_name("autoscaling.v1.Scale")));
        let resource = CustomResource {
            options,
            gvk: [self.group, self.version, self.kind],
            plural: self.plural,
            namespaced: self.namespaced,
            model,
            list_model,
            subresources: status.into_iter().chain(scale).collect(),
        };
        resource.routes()
    }

    /// `com.example.v1.Widget`
    fn model(&self, kind: &str) -> String {
        let reversed: Vec<&str> = self.group.rsplit('.').collect();
        format!("{}.{}.{kind}", reversed.join("."), self.version)
    }

    fn object(&self, schemas: &mut Schemas<'_>, edition: Edition) -> Value {
        let parsed = self.schema.and_then(|text| serde_json::from_str(text).ok());
        let mut own = match parsed {
            // Readers of v2 take members that are named for all there may be.
            Some(Value::Object(own)) if edition == Edition::V3 || !is(&own, PRESERVE) => {
                complete(own, schemas, edition)
            }
            _ => Map::from_iter([("type".to_owned(), json!("object"))]),
        };
        own.insert(
            "x-kubernetes-group-version-kind".to_owned(),
            json!([self.gvk(self.kind)]),
        );
        Value::Object(own)
    }

    fn list(&self, model: &str, schemas: &mut Schemas<'_>) -> Value {
        let metadata = schemas.add_named("meta.v1.ListMeta");
        json!({
            "description": format!("{} is a list of {}", self.list_kind, self.kind),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"description": API_VERSION, "type": "string"},
                "kind": {"description": KIND, "type": "string"},
                "metadata": {"description": LIST_METADATA, "allOf": [metadata]},
                "items": {
                    "description": format!("List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md", self.plural),
                    "type": "array",
                    "items": Edition::V3.reference(model),
                },
            },
            "x-kubernetes-group-version-kind": [self.gvk(self.list_kind)],
        })
    }

    fn gvk(&self, kind: &str) -> Value {
        json!({"group": self.group, "version": self.version, "kind": kind})
    }
}

fn is(schema: &Map<String, Value>, flag: &str) -> bool {
    schema.get(flag).and_then(Value::as_bool) == Some(true)
}

/// A definition's schema with what every object has.
fn complete(mut own: Map<String, Value>, schemas: &mut Schemas<'_>, edition: Edition) -> Map<String, Value> {
    UNPUBLISHED.iter().for_each(|name| drop(own.remove(*name)));
    if edition == Edition::V2 {
        v2::structural::simplify(&mut own);
    } else {
        name_both_types(&mut own);
    }
    let metadata = metadata(schemas);
    type_meta(&mut own, [API_VERSION, KIND], &metadata);
    embed(&mut own, &metadata, edition);
    own
}

/// Says below a schema, in words that every reader knows, that a value is a whole number or a text.
fn name_both_types(schema: &mut Map<String, Value>) {
    if is(schema, "x-kubernetes-int-or-string") && !schema.contains_key("anyOf") {
        let both = json!([{"type": "integer"}, {"type": "string"}]);
        schema.insert("anyOf".to_owned(), both);
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties
            .values_mut()
            .filter_map(Value::as_object_mut)
            .for_each(name_both_types);
    }
    for below in ["items", "additionalProperties"] {
        if let Some(Value::Object(own)) = schema.get_mut(below) {
            name_both_types(own);
        }
    }
}

/// The property `metadata` of an object.
fn metadata(schemas: &mut Schemas<'_>) -> Value {
    let own = schemas.add_named("meta.v1.ObjectMeta");
    json!({
        "description": "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
        "allOf": [own],
    })
}

/// Gives a schema the members that every object has.
fn type_meta(schema: &mut Map<String, Value>, [version, kind]: [&str; 2], metadata: &Value) {
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    properties["apiVersion"] = json!({"description": version, "type": "string"});
    properties["kind"] = json!({"description": kind, "type": "string"});
    properties["metadata"] = metadata.clone();
}

/// Gives embedded objects below a schema the members that every object has.
fn embed(schema: &mut Map<String, Value>, metadata: &Value, edition: Edition) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for own in properties.values_mut().filter_map(Value::as_object_mut) {
            embed(own, metadata, edition);
        }
    }
    for below in ["items", "additionalProperties"] {
        if let Some(Value::Object(own)) = schema.get_mut(below) {
            embed(own, metadata, edition);
        }
    }
    if !is(schema, EMBEDDED) || (edition == Edition::V2 && is(schema, PRESERVE)) {
        return;
    }
    type_meta(schema, EMBEDDED_TYPE, metadata);
    let required = schema.entry("required").or_insert_with(|| json!([]));
    if let Value::Array(required) = required {
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|own| own == name) {
                required.push(json!(name));
            }
        }
    }
}
