//! From a document to flags of the agent. Pure.

use super::fields::{FIELDS, Field, Form, Handling};
use machinery_meta::go_text::go_quote;
use machinery_schema::leaf::{parse_duration, write_duration};
use serde_json::{Map, Value};

/// A flag and the values that it is given, one after the other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) flag: &'static str,
    pub(super) values: Vec<String>,
}

/// The flags that mean what the document says, or everything that nothing honours.
pub(super) fn settings(document: &Map<String, Value>) -> Result<Vec<Setting>, Vec<String>> {
    let (mut settings, mut refused) = (Vec::new(), Vec::new());
    for field in FIELDS {
        let Some(value) = given(document, field) else {
            continue;
        };
        match field.handling {
            Handling::Flag(flag) => settings.push(Setting {
                flag,
                values: values(field, value),
            }),
            Handling::With(_) => {}
            Handling::Kept { own, others, needs } => {
                let text = text(field.form, value);
                let kept = [field.default, own];
                if !kept.iter().chain(others).any(|kept| *kept == text) {
                    refused.push(refusal(field, &text, own, needs));
                }
            }
        }
    }
    match refused.is_empty() {
        true => Ok(settings),
        false => Err(refused),
    }
}

/// The value of a field, where the document gives it one.
pub(super) fn given<'a>(document: &'a Map<String, Value>, field: &Field) -> Option<&'a Value> {
    let mut names = field.path.split('.');
    let first = document.get(names.next()?);
    let value = names.try_fold(first?, |value, name| value.get(name))?;
    let counts = !value.is_null() && (field.has_zero || !is_zero(field.form, value));
    counts.then_some(value)
}

fn is_zero(form: Form, value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) if form == Form::Duration => parse_duration(text) == Ok(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn refusal(field: &Field, text: &str, own: &str, needs: &str) -> String {
    let has = match own {
        "" => String::new(),
        own => format!(" (this agent has {own})"),
    };
    let text: String = text.chars().take(64).collect();
    format!(
        "invalid configuration: {}: {} is not supported{has}: it would need {needs}",
        field.path,
        go_quote(&text)
    )
}

/// A value as flags have it.
pub(super) fn text(form: Form, value: &Value) -> String {
    match (form, value) {
        (Form::Duration | Form::DurationOrNumber, Value::String(text)) => {
            parse_duration(text).map_or_else(|_| text.clone(), write_duration)
        }
        (Form::DurationOrNumber, Value::Number(number)) => write_duration(number.as_i64().unwrap_or(0)),
        (_, Value::String(text)) => text.clone(),
        (_, Value::Array(items)) => {
            let items: Vec<String> = items.iter().map(|item| text(Form::Text, item)).collect();
            items.join(",")
        }
        (_, Value::Object(map)) => pairs(map, '='),
        (_, other) => other.to_string(),
    }
}

fn pairs(map: &Map<String, Value>, separator: char) -> String {
    let pairs = map.iter();
    let pairs: Vec<String> = pairs
        .map(|(name, value)| format!("{name}{separator}{}", text(Form::Text, value)))
        .collect();
    pairs.join(",")
}

/// The values of a flag. One flag has no way to hold an empty list.
fn values(field: &Field, value: &Value) -> Vec<String> {
    match (field.path, value) {
        ("enforceNodeAllocatable", Value::Array(levels)) if levels.is_empty() => vec!["none".to_owned()],
        ("evictionHard" | "evictionSoft", Value::Object(map)) => vec![pairs(map, '<')],
        ("registerWithTaints", Value::Array(taints)) => taints.iter().map(taint).collect(),
        ("reservedMemory", Value::Array(nodes)) => nodes.iter().map(reservation).collect(),
        ("shutdownGracePeriodByPodPriority", Value::Array(periods)) => {
            periods.iter().map(shutdown_period).collect()
        }
        // As JSON: values of headers may have commas.
        ("staticPodURLHeader", headers) => vec![headers.to_string()],
        (_, Value::Array(items)) => items.iter().map(|item| text(Form::Text, item)).collect(),
        (_, value) => vec![text(field.form, value)],
    }
}

/// A priority and its seconds; what is left out is zero.
fn shutdown_period(period: &Value) -> String {
    let part = |name: &str| period.get(name).and_then(Value::as_i64).unwrap_or(0);
    format!("{}={}", part("priority"), part("shutdownGracePeriodSeconds"))
}

fn taint(taint: &Value) -> String {
    let part = |name: &str| taint.get(name).and_then(Value::as_str).unwrap_or_default();
    format!("{}={}:{}", part("key"), part("value"), part("effect"))
}

/// Memory that is reserved on a NUMA node.
fn reservation(node: &Value) -> String {
    let number = node.get("numaNode").and_then(Value::as_i64).unwrap_or(0);
    let limits = node.get("limits").and_then(Value::as_object);
    let limits = limits.map(|limits| pairs(limits, '='));
    format!("{number}:{}", limits.unwrap_or_default())
}
