//! YAML with Go's meaning of scalars (`yes` is true, `0644` is octal), by way of JSON as upstream does it.

use crate::json::{DecodeError, Decoded, MAX_INPUT, Strictness, decode_json, write_float, write_string};
use crate::tree::untyped_schema;
use crate::{Schema, Tree, TypeId};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::sync::Arc;

/// YAML nests less deep than JSON may: its parser needs more stack for each level.
const MAX_YAML_DEPTH: usize = 64;
/// By its aliases a document may grow to this, and by its form to eight times its bytes.
const MAX_EXPANDED: usize = 2 << 20;

/// Decodes a YAML document into the normal form of a type.
pub fn decode_yaml(
    schema: &Arc<Schema>,
    ty: TypeId,
    input: &[u8],
    strictness: Strictness,
) -> Result<Decoded, DecodeError> {
    decode_json(schema, ty, yaml_to_json(input)?.as_bytes(), strictness)
}

/// A document without a schema.
#[derive(Debug)]
pub struct Document {
    pub tree: Tree,
    /// The first key that a map has twice, with its line.
    pub duplicate: Option<(u64, String)>,
}

/// Reads JSON or YAML. What clients send is nearly always JSON, which is YAML too, but costs a tenth to read as what it is.
///
/// # Errors
/// In the words of the reader of YAML, but for JSON that is too deep or too large.
pub fn decode_document(input: &[u8]) -> Result<Document, DecodeError> {
    let is_json = input.trim_ascii_start().starts_with(b"{") && std::str::from_utf8(input).is_ok();
    match if is_json {
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
    let out = convert(text, serde_saphyr::DuplicateKeyPolicy::PassThrough)
        .map_err(|error| misplaced_tab(text, &error).unwrap_or_else(|| problem(&error)))?;
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
    let options = serde_saphyr::options! {
        duplicate_keys: duplicate_keys,
        legacy_octal_numbers: true,
        with_snippet: false,
        budget: serde_saphyr::budget! { max_depth: MAX_YAML_DEPTH, max_total_scalar_bytes: limit },
    };
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |de| {
        Json { out: &mut out, limit }.deserialize(de)
    })?;
    Ok(out)
}

/// Writes what it is given as JSON.
struct Json<'a> {
    out: &'a mut Vec<u8>,
    limit: usize,
}

