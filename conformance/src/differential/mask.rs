//! Placeholders for values that two servers cannot have in common.
//!
//! Equal values get equal placeholders, numbered as they first occur in a case: that a no-op keeps the revision, that a
//! replaced object has another uid, still shows.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// The placeholders of one side of a case.
#[derive(Debug)]
pub struct Mask {
    numbers: HashMap<(&'static str, String), usize>,
    counts: HashMap<&'static str, usize>,
    now: jiff::Timestamp,
}

impl Mask {
    #[must_use]
    pub fn new(now: jiff::Timestamp) -> Self {
        Self {
            numbers: HashMap::new(),
            counts: HashMap::new(),
            now,
        }
    }

    /// Masks a whole document.
    pub fn document(&mut self, value: &mut Value) {
        let is_list = value.get("items").is_some() || value.get("rows").is_some();
        if is_list && let Some(metadata) = value.get_mut("metadata") {
            // The revision of a list moves with writes of others.
            if metadata.get("resourceVersion").is_some_and(is_number_text) {
                metadata["resourceVersion"] = "<list revision>".into();
            }
            if metadata.get("continue").is_some_and(|text| text != "") {
                metadata["continue"] = "<continue>".into();
            }
        }
        self.value(value);
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::Object(members) => self.object(members),
            Value::Array(items) => {
                items.retain(|item| !is_group_of_a_case(item));
                items.iter_mut().for_each(|item| self.value(item));
            }
            Value::String(text) => *text = self.text(text),
            _ => {}
        }
    }

    fn object(&mut self, members: &mut Map<String, Value>) {
        if let Some(Value::Array(entries)) = members.get_mut("managedFields") {
            // Those of one second have an order that the clock decides.
            entries.sort_by_cached_key(owner);
        }
        if let Some(Value::Array(cells)) = members.get_mut("cells") {
            cells
                .iter_mut()
                .filter(|cell| is_age(cell))
                .for_each(|cell| *cell = "<age>".into());
        }
        for (name, member) in members.iter_mut() {
            let masked = match (name.as_str(), &*member) {
                ("uid", Value::String(uid)) if !uid.is_empty() => Some(self.number("uid", uid)),
                ("resourceVersion", text) if is_number_text(text) => {
                    let text = text.as_str().unwrap_or_default().to_owned();
                    Some(self.number("revision", &text))
                }
                ("nodePort" | "healthCheckNodePort", Value::Number(port))
                    if port.as_i64().is_some_and(|port| port >= 30_000) =>
                {
                    Some(self.number("port", &port.to_string()))
                }
                ("token", Value::String(token)) if token.starts_with("ey") => Some("<token>".to_owned()),
                _ => None,
            };
            match masked {
                Some(placeholder) => *member = placeholder.into(),
                None => self.value(member),
            }
        }
    }

    /// A text with the uids, times and service addresses in it replaced.
    pub fn text(&mut self, text: &str) -> String {
        if self.is_recent(text) {
            let form = text.find('.').map_or("time", |_| "precise time");
            return format!("<{form}>");
        }
        let text = &without_object(text);
        let mut masked = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while !rest.is_empty() {
            if let Some(uid) = rest.get(..36).filter(|piece| is_uuid(piece)) {
                masked.push_str(&self.number("uid", uid));
                rest = &rest[36..];
            } else if let Some((prefix, after)) = generated_suffix(rest) {
                masked.push_str(prefix);
                masked.push_str("<generated>");
                rest = after;
            } else if let Some((words, after)) = revision_in_message(rest) {
                masked.push_str(words);
                masked.push_str("<revision>");
                rest = after;
            } else if let Some((port, after)) = node_port(rest) {
                masked.push_str(&format!(":{}/", self.number("port", port)));
                rest = after;
            } else if let Some((address, after)) = service_address(rest) {
                masked.push_str(&self.number("address", address));
                rest = after;
            } else {
                let step = rest.chars().next().map_or(1, char::len_utf8);
                masked.push_str(&rest[..step]);
                rest = &rest[step..];
            }
        }
        masked
    }

    fn is_recent(&self, text: &str) -> bool {
        // The cheap test first: most texts are no times.
        if text.len() < 20 || !text.is_ascii() || text.as_bytes()[10] != b'T' {
            return false;
        }
        text.parse::<jiff::Timestamp>()
            .is_ok_and(|time| (time.as_second() - self.now.as_second()).abs() < 48 * 3600)
    }

    fn number(&mut self, what: &'static str, value: &str) -> String {
        let count = self.counts.entry(what).or_default();
        let number = self.numbers.entry((what, value.to_owned())).or_insert_with(|| {
            *count += 1;
            *count
        });
        format!("<{what} {number}>")
    }
}

