//! Objects of questions, read and answered as JSON.

use apiserver_registry::RegistryError;
use machinery_meta::{FieldError, GroupKind};
use machinery_schema::{Strictness, Tree, decode_json};
use serde_json::Value;

/// The object again, with another member set from JSON.
pub(super) fn with_members(object: &Tree, members: &[(&str, &str)]) -> Result<Tree, RegistryError> {
    let mut text = String::from("{");
    let kept = object
        .root()
        .entries()
        .filter(|(name, _)| members.iter().all(|(own, _)| own != name));
    let mut push = |name: &str, json: &str| text.push_str(&format!("{}:{json},", Value::from(name)));
    for (name, value) in kept {
        push(name, &value.to_json());
    }
    for (name, json) in members {
        push(name, json);
    }
    text.pop();
    text.push('}');
    let decoded = decode_json(object.schema(), object.ty(), text.as_bytes(), Strictness::Ignore);
    decoded
        .map(|decoded| decoded.tree)
        .map_err(|error| RegistryError::Internal(error.to_string()))
}

pub(super) fn invalid(group: &str, kind: &str, name: &str, errors: Vec<FieldError>) -> RegistryError {
    let kind = GroupKind {
        group: group.to_owned(),
        kind: kind.to_owned(),
    };
    RegistryError::Invalid {
        kind,
        name: name.to_owned(),
        errors,
    }
}

pub(super) fn spec_json(object: &Tree) -> String {
    member_json(object, "spec")
}

pub(super) fn member_json(object: &Tree, name: &str) -> String {
    object
        .get(name)
        .map(|member| member.to_json())
        .unwrap_or_default()
}
