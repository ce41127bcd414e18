//! Types of kinds, from the server's OpenAPI documents.

use machinery_cel::{Data, Declared};
use machinery_client::Client;
use machinery_meta::GroupVersionKind;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Nodes of a schema whose references are put in their places; the largest built-in kind has some 20,000.
const MAX_NODES: usize = 200_000;
/// References inside each other.
const MAX_DEPTH: usize = 48;
const PREFIX: &str = "#/components/schemas/";

/// Documents that were read for one policy.
pub(super) struct Schemas<'a> {
    client: &'a Client,
    documents: BTreeMap<String, Option<Json>>,
}

impl<'a> Schemas<'a> {
    pub(super) fn new(client: &'a Client) -> Self {
        Self {
            client,
            documents: BTreeMap::new(),
        }
    }

    /// The type of a kind; `None` where there is none, or none that can be resolved: then nothing is checked.
    pub(super) async fn declared(&mut self, kind: &GroupVersionKind) -> Option<Arc<Declared>> {
        let path = match kind.group.as_str() {
            "" => format!("/openapi/v3/api/{}", kind.version),
            group => format!("/openapi/v3/apis/{group}/{}", kind.version),
        };
        if !self.documents.contains_key(&path) {
            let read = self.client.get_path_as(&path, "application/json").await;
            if let Err(error) = &read {
                tracing::debug!(%error, path, "an OpenAPI document cannot be read");
            }
            let document = read.ok().and_then(|body| serde_json::from_slice(&body).ok());
            self.documents.insert(path.clone(), document);
        }
        let document = self.documents.get(&path)?.as_ref()?;
        declared(document, kind).map(Arc::new)
    }
}

fn declared(document: &Json, kind: &GroupVersionKind) -> Option<Declared> {
    let all = document.pointer("/components/schemas")?.as_object()?;
    let schema = all.values().find(|own| is_of(own, kind))?;
    let mut left = MAX_NODES;
    let resolved = resolved(schema, all, 0, &mut left)?;
    Declared::named_from_schema(Data::from(&resolved), true, &kind.kind)
}

fn is_of(schema: &Json, kind: &GroupVersionKind) -> bool {
    let kinds = schema
        .get("x-kubernetes-group-version-kind")
        .and_then(Json::as_array);
    kinds.into_iter().flatten().any(|own| {
        let is = |name: &str, value: &str| own.get(name).and_then(Json::as_str) == Some(value);
        is("group", &kind.group) && is("version", &kind.version) && is("kind", &kind.kind)
    })
}

/// The name that a schema refers to; the reference may be in an `allOf`, beside a description.
fn reference(schema: &Json) -> Option<&str> {
    let own = schema.get("$ref").and_then(Json::as_str);
    let own = own.and_then(|own| own.strip_prefix(PREFIX));
    let all = schema.get("allOf").and_then(Json::as_array);
    own.or_else(|| all.into_iter().flatten().find_map(reference))
}

/// A schema with what it refers to in its place; `None` of one that refers to itself.
fn resolved(schema: &Json, all: &Map<String, Json>, depth: usize, left: &mut usize) -> Option<Json> {
    *left = left.checked_sub(1)?;
    if depth > MAX_DEPTH {
        return None;
    }
    if let Some(name) = reference(schema) {
        return resolved(all.get(name)?, all, depth + 1, left);
    }
    let Json::Object(members) = schema else {
        return Some(schema.clone());
    };
    let mut out = Map::new();
    for (name, value) in members {
        let value = match (name.as_str(), value) {
            ("description" | "x-kubernetes-group-version-kind", _) => continue,
            ("properties", Json::Object(fields)) => {
                let each = fields.iter().map(|(name, own)| {
                    let own = resolved(own, all, depth + 1, left)?;
                    Some((name.clone(), own))
                });
                Json::Object(each.collect::<Option<_>>()?)
            }
            ("items" | "additionalProperties", own) => resolved(own, all, depth + 1, left)?,
            (_, own) => own.clone(),
        };
        out.insert(name.clone(), value);
    }
    Some(Json::Object(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kind() -> GroupVersionKind {
        GroupVersionKind::new("g.example", "v1", "Thing")
    }

    fn document(spec: Json) -> Json {
        json!({"components": {"schemas": {
            "thing": {"type": "object", "properties": {"spec": {"allOf": [{"$ref": "#/components/schemas/spec"}], "default": {}}},
                "x-kubernetes-group-version-kind": [{"group": "g.example", "version": "v1", "kind": "Thing"}]},
            "spec": spec,
        }}})
    }

    #[test]
    fn types_follow_references() {
        let own = declared(
            &document(json!({"type": "object", "properties": {"n": {"type": "integer"}}})),
            &kind(),
        );
        let own = own.unwrap();
        let n = own.field("spec").and_then(|own| own.field("n"));
        assert_eq!(n.and_then(Declared::ty), Some(machinery_cel::Type::Int));
        assert!(declared(&document(json!({})), &GroupVersionKind::new("", "v1", "Thing")).is_none());
    }

    #[test]
    fn types_that_refer_to_themselves_are_not_checked() {
        let spec = json!({"type": "object", "properties": {"a": {"$ref": "#/components/schemas/spec"}}});
        assert!(declared(&document(spec), &kind()).is_none());
        let two = json!({"type": "object", "properties": {"a": {"$ref": "#/components/schemas/spec"}, "b": {"$ref": "#/components/schemas/spec"}}});
        assert!(declared(&document(two), &kind()).is_none());
    }
}
