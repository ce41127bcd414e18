//! OpenAPI: v3 with one document per group version, v2 with one for all ([`v2`]); rendered from the table when a client
//! asks and then dropped.
//!
//! [`render`] makes the document of a group version's built-in kinds and of the custom kinds in it, [`render_root`] one of what
//! stands beside them. Types, defaults, formats, list types and patch strategies come from the table, words from upstream's
//! document (compressed in the binary), operations from the rows of the kinds ([`paths`]). It is what
//! `kubectl explain`, `kubectl apply`, client-side validation and generators of clients read.

mod custom;
mod paths;
mod schemas;
mod section;
pub mod v2;

pub use custom::CustomKind;
pub use paths::operations::BuiltInKind;

use flate2::read::DeflateDecoder;
use paths::{Options, Parameters, Route};
use schemas::Schemas;
use section::{Form, Section};
use serde_json::{Map, Value, json};
use std::io::Read;

/// Edition of the specification that a document follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edition {
    V2,
    V3,
}

impl Edition {
    /// Reference to a schema of the document.
    fn reference(self, model: &str) -> Value {
        match self {
            Self::V2 => json!({"$ref": format!("#/definitions/{model}")}),
            Self::V3 => json!({"$ref": format!("#/components/schemas/{model}")}),
        }
    }
}

/// The words of every type and field, inflated for one rendering.
const MAX_DESCRIPTIONS: u64 = 16 << 20;

/// The document of a group version as JSON.
pub fn render(
    group: &str,
    version: &str,
    kinds: &[BuiltInKind<'_>],
    custom: &[CustomKind<'_>],
    server: &str,
) -> Vec<u8> {
    let words = descriptions();
    // Upstream's builder for definitions has a name of its own, and no types of the group.
    let (info, own) = match kinds.is_empty() {
        true => (
            json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}),
            &[][..],
        ),
        false => (info(server), &[(group, version)][..]),
    };
    let mut document = Document::new(&words, own, Form::Json, Edition::V3);
    document.add_group_version(group, version, kinds, custom);
    document.into_v3(&info)
}

/// The document at an address without a version: of discovery (`api`, `apis`, `apis/GROUP`) or beside the API; `None` for
/// others.
pub fn render_root(address: &str, server: &str) -> Option<Vec<u8>> {
    let route = paths::root::at(address)?;
    let words = descriptions();
    let mut document = Document::new(&words, &[], Form::Json, Edition::V3);
    document.add(vec![route]);
    Some(document.into_v3(&info(server)))
}

/// Addresses of documents that belong to no group, as [`render_root`] takes them.
pub fn root_addresses() -> &'static [&'static str] {
    &paths::root::ADDRESSES
}

/// A document in the making: its paths are written as they are added, its schemas once all is known.
struct Document<'w> {
    options: Options<'w>,
    edition: Edition,
    schemas: Schemas<'w>,
    parameters: Parameters,
    paths: Section,
}

impl<'w> Document<'w> {
    fn new(
        words: &'w Map<String, Value>,
        group_versions: &[(&str, &str)],
        form: Form,
        edition: Edition,
    ) -> Self {
        Self {
            options: Options::new(words),
            edition,
            schemas: Schemas::new(words, group_versions),
            parameters: Parameters::new(edition),
            paths: Section::new("paths", form),
        }
    }

    fn add(&mut self, routes: Vec<Route<'_>>) {
        for model in routes.iter().flat_map(Route::models) {
            self.schemas.need(model);
        }
        for (path, item) in paths::items(routes, &mut self.parameters) {
            self.paths.push(&path, &item);
        }
    }

    fn add_group_version<'k>(
        &mut self,
        group: &str,
        version: &str,
        kinds: &[BuiltInKind<'k>],
        custom: &[CustomKind<'k>],
    ) where
        'w: 'k,
    {
        for kind in kinds {
            let routes = paths::operations::routes(kind, self.options, self.schemas.models());
            self.add(routes);
        }
        for kind in custom {
            let routes = kind.add(&mut self.schemas, self.options, self.edition);
            self.add(routes);
        }
        // Upstream publishes no discovery of groups of custom kinds alone.
        if !kinds.is_empty() {
            self.add(vec![paths::root::group_version(group, version)]);
        }
    }

    fn into_v3(self, info: &Value) -> Vec<u8> {
        let mut schemas = Section::new("schemas", Form::Json);
        self.schemas.each(|name, schema| schemas.push(&name, &schema));
        let components = json!({"securitySchemes": {"BearerToken": bearer_token()}});
        let components = section::with_sections(&components, &[schemas]);
        let document = json!({"openapi": "3.0.0", "info": info});
        let mut out = section::with_sections(&document, &[self.paths]);
        out.pop();
        out.extend_from_slice(b",\"components\":");
        out.extend_from_slice(&components);
        out.push(b'}');
        out
    }
}

fn info(server: &str) -> Value {
    json!({"title": "Kubernetes", "version": server})
}

fn bearer_token() -> Value {
    json!({
        "type": "apiKey",
        "description": "Bearer Token authentication",
        "name": "authorization",
        "in": "header",
    })
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

#[cfg(test)]
mod tests;