/// An entry of managed fields without its time.
fn owner(entry: &Value) -> String {
    let mut entry = entry.clone();
    if let Some(members) = entry.as_object_mut() {
        members.remove("time");
    }
    entry.to_string()
}

/// A group in discovery that some case's definition makes: which of them are there is a matter of time.
fn is_group_of_a_case(item: &Value) -> bool {
    let name = item.get("name").or_else(|| item.get("metadata")?.get("name"));
    let of_case = |name: &str| {
        name.strip_prefix("case-")?
            .strip_suffix(".example.com")
            .map(str::len)
    };
    name.and_then(Value::as_str).and_then(of_case).is_some() && item.get("versions").is_some()
}

fn is_number_text(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Cases end a `generateName` with `-x-`, and pods get a token volume; upstream appends five of its own alphabet. The
/// prefix and what follows, if `text` begins so.
fn generated_suffix(text: &str) -> Option<(&'static str, &str)> {
    const ALPHABET: &str = "bcdfghjklmnpqrstvwxz2456789";
    const PREFIXES: &[&str] = &["-x-", "kube-api-access-"];
    let (prefix, rest) = PREFIXES
        .iter()
        .find_map(|prefix| Some((*prefix, text.strip_prefix(prefix)?)))?;
    let (suffix, after) = rest.split_at_checked(5)?;
    let ends = !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
    (ends && suffix.chars().all(|c| ALPHABET.contains(c))).then_some((prefix, after))
}

/// Some messages quote the whole stored object, with its managed fields.
fn without_object(text: &str) -> String {
    let (start, end) = (text.find("\"{\\\""), text.rfind("}\": "));
    match (start, end) {
        (Some(start), Some(end)) if start < end => {
            format!("{}<object>{}", &text[..start], &text[end + 2..])
        }
        _ => text.to_owned(),
    }
}

/// The words before the revision of a failed precondition, and what follows it, if `text` begins so.
fn revision_in_message(text: &str) -> Option<(&'static str, &str)> {
    const WORDS: &[(&str, &str)] = &[("in record (", ")"), ("in object meta: ", "")];
    let (words, end, rest) = WORDS
        .iter()
        .find_map(|(words, end)| Some((*words, *end, text.strip_prefix(words)?)))?;
    let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let ends = match end {
        "" => after.is_empty(),
        end => after.starts_with(end),
    };
    (ends && after.len() < rest.len()).then_some((words, after))
}

/// A node port as a Table shows it (`:31234/`), and what follows it, if `text` begins so.
fn node_port(text: &str) -> Option<(&str, &str)> {
    let (port, after) = text.strip_prefix(":3")?.split_once('/')?;
    let port = (port.len() == 4 && port.bytes().all(|byte| byte.is_ascii_digit())).then(|| &text[1..6])?;
    Some((port, after))
}

/// An address of the service range, and what follows it, if `text` begins so.
fn service_address(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix("10.96.")?;
    let after = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let address = &text[..text.len() - after.len()];
    let is_whole = address.split('.').count() == 4 && !after.starts_with('/');
    (is_whole && !address.ends_with('.')).then_some((address, after))
}

fn is_uuid(text: &str) -> bool {
    text.is_char_boundary(36)
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// A cell such as `3s` or `8m17s`: an age.
fn is_age(cell: &Value) -> bool {
    let Some(text) = cell.as_str() else { return false };
    // `12s`, `8m17s`, `3h`: numbers, each with its unit.
    let mut parts = text.split_inclusive(|letter: char| !letter.is_ascii_digit());
    !text.is_empty()
        && parts.all(|part| {
            part.len() > 1 && matches!(part.as_bytes().last(), Some(b'y' | b'd' | b'h' | b'm' | b's'))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(mut input: Value, expected: &Value) {
        let now = "2026-11-21T12:00:00Z".parse().unwrap();
        Mask::new(now).document(&mut input);
        assert_eq!(&input, expected);
    }

    #[test]
    fn equal_values_get_equal_placeholders() {
        check(
            json!([{"uid": "a"}, {"uid": "b"}, {"uid": "a"}]),
            &json!([{"uid": "<uid 1>"}, {"uid": "<uid 2>"}, {"uid": "<uid 1>"}]),
        );
    }

    #[test]
    fn mask_covers_times_of_the_run_only() {
        check(
            json!({"a": "2026-11-21T11:59:58Z", "b": "2020-01-01T00:00:00Z", "c": "2026-11-21T11:59:58.000001Z"}),
            &json!({"a": "<time>", "b": "2020-01-01T00:00:00Z", "c": "<precise time>"}),
        );
    }
}
