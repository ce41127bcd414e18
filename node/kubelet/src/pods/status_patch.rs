//! The smallest patch that turns one status into another. Pure.

use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Map, Value, json};

/// A strategic merge patch for the status subresource; `None` if nothing changed.
///
/// Fields of others (the scheduler's conditions, for one) are left alone: only what differs is named.
pub(crate) fn status_patch(uid: &str, old: &PodStatus, new: &PodStatus) -> Option<Value> {
    if old == new {
        return None;
    }
    let (old, new) = (as_map(old), as_map(new));
    let mut changed = Map::new();
    for (name, value) in &new {
        let before = old.get(name);
        if before == Some(value) {
            continue;
        }
        let value = match name.as_str() {
            "conditions" => changed_conditions(before, value),
            "podIPs" | "hostIPs" => replaced(before, value),
            _ => value.clone(),
        };
        changed.insert(name.clone(), value);
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        changed.insert(name.clone(), Value::Null);
    }
    if changed.is_empty() {
        return None;
    }
    Some(json!({"metadata": {"uid": uid}, "status": changed}))
}

fn as_map(status: &PodStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// Conditions merge by type: only those that differ are sent, with nulls for what they lost, and those that went.
fn changed_conditions(before: Option<&Value>, after: &Value) -> Value {
    let before = before.and_then(Value::as_array).cloned().unwrap_or_default();
    let after = after.as_array().cloned().unwrap_or_default();
    let same_type = |a: &Value, b: &Value| a["type"] == b["type"];
    let differing = after
        .iter()
        .filter(|condition| !before.contains(*condition))
        .map(|condition| {
            let mut condition = condition.clone();
            let old = before
                .iter()
                .find(|old| same_type(old, &condition))
                .and_then(Value::as_object)
                .cloned();
            if let Some(fields) = condition.as_object_mut() {
                for name in old
                    .into_iter()
                    .flat_map(|old| old.into_iter().map(|(name, _)| name))
                {
                    // A merge keeps fields that the patch does not name; a null removes them.
                    fields.entry(name).or_insert(Value::Null);
                }
            }
            condition
        });
    let gone = before
        .iter()
        .filter(|old| !after.iter().any(|new| same_type(old, new)))
        .map(|old| json!({"$patch": "delete", "type": old["type"]}));
    Value::Array(differing.chain(gone).collect())
}

/// Address lists merge by address; one that changes must replace the old one, not join it.
fn replaced(before: Option<&Value>, after: &Value) -> Value {
    let mut list = after.as_array().cloned().unwrap_or_default();
    if before
        .and_then(Value::as_array)
        // An empty list has nothing to replace.
        .is_some_and(|before| !before.is_empty())
    {
        list.push(json!({"$patch": "replace"}));
    }
    Value::Array(list)
}
