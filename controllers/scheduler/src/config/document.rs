//! Fields of a document with their paths. A field that is not read is a problem, as upstream's strict decoding has it.

use super::API_VERSION;
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, FieldPath};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::time::Duration;

/// Items of any list at most.
const MAX_ITEMS: usize = 256;
/// Bytes of a text at most.
const MAX_TEXT: usize = 4096;
/// The same of certificates and keys.
const MAX_LONG_TEXT: usize = 256 << 10;

/// The value of a field that is not there.
pub(super) static NOTHING: Value = Value::Null;

/// Problems of a document, and what of it has no effect.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) problems: Vec<FieldError>,
    pub(super) without_effect: Vec<String>,
}

/// An object of the document. A null member counts as absent.
#[derive(Debug)]
pub(super) struct Object<'v> {
    path: FieldPath,
    fields: Option<&'v Map<String, Value>>,
    asked: BTreeSet<&'static str>,
}

impl Document {
    pub(super) fn object<'v>(&mut self, path: &FieldPath, value: &'v Value) -> Object<'v> {
        let fields = value.as_object();
        if fields.is_none() && !value.is_null() {
            self.mistyped(path, value, "an object");
        }
        Object {
            path: path.clone(),
            fields,
            asked: BTreeSet::new(),
        }
    }

    pub(super) fn text(&mut self, path: &FieldPath, value: &Value) -> Box<str> {
        self.text_within(path, value, MAX_TEXT)
    }

    fn text_within(&mut self, path: &FieldPath, value: &Value, most: usize) -> Box<str> {
        match value {
            Value::String(text) if text.len() <= most => text.as_str().into(),
            Value::String(_) => {
                self.problems.push(FieldError::too_long(path, most));
                Box::default()
            }
            Value::Null => Box::default(),
            other => {
                self.mistyped(path, other, "a string");
                Box::default()
            }
        }
    }

    pub(super) fn invalid(&mut self, path: &FieldPath, value: i64, detail: &str) {
        self.problems.push(FieldError::invalid(path, value, detail));
    }

    pub(super) fn invalid_text(&mut self, path: &FieldPath, value: &str, detail: &str) {
        self.problems.push(FieldError::invalid(path, value, detail));
    }

    /// The same of a value that stands without quotes.
    pub(super) fn invalid_shown(&mut self, path: &FieldPath, value: &str, detail: &str) {
        let shown = Shown(value.to_owned());
        self.problems.push(FieldError::invalid(path, shown, detail));
    }

    pub(super) fn invalid_duration(&mut self, path: &FieldPath, value: Duration, detail: &str) {
        let seconds = format!("{}s", value.as_secs_f64());
        self.invalid_shown(path, &seconds, detail);
    }

    pub(super) fn required(&mut self, path: &FieldPath, detail: &str) {
        self.problems.push(FieldError::required(path, detail));
    }

    pub(super) fn forbidden(&mut self, path: &FieldPath, detail: &str) {
        self.problems.push(FieldError::forbidden(path, detail));
    }

    fn mistyped(&mut self, path: &FieldPath, value: &Value, wanted: &str) {
        let mut shown = value.to_string();
        if shown.len() > MAX_TEXT {
            shown = "…".to_owned();
        }
        let detail = format!("must be {wanted}");
        self.problems
            .push(FieldError::invalid(path, Shown(shown), detail));
    }
}

