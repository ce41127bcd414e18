//! Strict decoding, in the words of upstream's decoder: a value of another type ends it, and unknown fields are named all at once.
//!
//! Upstream's kubelet goes on with a file that has unknown fields, with a line of the log; this one refuses it, so that no setting
//! is lost to a misspelt name.

use super::fields::{self, Form};
use machinery_meta::go_text::go_quote;
use machinery_schema::leaf::parse_duration;
use serde_json::{Map, Value};

/// Unknown fields that a message names.
const NAMED_MAX: usize = 8;
/// Characters of a name in a message.
const NAME_CHARS_MAX: usize = 64;

/// Fields that name what the document is.
const TYPE_META: [&str; 2] = ["apiVersion", "kind"];

/// Go's types that hold fields which are no objects, by the path that leads to them.
const STRUCTS: [(&str, &str); 12] = [
    ("authentication", "KubeletAuthentication"),
    ("authentication.x509", "KubeletX509Authentication"),
    ("authentication.webhook", "KubeletWebhookAuthentication"),
    ("authentication.anonymous", "KubeletAnonymousAuthentication"),
    ("authorization", "KubeletAuthorization"),
    ("authorization.webhook", "KubeletWebhookAuthorization"),
    ("memorySwap", "MemorySwapConfiguration"),
    ("logging", "LoggingConfiguration"),
    ("crashLoopBackOff", "CrashLoopBackOffConfig"),
    ("tracing", "TracingConfiguration"),
    ("userNamespaces", "UserNamespaces"),
    ("", "KubeletConfiguration"),
];

/// Checks names and types of a document's fields.
pub(super) fn check(document: &Map<String, Value>) -> Result<(), String> {
    let mut unknown = Vec::new();
    object("", document, &mut unknown).map_err(|problem| format!("failed to decode: {problem}"))?;
    if unknown.is_empty() {
        return Ok(());
    }
    let more = unknown.len().saturating_sub(NAMED_MAX);
    let mut named: Vec<String> = unknown
        .iter()
        .take(NAMED_MAX)
        .map(|path| format!("unknown field {}", go_quote(path)))
        .collect();
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    Err(format!("strict decoding error: {}", named.join(", ")))
}

fn object(path: &str, object: &Map<String, Value>, unknown: &mut Vec<String>) -> Result<(), String> {
    for (name, value) in object {
        if path.is_empty() && TYPE_META.contains(&name.as_str()) {
            continue;
        }
        let own = join(path, name);
        if let Some(field) = fields::field(&own) {
            form(&own, field.form, value, unknown)?;
        } else if fields::is_group(&own) {
            group(&own, value, unknown)?;
        } else {
            unknown.push(own);
        }
    }
    Ok(())
}

fn join(path: &str, name: &str) -> String {
    let name: String = name.chars().take(NAME_CHARS_MAX).collect();
    match path {
        "" => name,
        path => format!("{path}.{name}"),
    }
}

fn group(path: &str, value: &Value, unknown: &mut Vec<String>) -> Result<(), String> {
    match value {
        Value::Null => Ok(()),
        Value::Object(fields) => object(path, fields, unknown),
        other => {
            let of = STRUCTS.iter().find(|(group, _)| *group == path);
            let wanted = of.map_or("struct".to_owned(), |(_, name)| format!("v1beta1.{name}"));
            Err(mistyped(path, other, &wanted))
        }
    }
}

/// Checks one value; an absent one has every form.
fn form(path: &str, form: Form, value: &Value, unknown: &mut Vec<String>) -> Result<(), String> {
    match (form, value) {
        (_, Value::Null)
        | (Form::Bool, Value::Bool(_))
        | (Form::Text | Form::Quantity, Value::String(_))
        | (Form::Float | Form::Quantity, Value::Number(_)) => Ok(()),
        (Form::Duration | Form::DurationOrNumber, Value::String(text)) => parse_duration(text).map(|_| ()),
        (Form::DurationOrNumber, Value::Number(number)) if number.is_i64() => Ok(()),
        (Form::Int32, Value::Number(number)) if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => {
            Ok(())
        }
        (Form::Int64, Value::Number(number)) if number.is_i64() => Ok(()),
        // Its reader knows no field.
        (Form::Duration | Form::DurationOrNumber, other) => Err(format!(
            "json: cannot unmarshal {} into Go value of type string",
            kind(other)
        )),
        (Form::Texts | Form::Ints | Form::Objects(_), Value::Array(items)) => items
            .iter()
            .enumerate()
            .try_for_each(|(at, item)| element(path, at, form, item, unknown)),
        (Form::TextMap | Form::BoolMap | Form::TextsMap, Value::Object(map)) => map
            .values()
            .try_for_each(|item| element(path, 0, form, item, unknown)),
        (form, other) => Err(mistyped(path, other, &go_type(form))),
    }
}

fn element(path: &str, at: usize, of: Form, item: &Value, unknown: &mut Vec<String>) -> Result<(), String> {
    match of {
        Form::Texts | Form::TextMap => form(path, Form::Text, item, unknown),
        Form::Ints => form(path, Form::Int32, item, unknown),
        Form::BoolMap => form(path, Form::Bool, item, unknown),
        Form::TextsMap => form(path, Form::Texts, item, unknown),
        Form::Objects(own) => {
            let Value::Object(object) = item else {
                return Err(mistyped(path, item, "struct"));
            };
            object
                .iter()
                .try_for_each(|(name, value)| match own.iter().find(|(own, _)| own == name) {
                    Some((_, wanted)) => form(&join(path, name), *wanted, value, unknown),
                    None => {
                        unknown.push(join(&format!("{path}[{at}]"), name));
                        Ok(())
                    }
                })
        }
        _ => Ok(()),
    }
}

fn mistyped(path: &str, value: &Value, wanted: &str) -> String {
    let group = path.rsplit_once('.').map_or("", |(group, _)| group);
    let holder = STRUCTS.iter().find(|(own, _)| *own == group);
    let holder = holder.map_or("KubeletConfiguration", |(_, name)| name);
    format!(
        "json: cannot unmarshal {} into Go struct field {holder}.{path} of type {wanted}",
        kind(value)
    )
}

/// Go's word for a value of JSON.
fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) => format!("number {number}"),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

fn go_type(form: Form) -> String {
    let name = match form {
        Form::Bool => "bool",
        Form::Int32 => "int32",
        Form::Int64 => "int64",
        Form::Float => "float64",
        Form::Text | Form::Duration | Form::DurationOrNumber | Form::Quantity => "string",
        Form::Texts => "[]string",
        Form::Ints => "[]int32",
        Form::TextMap => "map[string]string",
        Form::BoolMap => "map[string]bool",
        Form::TextsMap => "map[string][]string",
        Form::Objects(_) => "[]struct",
    };
    name.to_owned()
}
