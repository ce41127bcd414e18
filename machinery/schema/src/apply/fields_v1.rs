//! `FieldsV1`: a set of paths as JSON. `f:` is a member, `k:` an item by keys, `v:` by value, `i:` by position;
//! `.` says that the path itself is in the set too.

use super::literal::{KeyValue, Literal};
use super::rules::Identity;
use super::set::{Element, FieldSet};
use crate::json::{Strictness, decode_json, needs_no_escape, write_escaped, write_string};
use crate::tree::{Kind, Ref, Tree, untyped_schema};
use crate::{MAX_DEPTH, TypeId};
use std::collections::BTreeMap;

/// `FieldsV1` that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("{0}")]
    Syntax(String),
    #[error("{0:?} is no path element")]
    Element(String),
    #[error("the value of {0:?} is no object")]
    Value(String),
    #[error("paths are deeper than an object can be")]
    Depth,
}

impl FieldSet {
    /// The set as `FieldsV1`, elements in the order of paths.
    pub fn to_json(&self) -> String {
        let mut out = Vec::new();
        self.write(&mut out, false);
        String::from_utf8(out).unwrap_or_default()
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, own: bool) {
        out.push(b'{');
        if own {
            out.extend_from_slice(b"\".\":{},");
        }
        for (element, member) in &self.0 {
            write_string(out, &name(element));
            out.push(b':');
            // Without paths below, being there says that the path is in the set.
            member.below.write(out, member.own && !member.below.is_empty());
            out.push(b',');
        }
        close(out);
    }

    /// The set as `FieldsV1`, elements in the order of their text: the form of what upstream keeps as free-form JSON.
    pub fn to_json_by_text(&self) -> String {
        let mut out = Vec::new();
        self.write_by_text(&mut out, false);
        String::from_utf8(out).unwrap_or_default()
    }

    fn write_by_text(&self, out: &mut Vec<u8>, own: bool) {
        out.push(b'{');
        if own {
            out.extend_from_slice(b"\".\":{},");
        }
        let named = self.0.iter().map(|(element, member)| (name(element), member));
        for (name, member) in named.collect::<BTreeMap<_, _>>() {
            write_string(out, &name);
            out.push(b':');
            member
                .below
                .write_by_text(out, member.own && !member.below.is_empty());
            out.push(b',');
        }
        close(out);
    }

    /// Reads `FieldsV1`; elements of an unknown kind are left out.
    ///
    /// # Errors
    /// The text is no JSON object, or something in it is no path element.
    pub fn from_json(text: &str) -> Result<Self, Unreadable> {
        let schema = untyped_schema();
        let decoded = decode_json(&schema, TypeId::ANY, text.as_bytes(), Strictness::Ignore)
            .map_err(|error| Unreadable::Syntax(error.to_string()))?;
        match decoded.tree.root().kind() {
            Kind::Map | Kind::Null => Ok(read(decoded.tree.root(), 0)?.1),
            _ => Err(Unreadable::Value(String::new())),
        }
    }
}

/// The comma after the last member becomes the closing brace.
fn close(out: &mut Vec<u8>) {
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(b'}');
}

pub(super) fn name(element: &Element) -> String {
    match element {
        Element::Field(name) => format!("f:{name}"),
        Element::Key(keys) => name_of_keys(keys.iter().map(|(name, value)| (name.as_str(), value))),
        Element::Value(value) => format!("v:{value}"),
        Element::Index(index) => format!("i:{index}"),
    }
}

/// Appends the name of an item of a list as a string literal.
pub(super) fn write_name_of_item(out: &mut Vec<u8>, item: &Identity<'_, '_>) {
    match item {
        Identity::Key(keys) => {
            out.extend_from_slice(b"\"k:{");
            for (at, (name, value)) in keys.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_twice(out, name);
                out.push(b':');
                write_value(out, value);
            }
            out.extend_from_slice(b"}\"");
        }
        Identity::Value(value) => {
            out.extend_from_slice(b"\"v:");
            write_value(out, value);
            out.push(b'"');
        }
    }
}

/// Appends a string literal as it stands in another one.
fn write_twice(out: &mut Vec<u8>, text: &str) {
    if needs_no_escape(text) {
        write_plain(out, text);
    } else {
        let mut once = Vec::new();
        write_string(&mut once, text);
        write_escaped(out, &String::from_utf8_lossy(&once));
    }
}

/// The same as [`write_twice`], of what needs no escapes.
fn write_plain(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b"\\\"");
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\\\"");
}

/// Appends a value as it stands in a string literal.
fn write_value(out: &mut Vec<u8>, value: &KeyValue<'_>) {
    match value {
        KeyValue::Plain(text) => write_plain(out, text),
        KeyValue::Other(literal) => write_escaped(out, literal.as_json()),
    }
}

fn name_of_keys<'a>(keys: impl Iterator<Item = (&'a str, &'a Literal)>) -> String {
    let mut out = Vec::with_capacity(64);
    out.extend_from_slice(b"k:{");
    for (at, (name, value)) in keys.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(&mut out, name);
        out.push(b':');
        out.extend_from_slice(value.as_json().as_bytes());
    }
    out.push(b'}');
    String::from_utf8(out).unwrap_or_default()
}

/// Returns true if the path itself is in the set, and the set below it.
fn read(value: Ref<'_>, depth: usize) -> Result<(bool, FieldSet), Unreadable> {
    let mut out = FieldSet::default();
    if depth > MAX_DEPTH {
        return Err(Unreadable::Depth);
    }
    let mut own = false;
    for (name, member) in value.entries() {
        if name == "." {
            own = true;
            continue;
        }
        let Some(element) = element(name)? else {
            continue;
        };
        if !matches!(member.kind(), Kind::Map | Kind::Null) {
            return Err(Unreadable::Value(name.to_owned()));
        }
        let (inner, below) = read(member, depth + 1)?;
        out.put(element, inner, below);
    }
    // Upstream's rule: what has nothing below is there itself.
    Ok((own || out.is_empty(), out))
}

pub(super) fn element(name: &str) -> Result<Option<Element>, Unreadable> {
    let unreadable = || Unreadable::Element(name.to_owned());
    let (kind, text) = name.split_once(':').ok_or_else(unreadable)?;
    let json = || Tree::from_json(text).map_err(|_| unreadable());
    Ok(Some(match kind {
        "f" => Element::Field(text.to_owned()),
        "k" => {
            let keys = json()?;
            if keys.root().kind() != Kind::Map {
                return Err(unreadable());
            }
            let keys = keys.root().entries();
            let mut keys: Vec<(String, Literal)> = keys
                .map(|(name, value)| (name.to_owned(), Literal::new(value.to_json())))
                .collect();
            keys.sort();
            Element::Key(keys)
        }
        "v" => Element::Value(Literal::new(json()?.root().to_json())),
        "i" => Element::Index(text.parse().map_err(|_| unreadable())?),
        _ if kind.len() == 1 => return Ok(None),
        _ => return Err(unreadable()),
    }))
}
