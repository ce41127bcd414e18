//! Fields of custom objects that lists can be narrowed by: plain paths to scalars of the schema.

use super::versions::RuleScope;
use crate::shared::validation::Errors;
use machinery_meta::{FieldError, FieldPath};
use machinery_schema::Ref;
use std::collections::HashSet;

const MAX_FIELDS: usize = 8;

/// The reason for which a path selects nothing, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum PathError {
    #[error("does not refer to a valid field")]
    NoField,
    #[error("array notation is not allowed")]
    Array,
    #[error("unexpected end of JSON path")]
    End,
    #[error("expected [ or . but got: {0}")]
    Unexpected(String),
}

/// Every problem of the selectable fields of a version, or of all versions.
pub(super) fn validate(fields: Ref<'_>, place: &RuleScope<'_>, problems: &mut Errors) {
    if fields.is_empty() {
        return;
    }
    let Some(schema) = place.schema.and_then(|schema| schema.get("openAPIV3Schema")) else {
        return problems.push(FieldError::invalid(&place.path, "", place.without_schema));
    };
    let mut seen = HashSet::new();
    for (at, field) in fields.items().enumerate() {
        let path = place.path.index(at).child("jsonPath");
        one(field.str("jsonPath"), schema, &path, &mut seen, problems);
    }
    if seen.len() > MAX_FIELDS {
        problems.push(FieldError::too_many(&place.path, seen.len(), MAX_FIELDS));
    }
}

fn one<'a>(
    text: &'a str,
    schema: Ref<'_>,
    path: &FieldPath,
    seen: &mut HashSet<&'a str>,
    problems: &mut Errors,
) {
    if text.is_empty() {
        return problems.push(FieldError::required(path, ""));
    }
    let found = match follow(text, schema) {
        Ok(found) => found,
        Err(error) => {
            let detail = format!("is an invalid path: {error}");
            return problems.push(FieldError::invalid(path, text, detail));
        }
    };
    if text == ".metadata" || text.starts_with(".metadata.") {
        let detail = "must not point to fields in metadata";
        problems.push(FieldError::invalid(path, text, detail));
    }
    if !matches!(found.str("type"), "string" | "boolean" | "integer") {
        let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
        problems.push(FieldError::invalid(path, text, detail));
    }
    if !seen.insert(text) {
        problems.push(FieldError::duplicate(path, text));
    }
}

/// The schema that a path of members leads to.
fn follow<'a>(text: &str, mut schema: Ref<'a>) -> Result<Ref<'a>, PathError> {
    let mut tokens = tokens(text).into_iter();
    while let Some(token) = tokens.next() {
        match token {
            "." => {
                let name = tokens.next().ok_or(PathError::End)?;
                let named = schema.get("properties").filter(|own| !own.is_empty());
                schema = match named {
                    Some(properties) => properties.get(name),
                    None => schema
                        .get("additionalProperties")
                        .filter(|own| own.as_bool().is_none()),
                }
                .ok_or(PathError::NoField)?;
            }
            "[" => return Err(PathError::Array),
            other => return Err(PathError::Unexpected(other.to_owned())),
        }
    }
    Ok(schema)
}

/// The delimiters of a path, and what lies between them.
fn tokens(text: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = match rest.find(['.', '[', ']']) {
            Some(0) => 1,
            Some(end) => end,
            None => rest.len(),
        };
        let (token, after) = rest.split_at(end);
        all.push(token);
        rest = after;
    }
    all
}
