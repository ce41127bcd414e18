//! Malformed and changed values by the type of a field.

use serde_json::{Value, json};

use crate::facts::{Facts, Field};

/// Values that a create must refuse, or at least look at, each with a name. `present` is the value in the object.
pub(super) fn malformed(
    facts: &Facts,
    field: &Field,
    present: Option<&Value>,
) -> Vec<(&'static str, Option<Value>)> {
    let mut values: Vec<(&'static str, Option<Value>)> = Vec::new();
    let mut add = |name, value: Value| values.push((name, Some(value)));
    let type_ = field.type_.trim_start_matches('*');
    match type_ {
        "string" if !field.enumeration.is_empty() => add("odd", "Odd".into()),
        "string" => {
            add("empty", "".into());
            add("bad", "-Bad Value".into());
        }
        "int32" | "int" => {
            add("negative", (-1).into());
            add("large", i32::MAX.into());
        }
        "int64" => {
            add("negative", (-1).into());
            add("large", i64::MAX.into());
        }
        "bool" => add("turned", (present != Some(&Value::Bool(true))).into()),
        "map[string]string" => add("bad", json!({"-Bad Key": "-Bad Value"})),
        "[]string" => {
            add("empty", json!([""]));
            add("bad", json!(["-Bad Value", "-Bad Value"]));
        }
        _ => match facts.type_named(type_).and_then(|type_| type_.marker.as_deref()) {
            Some("Quantity") => {
                add("negative", "-1".into());
                add("bad", "x1".into());
            }
            Some("IntOrString") => {
                add("negative", (-1).into());
                add("bad", "-Bad Value".into());
                add("percent", "101%".into());
            }
            Some("Time" | "MicroTime") => add("bad", "yesterday".into()),
            Some(_) => {}
            None => structured(facts, type_, present, &mut values),
        },
    }
    if present.is_some() {
        values.push(("removed", None));
    }
    values
}

/// Values of lists, maps and structs.
fn structured(
    facts: &Facts,
    type_: &str,
    present: Option<&Value>,
    values: &mut Vec<(&'static str, Option<Value>)>,
) {
    let mut add = |name, value: Value| values.push((name, Some(value)));
    if let Some(element) = type_.strip_prefix("[]") {
        if is_struct(facts, element) {
            add("empty", json!([{}]));
            if let Some(first) = present.and_then(|list| list.get(0)) {
                add("twice", json!([first, first]));
            }
        }
    } else if let Some(element) = type_.strip_prefix("map[string]") {
        let is_quantity = facts
            .type_named(element)
            .and_then(|type_| type_.marker.as_deref())
            == Some("Quantity");
        if is_quantity {
            add("bad", json!({"-Bad Key": "1"}));
            add("negative", json!({"cpu": "-1"}));
        }
    } else if is_struct(facts, type_) && present.is_none() {
        add("empty", json!({}));
    }
}

fn is_struct(facts: &Facts, type_: &str) -> bool {
    facts
        .type_named(type_.trim_start_matches('*'))
        .is_some_and(|type_| type_.marker.is_none() && type_.is.is_none())
}

/// Another value of the kind that a field may have, for updates of what is stored.
pub(super) fn changed(facts: &Facts, field: &Field, present: &Value) -> Vec<(&'static str, Option<Value>)> {
    let marker = facts
        .type_named(field.type_.trim_start_matches('*'))
        .and_then(|type_| type_.marker.as_deref());
    let other = match present {
        _ if marker == Some("Quantity") => Some("77".into()),
        Value::String(text) if !field.enumeration.is_empty() => {
            let other = field.enumeration.iter().find(|value| *value != text);
            other.map(|value| value.as_str().into())
        }
        Value::String(text) => Some(format!("{text}x").into()),
        Value::Number(number) => number.as_i64().map(|number| (number + 1).into()),
        Value::Bool(value) => Some((!value).into()),
        Value::Object(members) if field.type_ == "map[string]string" => {
            let mut members = members.clone();
            members.insert("added".into(), "x".into());
            Some(members.into())
        }
        Value::Array(items) => {
            let mut items = items.clone();
            items.pop();
            Some(items.into())
        }
        _ => None,
    };
    let mut values: Vec<(&'static str, Option<Value>)> = Vec::new();
    values.extend(other.map(|value| ("changed", Some(value))));
    values.push(("removed", None));
    values
}
