//! YAML with Go's meaning of scalars (`yes` is true, `0644` is octal), by way of JSON as upstream does it.

mod budget;

use crate::json::{DecodeError, Decoded, MAX_INPUT, Strictness, decode_json, write_float, write_string};
use crate::tree::untyped_schema;
use crate::{Schema, Tree, TypeId};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::sync::Arc;

/// Size to which a document may grow by its aliases, and by its form to eight times its bytes.
const MAX_EXPANDED: usize = 2 << 20;
/// Documents below this are read as YAML in the time that 64 KiB of JSON take.
const SHORT_BYTES: usize = 8 << 10;

/// Decodes a YAML document into the normal form of a type.
pub fn decode_yaml(
    schema: &Arc<Schema>,
    ty: TypeId,
    input: &[u8],
    strictness: Strictness,
) -> Result<Decoded, DecodeError> {
    decode_json(schema, ty, yaml_to_json(input)?.as_bytes(), strictness)
}

/// The value without members that are null: Go's decoder leaves the field as it is, so that null is the same as absent.
#[must_use]
pub fn without_nulls(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Object(members) => {
            let members = members.into_iter().filter(|(_, member)| !member.is_null());
            let members = members.map(|(name, member)| (name, without_nulls(member)));
            Value::Object(members.collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// A document without a schema.
#[derive(Debug)]
pub struct Document {
    pub tree: Tree,
    /// The first key that a map has twice, with its line.
    pub duplicate: Option<(u64, String)>,
}

/// Reads JSON or YAML. Clients send JSON nearly always; it is YAML too, but costs a tenth to read as what it is.
///
/// # Errors
/// In the words of the reader of YAML, but for JSON that is too deep or too large.
pub fn decode_document(input: &[u8]) -> Result<Document, DecodeError> {
    match if looks_like_json(input) {
        free(input)
    } else {
        Err(DecodeError::Syntax(String::new()))
    } {
        Err(DecodeError::Syntax(_)) => {
            let decoded = free(yaml_to_json(input)?.as_bytes())?;
            document(decoded, input)
        }
        Ok(decoded) => document(decoded, input),
        Err(error) => Err(error),
    }
}

/// Reports whether reading a document as YAML takes no more time than short JSON does: it is short, and nothing in it is
/// repeated. An alias needs an anchor (`&`) and its name (`*`); a merge (`<<`) reads maps again without either.
pub fn is_short(input: &[u8]) -> bool {
    let has = |byte: u8| input.contains(&byte);
    let merges = || input.windows(2).any(|pair| pair == b"<<");
    input.len() < SHORT_BYTES && !(has(b'&') && has(b'*')) && !merges()
}

/// Reads a document as [`decode_document`] does, where that takes time in proportion to its bytes: JSON, and
/// [short](is_short) YAML. `None` for any other.
pub fn decode_short_document(input: &[u8]) -> Option<Result<Document, DecodeError>> {
    if is_short(input) {
        return Some(decode_document(input));
    }
    if !looks_like_json(input) {
        return None;
    }
    match free(input) {
        // What it says twice is looked for by the reader of YAML.
        Ok(decoded) if decoded.strict_errors.is_empty() => Some(document(decoded, input)),
        Ok(_) | Err(DecodeError::Syntax(_)) => None,
        Err(error) => Some(Err(error)),
    }
}

fn looks_like_json(input: &[u8]) -> bool {
    input.trim_ascii_start().starts_with(b"{") && std::str::from_utf8(input).is_ok()
}

fn free(json: &[u8]) -> Result<Decoded, DecodeError> {
    decode_json(&untyped_schema(), TypeId::ANY, json, Strictness::Report)
}

fn document(decoded: Decoded, input: &[u8]) -> Result<Document, DecodeError> {
    let duplicate = decoded.strict_errors.first().map(|problem| {
        // Nested too deep for the reader of YAML, it has no line.
        duplicate_key(input).unwrap_or_else(|| (1, problem.clone()))
    });
    // Numbers that are whole are so however they were written.
    let tree = match decoded.tree.has_floats() {
        true => Tree::from_json(&decoded.tree.root().to_json())?,
        false => decoded.tree,
    };
    Ok(Document { tree, duplicate })
}

/// A YAML document as JSON; keys that occur twice stay so, for strict decoding to see.
pub fn yaml_to_json(input: &[u8]) -> Result<String, DecodeError> {
    if input.len() > MAX_INPUT {
        return Err(DecodeError::TooLarge {
            size: input.len(),
            limit: MAX_INPUT,
        });
    }
    let problem = |error: &dyn fmt::Display| DecodeError::Syntax(format!("yaml: {error}"));
    let text = first_document(std::str::from_utf8(input).map_err(|error| problem(&error))?);
    let out =
        convert(text, serde_saphyr::DuplicateKeyPolicy::PassThrough).map_err(
            |error| match budget::is_breach(&error) {
                true => problem(&budget::EXCESSIVE),
                false => misplaced_tab(text, &error).unwrap_or_else(|| problem(&error)),
            },
        )?;
    String::from_utf8(out).map_err(|error| problem(&error))
}

/// Upstream reads the first document of a stream and nothing behind it.
fn first_document(text: &str) -> &str {
    let is_marker = |line: &str, marker: &str| {
        let rest = line.strip_prefix(marker);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
    };
    let (mut begun, mut at) = (false, 0);
    for line in text.split_inclusive('\n') {
        let begins = is_marker(line, "---");
        if begun && (begins || is_marker(line, "...")) {
            return &text[..at];
        }
        let is_prologue = line.trim().is_empty() || line.starts_with(['#', '%']);
        begun |= begins || !is_prologue;
        at += line.len();
    }
    text
}

/// The most frequent mistake, an indentation with a tab in it, in the words of Go's parser.
fn misplaced_tab(text: &str, error: &serde_saphyr::Error) -> Option<DecodeError> {
    let number = usize::try_from(error.location()?.line()).ok()?;
    // Some complaints name the line before the one that is wrong.
    let numbered: Vec<(usize, &str)> = text.lines().enumerate().take(number + 1).collect();
    let tabbed = |line: &str| line[..line.len() - line.trim_start().len()].contains('\t');
    let (index, _) = numbered
        .iter()
        .skip(number.saturating_sub(1))
        .find(|(index, line)| *index > 0 && tabbed(line) && !line.trim().is_empty())?;
    let before = numbered[..*index].iter().rev().map(|(_, line)| line.trim());
    let before = before.take(1).next().unwrap_or_default();
    // A plain scalar would go on in the next line.
    let is_plain = before.ends_with(|last: char| !":-?,[]{}\"'|>".contains(last));
    let problem = match is_plain {
        true => "found a tab character that violates indentation",
        false => "found character that cannot start any token",
    };
    Some(DecodeError::Syntax(format!(
        "yaml: line {}: {problem}",
        index + 1
    )))
}

/// The first key that a map of a document has twice, with its line.
pub fn duplicate_key(input: &[u8]) -> Option<(u64, String)> {
    let text = std::str::from_utf8(input)
        .ok()
        .filter(|_| input.len() <= MAX_INPUT)?;
    match convert(first_document(text), serde_saphyr::DuplicateKeyPolicy::Error) {
        Err(serde_saphyr::Error::DuplicateMappingKey { key, location }) => {
            Some((location.line(), key.unwrap_or_default()))
        }
        _ => None,
    }
}

fn convert(
    text: &str,
    duplicate_keys: serde_saphyr::DuplicateKeyPolicy,
) -> Result<Vec<u8>, serde_saphyr::Error> {
    let limit = MAX_EXPANDED + 8 * text.len();
    let mut out = Vec::with_capacity(text.len() * 2);
    let options = budget::options(text, limit, duplicate_keys);
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |de| {
        let whole = Json {
            out: &mut out,
            limit,
            is_key: false,
        };
        whole.deserialize(de)
    })?;
    Ok(out)
}

/// Writes what it is given as JSON.
struct Json<'a> {
    out: &'a mut Vec<u8>,
    limit: usize,
    is_key: bool,
}

impl Json<'_> {
    fn fits<E: serde::de::Error>(&self) -> Result<(), E> {
        if self.out.len() > self.limit {
            Err(E::custom(budget::EXCESSIVE))
        } else {
            Ok(())
        }
    }

    /// A key is refused where it begins to nest: its parts would be read once more on every level.
    fn nests<E: serde::de::Error>(&self) -> Result<(), E> {
        match self.is_key {
            true => Err(E::custom("a map or list cannot be a key")),
            false => Ok(()),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Json<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        self.fits()?;
        de.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Json<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.out.extend_from_slice(value.to_string().as_bytes());
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.out.extend_from_slice(value.to_string().as_bytes());
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        if !value.is_finite() {
            return Err(E::custom(format!("json: unsupported value: {value}")));
        }
        write_float(self.out, value);
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        write_string(self.out, value);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.out.extend_from_slice(b"null");
        Ok(())
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        self.deserialize(de)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.nests()?;
        let before = self.out.len();
        self.out.push(b'[');
        while items
            .next_element_seed(Json {
                out: self.out,
                limit: self.limit,
                is_key: false,
            })?
            .is_some()
        {
            self.out.push(b',');
        }
        close(self.out, before, b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        self.nests()?;
        let before = self.out.len();
        self.out.push(b'{');
        while members
            .next_key_seed(Key {
                out: self.out,
                limit: self.limit,
            })?
            .is_some()
        {
            self.out.push(b':');
            members.next_value_seed(Json {
                out: self.out,
                limit: self.limit,
                is_key: false,
            })?;
            self.out.push(b',');
        }
        close(self.out, before, b'}');
        Ok(())
    }
}

/// The comma after the last part becomes the closing bracket.
fn close(out: &mut Vec<u8>, before: usize, bracket: u8) {
    if out.len() > before + 1 {
        out.pop();
    }
    out.push(bracket);
}

/// A key of any scalar type, as text.
struct Key<'a> {
    out: &'a mut Vec<u8>,
    limit: usize,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        let mut key = Vec::new();
        de.deserialize_any(Json {
            out: &mut key,
            limit: self.limit,
            is_key: true,
        })?;
        match key.first() {
            Some(b'"') => self.out.extend_from_slice(&key),
            _ => {
                self.out.push(b'"');
                self.out.extend_from_slice(&key);
                self.out.push(b'"');
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
