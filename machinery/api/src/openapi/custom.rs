//! Custom kinds in a document: their own schema, with what every object has.

use super::paths::{Resource, SubresourcePath};
use super::reference;
use super::schemas::Schemas;
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

const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

impl CustomKind<'_> {
    pub(super) fn add(&self, schemas: &mut Schemas<'_>, paths: &mut Map<String, Value>) {
        let (model, list) = (self.model(self.kind), self.model(self.list_kind));
        let own = self.object(schemas);
        schemas.add_custom(model.clone(), own);
        let items = self.list(&model, schemas);
        schemas.add_custom(list.clone(), items);
        let verbs = || vec!["get", "patch", "update"];
        let mut subresources = Vec::new();
        if self.status {
            let gvk = [self.group, self.version, self.kind];
            subresources.push(SubresourcePath {
                name: "status",
                gvk,
                verbs: verbs(),
                model: Some(model.clone()),
            });
        }
        if self.scale {
            schemas.add_named("autoscaling.v1.Scale");
            let scale = super::schemas::model_name("autoscaling.v1.Scale");
            let gvk = ["autoscaling", "v1", "Scale"];
            subresources.push(SubresourcePath {
                name: "scale",
                gvk,
                verbs: verbs(),
                model: Some(scale),
            });
        }
        let resource = Resource {
            group: self.group,
            version: self.version,
            kind: self.kind,
            plural: self.plural,
            namespaced: self.namespaced,
            verbs: VERBS.to_vec(),
            model,
            list_model: Some(list),
            subresources,
        };
        super::paths::add(paths, &resource);
    }

    /// `com.example.v1.Widget`
    fn model(&self, kind: &str) -> String {
        let reversed: Vec<&str> = self.group.rsplit('.').collect();
        format!("{}.{}.{kind}", reversed.join("."), self.version)
    }

    fn object(&self, schemas: &mut Schemas<'_>) -> Value {
        let parsed = self.schema.and_then(|text| serde_json::from_str(text).ok());
        let mut own = match parsed {
            Some(Value::Object(own)) => own,
            _ => Map::from_iter([
                ("type".to_owned(), json!("object")),
                ("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true)),
            ]),
        };
        let properties = own.entry("properties").or_insert_with(|| json!({}));
        properties["apiVersion"] = json!({"description": API_VERSION, "type": "string"});
        properties["kind"] = json!({"description": KIND, "type": "string"});
        let metadata = schemas.add_named("meta.v1.ObjectMeta");
        properties["metadata"] = json!({
            "description": "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
            "allOf": [metadata],
        });
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
                "metadata": {"allOf": [metadata]},
                "items": {
                    "description": format!("List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md", self.plural),
                    "type": "array",
                    "items": reference(model),
                },
            },
            "x-kubernetes-group-version-kind": [self.gvk(self.list_kind)],
        })
    }

    fn gvk(&self, kind: &str) -> Value {
        json!({"group": self.group, "version": self.version, "kind": kind})
    }
}