impl Json<'_> {
    fn fits<E: serde::de::Error>(&self) -> Result<(), E> {
        if self.out.len() > self.limit {
            Err(E::custom("document contains excessive aliasing"))
        } else {
            Ok(())
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
        let before = self.out.len();
        self.out.push(b'[');
        while items
            .next_element_seed(Json {
                out: self.out,
                limit: self.limit,
            })?
            .is_some()
        {
            self.out.push(b',');
        }
        close(self.out, before, b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
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
        })?;
        match key.first() {
            Some(b'"') => self.out.extend_from_slice(&key),
            Some(b'{' | b'[') => {
                return Err(serde::de::Error::custom("a map or list cannot be a key"));
            }
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
mod tests {
    use super::{decode_document, duplicate_key, yaml_to_json};

    #[track_caller]
    fn check(yaml: &str, expected: &str) {
        let got = yaml_to_json(yaml.as_bytes()).unwrap_or_else(|error| format!("error: {error}"));
        assert_eq!(got, expected, "{yaml}");
    }

    #[test]
    fn scalars_mean_what_they_mean_in_go() {
        check(
            "a: yes\nb: 0644\nc: 1.5\nd: ~\ne: 'yes'\nf: on\n",
            r#"{"a":true,"b":420,"c":1.5,"d":null,"e":"yes","f":true}"#,
        );
        check(
            "- 1\n- -2\n- 0x10\n- 1e3\n- 2026-01-01\n",
            r#"[1,-2,16,1000,"2026-01-01"]"#,
        );
        check("1: a\ntrue: b\n'x y': c\n", r#"{"1":"a","true":"b","x y":"c"}"#);
        check("a: |\n  x\n  y\nb: >-\n  x\n  y\n", r#"{"a":"x\ny\n","b":"x y"}"#);
        check("{}", "{}");
        check("[]", "[]");
        check(r#"{"a": "b", "c": [1, 2]}"#, r#"{"a":"b","c":[1,2]}"#);
    }

    #[test]
    fn anchors_and_merges_expand() {
        check(
            "u: &a {p: 1}\nv: *a\nw:\n  <<: *a\n  q: 2\n",
            r#"{"u":{"p":1},"v":{"p":1},"w":{"q":2,"p":1}}"#,
        );
    }

    #[test]
    fn keys_may_come_twice_for_strict_decoding_to_see() {
        check("a: 1\na: 2\n", r#"{"a":1,"a":2}"#);
        assert_eq!(
            duplicate_key(b"a:\n  b: 1\n  c: 2\n  b: 3\n"),
            Some((4, "b".to_owned()))
        );
        assert_eq!(duplicate_key(b"a: {b: 1}\nc: {b: 1}\n"), None);
    }

    #[test]
    fn documents_are_read_as_json_first() {
        let read = |text: &str| {
            decode_document(text.as_bytes()).map(|own| (own.tree.root().to_json(), own.duplicate))
        };
        let plain = |json: &str| Ok((json.to_owned(), None));
        assert_eq!(
            read(r#" {"a":[1.0,2e2,"\ud83d\ude00"]}"#),
            plain("{\"a\":[1,200,\"\u{1f600}\"]}")
        );
        assert_eq!(read("a: [1.0, 2e2]"), plain(r#"{"a":[1,200]}"#));
        assert_eq!(read("{a: b}"), plain(r#"{"a":"b"}"#));
        let twice = Some((2, "b".to_owned()));
        assert_eq!(
            read("{\"a\":{\"b\":1,\n\"b\":2}}"),
            Ok((r#"{"a":{"b":2}}"#.to_owned(), twice.clone()))
        );
        assert_eq!(
            read("a: {b: 1,\n  b: 2}"),
            Ok((r#"{"a":{"b":2}}"#.to_owned(), twice))
        );
        // JSON may nest as deep here as anywhere.
        let deep = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
        assert_eq!(read(&deep), plain(&deep));
        assert!(read(&format!("{}1", r#"{"a":"#.repeat(257))).is_err());
        assert!(decode_document(b"{\"a\":\"\xff\"}").is_err());
    }

    #[test]
    fn only_the_first_document_is_read() {
        check("a: 1\n---\nb: [\n", r#"{"a":1}"#);
        check("# c\n%YAML 1.1\n---\na: 1\n...\nb\n", r#"{"a":1}"#);
        check("a: |\n  ---\n  x\n", r#"{"a":"---\nx\n"}"#);
        check("--- {a: 1}\n", r#"{"a":1}"#);
        check("a: ---b\n", r#"{"a":"---b"}"#);
    }

    #[test]
    fn tabs_are_told_as_go_tells_them() {
        for (yaml, problem) in [
            (
                "a: b\n\tc: d\n",
                "yaml: line 2: found a tab character that violates indentation",
            ),
            (
                "a:\n  b: c\n\td: e\n",
                "yaml: line 3: found a tab character that violates indentation",
            ),
            (
                "a:\n\tb: c\n",
                "yaml: line 2: found character that cannot start any token",
            ),
            (
                "a: {}\n\n\tb: 1",
                "yaml: line 3: found character that cannot start any token",
            ),
        ] {
            let refused = yaml_to_json(yaml.as_bytes()).map_err(|error| error.to_string());
            assert_eq!(refused, Err(problem.to_owned()), "{yaml:?}");
        }
    }

    #[test]
    fn bombs_are_refused() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
        for level in 1..12 {
            let refs = vec![format!("*a{}", level - 1); 9].join(",");
            bomb.push_str(&format!("a{level}: &a{level} [{refs}]\n"));
        }
        assert!(yaml_to_json(bomb.as_bytes()).is_err());
        assert!(yaml_to_json("[".repeat(5000).as_bytes()).is_err());
        assert!(yaml_to_json("{a: ".repeat(65).as_bytes()).is_err());
        assert!(yaml_to_json("- ".repeat(65).as_bytes()).is_err());
        assert!(yaml_to_json("- ".repeat(60).as_bytes()).is_ok());
        assert!(yaml_to_json("? ".repeat(200).as_bytes()).is_err());
        assert!(yaml_to_json(&[0xff, 0xfe]).is_err());
    }
}
