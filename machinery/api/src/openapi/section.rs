//! Sections of a document (`paths`, `schemas` …), written member by member so that only their bytes stay in memory.

use super::v2::protobuf;
use serde_json::Value;

/// Format of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Json,
    /// gnostic's `openapi.v2.Document`.
    Protobuf,
}

/// Members of one section, written one after the other.
pub(super) struct Section {
    pub(super) name: &'static str,
    form: Form,
    pub(super) bytes: Vec<u8>,
}

impl Section {
    pub(super) fn new(name: &'static str, form: Form) -> Self {
        Self {
            name,
            form,
            bytes: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, name: &str, value: &Value) {
        match self.form {
            Form::Json => {
                if !self.bytes.is_empty() {
                    self.bytes.push(b',');
                }
                self.bytes
                    .extend_from_slice(Value::from(name).to_string().as_bytes());
                self.bytes.push(b':');
                // Writing into memory fails only where serializing does, which values cannot.
                let _ = serde_json::to_writer(&mut self.bytes, value);
            }
            Form::Protobuf => protobuf::member(&mut self.bytes, self.name, name, value),
        }
    }
}

/// An object of JSON: its small members, then sections that are written already; empty ones are left out.
pub(super) fn with_sections(small: &Value, sections: &[Section]) -> Vec<u8> {
    let mut out = serde_json::to_vec(small).unwrap_or_default();
    out.reserve(sections.iter().map(|own| own.bytes.len() + 32).sum());
    out.pop();
    for section in sections.iter().filter(|own| !own.bytes.is_empty()) {
        out.extend_from_slice(format!(",\"{}\":{{", section.name).as_bytes());
        out.extend_from_slice(&section.bytes);
        out.push(b'}');
    }
    out.push(b'}');
    out
}
