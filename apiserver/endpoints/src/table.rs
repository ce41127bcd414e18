//! Tables and metadata-only forms, from stored slices.

use crate::framing::type_meta;
use apiserver_registry::Record;
use apiserver_registry::RegistryError;
use apiserver_registry::columns::{Cell, Column, Columns};
use jiff::Timestamp;
use machinery_meta::Revision;
use machinery_schema::Tree;
use std::fmt::Write;

/// The part of the object that a table's row carries beside its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl IncludeObject {
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, RegistryError> {
        match text.unwrap_or_default() {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(RegistryError::BadRequest(format!(
                "unrecognized includeObject value: {other:?}"
            ))),
        }
    }
}

/// The metadata's end in the slice that follows the revision: just after its closing brace.
fn metadata_end(tail: &[u8]) -> usize {
    let (mut depth, mut in_text, mut escaped) = (1_usize, false, false);
    for (at, byte) in tail.iter().enumerate() {
        match (in_text, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (true, b'"') => in_text = false,
            (true, _) => {}
            (false, b'"') => in_text = true,
            (false, b'{' | b'[') => depth += 1,
            (false, b'}' | b']') => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    tail.len()
}

/// `PartialObjectMetadata` of a record.
pub(crate) fn partial_metadata(record: &Record, revision: Revision, beta: bool) -> Vec<u8> {
    let api_version = if beta {
        "meta.k8s.io/v1beta1"
    } else {
        "meta.k8s.io/v1"
    };
    let mut out = type_meta("PartialObjectMetadata", api_version).to_vec();
    out.extend_from_slice(&record.parts[1]);
    out.extend_from_slice(format!("\"{revision}\"").as_bytes());
    out.extend_from_slice(&record.parts[2][..metadata_end(&record.parts[2])]);
    out.push(b'}');
    out
}

/// `"metadata":{…}` of a list or table.
pub(crate) fn list_meta(revision: &str, continue_token: &str, remaining: Option<u64>) -> String {
    let mut out = String::from("{");
    if !revision.is_empty() {
        let _ = write!(out, "\"resourceVersion\":\"{revision}\"");
    }
    if !continue_token.is_empty() {
        let _ = write!(out, ",\"continue\":\"{continue_token}\"");
    }
    if let Some(remaining) = remaining {
        let _ = write!(out, ",\"remainingItemCount\":{remaining}");
    }
    out.push('}');
    out
}

/// Everything of a table before its rows; without heads where a watch sent them before.
pub(crate) fn table_head(columns: &Columns, beta: bool, list_meta: &str, heads: bool) -> String {
    let version = if beta { "v1beta1" } else { "v1" };
    let heads = if heads {
        heads_json(&columns.headers)
    } else {
        "null".into()
    };
    format!(
        "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":{list_meta},\"columnDefinitions\":{heads},\"rows\":["
    )
}

fn heads_json(heads: &[Column]) -> String {
    let all: Vec<String> = heads
        .iter()
        .map(|head| {
            format!(
                "{{\"name\":{},\"type\":{},\"format\":{},\"description\":{},\"priority\":{}}}",
                quoted(&head.name),
                quoted(&head.kind),
                quoted(&head.format),
                quoted(&head.description),
                head.priority
            )
        })
        .collect();
    format!("[{}]", all.join(","))
}

/// One row: cells, and what goes with them.
pub(crate) fn table_row(columns: &Columns, object: &Tree, now: Timestamp, shown: Option<&[u8]>) -> Vec<u8> {
    let mut out = b"{\"cells\":[".to_vec();
    for (at, cell) in (columns.cells)(object.root(), now).iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(cell_json(cell).as_bytes());
    }
    out.push(b']');
    if let Some(completed) = columns.completed.and_then(|completed| completed(object.root())) {
        let (reason, message) = (quoted(completed.reason), quoted(completed.message));
        let condition =
            format!(r#"{{"type":"Completed","status":"True","reason":{reason},"message":{message}}}"#);
        out.extend_from_slice(format!(",\"conditions\":[{condition}]").as_bytes());
    }
    out.extend_from_slice(b",\"object\":");
    out.extend_from_slice(shown.unwrap_or(b"null"));
    out.push(b'}');
    out
}

fn cell_json(cell: &Cell) -> String {
    match cell {
        Cell::Null => "null".into(),
        Cell::Text(text) => quoted(text),
        Cell::Int(number) => number.to_string(),
        Cell::Bool(value) => value.to_string(),
        Cell::Json(json) => json.clone(),
    }
}

pub(crate) fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text is always JSON")
}

#[cfg(test)]
mod tests {
    use super::metadata_end;

    #[test]
    fn metadata_ends_at_its_brace() {
        let tail = br#","labels":{"a}":"\"}"},"x":[{}]},"spec":{}}"#;
        assert_eq!(
            &tail[..metadata_end(tail)],
            br#","labels":{"a}":"\"}"},"x":[{}]}"#
        );
    }
}
