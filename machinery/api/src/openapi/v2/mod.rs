//! OpenAPI v2: one document for everything served, rendered piece by piece from what v3 is made of.
//!
//! A path or a definition is made in its v3 form, brought to v2 by [`downgrade`] and written as JSON or, through
//! [`protobuf`], as a gnostic document; only the bytes written stay. Older clients' validation, `kubectl explain`
//! and `apply` read it, and clients that watch definitions come and go.

mod downgrade;
mod other;
mod protobuf;
pub(super) mod structural;

pub use other::OtherDocument;

use super::schemas::Schemas;
use super::{CustomKind, Edition, descriptions, paths};
use crate::table::KindInfo;
use serde_json::{Map, Value, json};

/// One group version: its built-in kinds and its custom ones.
#[derive(Debug)]
pub struct GroupVersionKinds<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kinds: Vec<&'a KindInfo>,
    pub custom: Vec<CustomKind<'a>>,
}

/// Format of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Json,
    /// gnostic's `openapi.v2.Document`.
    Protobuf,
}

/// The whole document, with the kinds of other servers.
pub fn render(
    parts: &[GroupVersionKinds<'_>],
    others: &[&OtherDocument],
    server: &str,
    form: Form,
) -> Vec<u8> {
    let words = descriptions();
    let mut schemas = Schemas::new(&words);
    let mut own_paths = Section::new("paths", form);
    for part in parts {
        for kind in &part.kinds {
            schemas.add_kind(kind);
            own_paths.take(|own| paths::add(own, &paths::Resource::built_in(kind)));
        }
        for custom in &part.custom {
            own_paths.take(|own| custom.add(&mut schemas, own, Edition::V2));
        }
        own_paths.take(|own| paths::add_group(own, part.group, part.version));
    }
    let mut definitions = Section::new("definitions", form);
    let mut named = other::Named::default();
    schemas.each(|name, mut schema| {
        downgrade::schema(&mut schema);
        definitions.push(&name, &schema);
        if others.iter().any(|other| other.defines(&name)) {
            named.insert(name, schema);
        }
    });
    for other in others {
        named.add(other, |section, name, value| match section {
            protobuf::Section::Paths => own_paths.push(name, value),
            protobuf::Section::Definitions => definitions.push(name, value),
        });
    }
    let mut document = json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": server},
        "securityDefinitions": {"BearerToken": {
            "type": "apiKey",
            "description": "Bearer Token authentication",
            "name": "authorization",
            "in": "header",
        }},
        "security": [{"BearerToken": []}],
    });
    match form {
        Form::Json => json_document(&document, &[own_paths, definitions]),
        Form::Protobuf => {
            let mut out = Vec::with_capacity(own_paths.bytes.len() + definitions.bytes.len() + 1024);
            protobuf::document(&mut out, document.take());
            protobuf::section(&mut out, own_paths.name, &own_paths.bytes);
            protobuf::section(&mut out, definitions.name, &definitions.bytes);
            out
        }
    }
}

/// The small members, then the sections that are written already.
fn json_document(small: &Value, sections: &[Section]) -> Vec<u8> {
    let mut out = serde_json::to_vec(small).unwrap_or_default();
    out.pop();
    for section in sections {
        out.extend_from_slice(format!(",\"{}\":{{", section.name).as_bytes());
        out.extend_from_slice(&section.bytes);
        out.push(b'}');
    }
    out.push(b'}');
    out
}

/// Members of `paths` or of `definitions`, written one after the other.
struct Section {
    name: &'static str,
    form: Form,
    bytes: Vec<u8>,
}

impl Section {
    fn new(name: &'static str, form: Form) -> Self {
        Self {
            name,
            form,
            bytes: Vec::new(),
        }
    }

    /// Writes the paths that are added, and forgets them.
    fn take(&mut self, add: impl FnOnce(&mut Map<String, Value>)) {
        let mut added = Map::new();
        add(&mut added);
        for (name, mut item) in added {
            downgrade::path(&mut item);
            self.push(&name, &item);
        }
    }

    fn push(&mut self, name: &str, value: &Value) {
        match self.form {
            Form::Json => {
                if !self.bytes.is_empty() {
                    self.bytes.push(b',');
                }
                self.bytes
                    .extend_from_slice(Value::from(name).to_string().as_bytes());
                self.bytes.push(b':');
                self.bytes.extend_from_slice(value.to_string().as_bytes());
            }
            Form::Protobuf => protobuf::member(&mut self.bytes, self.name, name, value),
        }
    }
}
