//! OpenAPI: v3 with one document per group version, v2 with one for all ([`v2`]); rendered from the table when somebody
//! asks and then dropped.
//!
//! [`render`] makes the document of a group version's built-in kinds and of the custom kinds in it. Types,
//! defaults, formats, list types and patch strategies come from the table, words from k8s-openapi (compressed
//! in the binary), paths from the rows of the kinds. It is what `kubectl explain`, `kubectl apply` and
//! client-side validation read.

mod custom;
mod paths;
mod schemas;
pub mod v2;

pub use custom::CustomKind;

use crate::table::KindInfo;
use flate2::read::DeflateDecoder;
use serde_json::{Map, Value, json};
use std::io::Read;

/// Edition of the specification that a document follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edition {
    V2,
    V3,
}

/// The words of every type and field, inflated for one rendering.
const MAX_DESCRIPTIONS: u64 = 16 << 20;

/// The document of a group version as JSON.
pub fn render(
    group: &str,
    version: &str,
    kinds: &[&KindInfo],
    custom: &[CustomKind<'_>],
    server: &str,
) -> Vec<u8> {
    let words = descriptions();
    let mut schemas = schemas::Schemas::new(&words);
    let mut paths = Map::new();
    for kind in kinds {
        schemas.add_kind(kind);
        paths::add(&mut paths, &paths::Resource::built_in(kind));
    }
    for kind in custom {
        kind.add(&mut schemas, &mut paths, Edition::V3);
    }
    paths::add_group(&mut paths, group, version);
    let document = json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": server},
        "paths": paths,
        "components": {
            "schemas": schemas.finish(),
            "securitySchemes": {"BearerToken": {
                "type": "apiKey",
                "description": "Bearer Token authentication",
                "name": "authorization",
                "in": "header",
            }},
        },
    });
    serde_json::to_vec(&document).unwrap_or_default()
}

/// `{"io.k8s.api.core.v1.Pod": ["…", {"spec": "…"}]}`
fn descriptions() -> Map<String, Value> {
    let packed: &[u8] = include_bytes!("../descriptions.bin");
    let mut text = String::new();
    let read = DeflateDecoder::new(packed)
        .take(MAX_DESCRIPTIONS)
        .read_to_string(&mut text);
    match read.ok().and_then(|_| serde_json::from_str(&text).ok()) {
        Some(Value::Object(words)) => words,
        _ => Map::new(),
    }
}

/// Reference to a schema of the document.
fn reference(model: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{model}")})
}

#[cfg(test)]
mod tests;
