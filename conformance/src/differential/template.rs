//! Filling placeholders: `{name}` in any text, `"{name}"` alone for a whole value.

use std::collections::HashMap;

use serde_json::Value;

/// Values of placeholders, on one side of a case.
#[derive(Debug, Default, Clone)]
pub(crate) struct Variables(HashMap<String, Value>);

impl Variables {
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    /// Every known `{name}` replaced; what is not known stays as it is.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut filled = text.to_owned();
        for (name, value) in &self.0 {
            let placeholder = format!("{{{name}}}");
            if filled.contains(&placeholder) {
                let value = match value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                filled = filled.replace(&placeholder, &value);
            }
        }
        filled
    }

    pub(crate) fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let name = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
                match name.and_then(|name| self.0.get(name)) {
                    Some(whole) => self.value_once(whole),
                    None => self.text(text).into(),
                }
            }
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(members) => members
                .iter()
                .map(|(name, member)| (self.text(name), self.value(member)))
                .collect(),
            other => other.clone(),
        }
    }

    /// Texts inside a value that was put in are filled too (an object names its namespace), but nothing deeper.
    fn value_once(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Array(items) => items.iter().map(|item| self.value_once(item)).collect(),
            Value::Object(members) => members
                .iter()
                .map(|(name, member)| (self.text(name), self.value_once(member)))
                .collect(),
            other => other.clone(),
        }
    }
}

/// RFC 7386.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    if let Value::Object(target) = target {
        for (name, change) in patch {
            if change.is_null() {
                target.remove(name);
            } else {
                merge(target.entry(name).or_insert(Value::Null), change);
            }
        }
    }
}

/// The value at `a.b.0.c`; the whole for an empty path.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .filter(|step| !step.is_empty())
        .try_fold(value, |value, step| match step.parse::<usize>() {
            Ok(index) if value.is_array() => value.get(index),
            _ => value.get(step),
        })
}
