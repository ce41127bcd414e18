//! JSON as YAML, the way upstream's marshaller writes it: block style, keys sorted.

use serde_json::Value;
use std::fmt::Write;

/// The document as YAML.
pub fn from_json(json: &[u8]) -> Vec<u8> {
    let value: Value = serde_json::from_slice(json).unwrap_or_default();
    let mut out = String::new();
    block(&value, 0, &mut out);
    out.into_bytes()
}

fn indent(depth: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', depth * 2));
}

/// A value that begins on a line of its own.
fn block(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(key, _)| key.as_str());
            for (at, (key, member)) in sorted.into_iter().enumerate() {
                if at > 0 {
                    indent(depth, out);
                }
                let _ = write!(out, "{}:", scalar_text(key));
                after_key(member, depth, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    indent(depth, out);
                }
                out.push_str("- ");
                block(item, depth + 1, out);
            }
        }
        scalar => {
            out.push_str(&inline(scalar, depth));
            out.push('\n');
        }
    }
}

/// Lists stand under their key without more indentation, as upstream's do.
fn after_key(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            out.push('\n');
            indent(depth + 1, out);
            block(value, depth + 1, out);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            indent(depth, out);
            block(value, depth, out);
        }
        scalar => {
            out.push(' ');
            out.push_str(&inline(scalar, depth + 1));
            out.push('\n');
        }
    }
}

fn inline(value: &Value, depth: usize) -> String {
    match value {
        Value::String(text)
            if text.contains('\n') && text.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()) =>
        {
            literal(text, depth)
        }
        Value::String(text) => scalar_text(text),
        Value::Array(_) => "[]".into(),
        Value::Object(_) => "{}".into(),
        other => other.to_string(),
    }
}

/// `|` with the text's lines; the sign after it says what becomes of the last line end.
fn literal(text: &str, depth: usize) -> String {
    let body = text.trim_end_matches('\n');
    let ends = text.len() - body.len();
    let leading = text.starts_with([' ', '\n']);
    if leading || body.is_empty() {
        return serde_json::Value::from(text).to_string();
    }
    let mut out = String::from(match ends {
        0 => "|-",
        1 => "|",
        _ => "|+",
    });
    for line in body.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            indent(depth, &mut out);
            out.push_str(line);
        }
    }
    out.extend(std::iter::repeat_n('\n', ends.saturating_sub(1)));
    out
}

/// Plain where no reader could take it for anything else, quoted otherwise.
fn scalar_text(text: &str) -> String {
    let special = [
        "", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n",
    ];
    let lower = text.to_lowercase();
    let looks_typed = special.contains(&lower.as_str())
        || text.parse::<f64>().is_ok()
        || text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '.'))
            && text.contains([':', '_', 'x', 'e']);
    let control = text.chars().any(char::is_control);
    let unsafe_start = text.starts_with(|c: char| "-?:,[]{}#&*!|>'\"%@` ".contains(c))
        && !(text.starts_with('-')
            && text.len() > 1
            && !text.starts_with("- ")
            && text.parse::<f64>().is_err());
    if control {
        return Value::from(text).to_string();
    }
    if looks_typed {
        return format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    }
    if unsafe_start || text.ends_with([' ', ':']) || text.contains(": ") || text.contains(" #") {
        return format!("'{}'", text.replace('\'', "''"));
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    #[track_caller]
    fn check(json: &str, expected: &str) {
        assert_eq!(
            String::from_utf8(super::from_json(json.as_bytes())).unwrap(),
            expected
        );
    }

    #[test]
    fn documents() {
        check(
            r#"{"b":[{"x":1,"a":"t"},[]],"a":{}}"#,
            "a: {}\nb:\n- a: t\n  x: 1\n- []\n",
        );
        check(
            r#"{"a":"1","b":"x\ny\n","c":"a: b","d":null,"e":"true"}"#,
            "a: \"1\"\nb: |\n  x\n  y\nc: 'a: b'\nd: null\ne: \"true\"\n",
        );
    }
}