impl<'v> Object<'v> {
    /// A field's value, where it is there.
    pub(super) fn take(&mut self, name: &'static str) -> Option<&'v Value> {
        self.asked.insert(name);
        self.fields?.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn path(&self, name: &str) -> FieldPath {
        self.path.child(name)
    }

    /// A whole number of 32 or 64 bits.
    pub(super) fn integer(&mut self, document: &mut Document, name: &'static str, default: i64) -> i64 {
        let Some(value) = self.take(name) else {
            return default;
        };
        value.as_i64().unwrap_or_else(|| {
            document.mistyped(&self.path(name), value, "a whole number");
            default
        })
    }

    /// A `metav1.Duration`, `None` where it is not there. Upstream's may be negative: such a one is refused.
    pub(super) fn duration(
        &mut self,
        document: &mut Document,
        name: &'static str,
        negative: &str,
    ) -> Option<Duration> {
        let path = self.path(name);
        let value = self.take(name)?;
        let text = document.text(&path, value);
        if text.is_empty() {
            return None;
        }
        let found = go_duration(text.strip_prefix('-').unwrap_or(&text));
        if found.is_none() {
            document.invalid_text(&path, &text, "must be a duration");
        } else if text.starts_with('-') && found != Some(Duration::ZERO) {
            document.invalid_shown(&path, &text, negative);
        }
        found
    }

    pub(super) fn boolean(&mut self, document: &mut Document, name: &'static str) -> bool {
        let Some(value) = self.take(name) else {
            return false;
        };
        value.as_bool().unwrap_or_else(|| {
            document.mistyped(&self.path(name), value, "true or false");
            false
        })
    }

    /// Empty where it is not there.
    pub(super) fn string(&mut self, document: &mut Document, name: &'static str) -> Box<str> {
        let path = self.path(name);
        self.take(name)
            .map_or_else(Box::default, |value| document.text(&path, value))
    }

    /// The same of a text that may be as long as a certificate with its chain.
    pub(super) fn long_string(&mut self, document: &mut Document, name: &'static str) -> Box<str> {
        let path = self.path(name);
        self.take(name).map_or_else(Box::default, |value| {
            document.text_within(&path, value, MAX_LONG_TEXT)
        })
    }

    pub(super) fn list(&mut self, document: &mut Document, name: &'static str) -> &'v [Value] {
        let path = self.path(name);
        match self.take(name) {
            None => &[],
            Some(Value::Array(items)) if items.len() <= MAX_ITEMS => items,
            Some(Value::Array(items)) => {
                let problem = FieldError::too_many(&path, items.len(), MAX_ITEMS);
                document.problems.push(problem);
                &[]
            }
            Some(other) => {
                document.mistyped(&path, other, "a list");
                &[]
            }
        }
    }

    pub(super) fn strings(&mut self, document: &mut Document, name: &'static str) -> Vec<Box<str>> {
        let path = self.path(name);
        let items = self.list(document, name);
        let text = |(at, item)| document.text(&path.index(at), item);
        items.iter().enumerate().map(text).collect()
    }

    /// An object of this one, empty where it is not there.
    pub(super) fn object(&mut self, document: &mut Document, name: &'static str) -> Object<'v> {
        let path = self.path(name);
        let value = self.take(name).unwrap_or(&NOTHING);
        document.object(&path, value)
    }

    /// Checks version and kind.
    pub(super) fn is_a(&mut self, document: &mut Document, kind: &str) {
        let wanted = [("apiVersion", API_VERSION), ("kind", kind)];
        for (name, wanted) in wanted {
            let found = self.string(document, name);
            if *found != *wanted {
                let path = self.path(name);
                let problem = FieldError::not_supported(&path, &*found, &[wanted]);
                document.problems.push(problem);
            }
        }
    }

    /// Notes a field that is there as one without effect.
    pub(super) fn has_no_effect(&self, document: &mut Document, name: &str) {
        let value = self.fields.and_then(|fields| fields.get(name));
        if value.is_some_and(|value| !value.is_null()) {
            document.without_effect.push(self.path(name).as_str().to_owned());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_none_or(Map::is_empty)
    }

    /// Refuses fields that the type does not have.
    pub(super) fn end(self, document: &mut Document) {
        let names = self.fields.into_iter().flat_map(Map::keys);
        for name in names.filter(|name| !self.asked.contains(name.as_str())) {
            let path = self.path.child(name);
            document
                .problems
                .push(FieldError::forbidden(&path, "unknown field"));
        }
    }
}

/// A duration as Go writes it: `1m30s`, `1.5s`, `100ms`.
pub(super) fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut all = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|one: char| !one.is_ascii_digit() && one != '.')?;
        let (number, unit) = rest.split_at(digits);
        let end = unit
            .find(|one: char| one.is_ascii_digit() || one == '.')
            .unwrap_or(unit.len());
        let seconds = match &unit[..end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" | "μs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        let number: f64 = number.parse().ok()?;
        all = all.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = &unit[end..];
    }
    Some(all)
}
