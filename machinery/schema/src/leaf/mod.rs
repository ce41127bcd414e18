//! Leaves that have rules of their own: quantities, times, durations, base64, and text in Go's quotes.

mod request_url;
mod time;

use crate::table::Shape;
use crate::tree::{Kind, Ref};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
pub use machinery_meta::go_duration::{parse as parse_duration, write_nanos as write_duration};
pub use machinery_meta::go_text::{go_quote, is_printable};
use machinery_meta::quantity;

pub use request_url::{RequestUrl, UrlPart, check_port, unescape};
pub use time::{civil_from_days, days_from_civil, parse_rfc3339, write_micro_time, write_time};

/// Shapes whose JSON is a string with a canonical form.
pub(crate) fn is_text(shape: Shape) -> bool {
    matches!(
        shape,
        Shape::Bytes | Shape::Quantity | Shape::Time | Shape::MicroTime | Shape::Duration
    )
}

/// The text upstream would write back, `None` when it is the same; an error in its parser's words.
pub(crate) fn canonical(shape: Shape, text: &str) -> Result<Option<String>, String> {
    match shape {
        Shape::Bytes => bytes(text),
        Shape::Quantity => written_quantity(text),
        Shape::Time => time::canonical(text),
        Shape::MicroTime => time::canonical_micro(text),
        Shape::Duration => written_duration(text),
        _ => Ok(None),
    }
}

fn written_duration(text: &str) -> Result<Option<String>, String> {
    let written = write_duration(parse_duration(text)?);
    Ok((written != text).then_some(written))
}

fn written_quantity(text: &str) -> Result<Option<String>, String> {
    if is_plain_quantity(text) {
        return Ok(None);
    }
    quantity::canonical(text).map_err(|error| error.to_string())
}

/// The common ones that are canonical already: up to three digits without a leading zero, and one suffix.
fn is_plain_quantity(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    (1..=3).contains(&digits)
        && !text.starts_with('0')
        && matches!(
            &text[digits..],
            "" | "m" | "k" | "M" | "G" | "Ki" | "Mi" | "Gi" | "Ti"
        )
}

/// Go's base64 decoder: standard alphabet with padding, line breaks allowed.
fn bytes(text: &str) -> Result<Option<String>, String> {
    if STANDARD.decode(text).is_ok() {
        return Ok(None);
    }
    let joined: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    match STANDARD.decode(&joined) {
        Ok(_) => Ok(Some(joined)),
        Err(_) => Err(format!(
            "illegal base64 data at input byte {}",
            illegal_base64_at(text)
        )),
    }
}

/// Position where Go's decoder stops: the first illegal byte, what is behind the padding, or the end of a short last group.
fn illegal_base64_at(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_break = |byte: u8| matches!(byte, b'\r' | b'\n');
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/') || is_break(byte);
    // The next byte that is no line break.
    let next = |from: usize| {
        let breaks = bytes[from..].iter().take_while(|byte| is_break(**byte));
        from + breaks.count()
    };
    let Some(at) = bytes.iter().position(|byte| !is_legal(*byte)) else {
        return text.len() / 4 * 4;
    };
    let before = bytes[..at].iter().filter(|byte| !is_break(**byte)).count();
    match (bytes[at], before % 4) {
        (b'=', 3) => next(at + 1),
        (b'=', 2) => match next(at + 1) {
            second if bytes.get(second) == Some(&b'=') => next(second + 1),
            second if second < bytes.len() => second - 1,
            end => end,
        },
        _ => at,
    }
}

/// JSON text without white space between its tokens; the text must be valid JSON.
pub(crate) fn compact_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for character in text.chars() {
        if !in_string && character.is_ascii_whitespace() {
            continue;
        }
        out.push(character);
        match character {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ => {}
        }
    }
    out
}

/// A value as Go's `%v` prints it: `map[a:1 b:[x y]]`.
pub(crate) fn go_value(value: Ref<'_>) -> String {
    match value.kind() {
        Kind::Null => "<nil>".to_owned(),
        Kind::String => value.as_str().unwrap_or_default().to_owned(),
        Kind::List => format!("[{}]", value.items().map(go_value).collect::<Vec<_>>().join(" ")),
        Kind::Map => {
            let members: Vec<_> = value
                .entries()
                .map(|(name, own)| format!("{name}:{}", go_value(own)))
                .collect();
            format!("map[{}]", members.join(" "))
        }
        _ => value.to_json(),
    }
}

#[cfg(test)]
mod tests;
