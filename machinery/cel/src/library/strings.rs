//! Strings, by code points.

use super::regex::part;
use super::{Function, fail, text};
use crate::eval::Meter;
use crate::value::{EvalError, Evaluated, Text, Value};

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "charAt" => |meter, args| match args {
            [Value::String(own), Value::Int(at)] => Some(char_at(own, *at, meter)),
            _ => None,
        },
        "substring" => substring,
        "lowerAscii" => |meter, args| mapped(meter, args, str::to_ascii_lowercase),
        "upperAscii" => |meter, args| mapped(meter, args, str::to_ascii_uppercase),
        "trim" => |meter, args| match args {
            [Value::String(own)] => Some(part(own, own.as_str().trim(), meter)),
            _ => None,
        },
        "replace" => replace,
        "split" => split,
        "join" => join,
        "strings.quote" => |meter, args| mapped(meter, args, quote),
        "format" => |meter, args| match args {
            [Value::String(own), Value::List(args)] => Some(super::format::format(own.as_str(), args, meter)),
            _ => None,
        },
        _ => return None,
    })
}

fn out_of_range(at: i64) -> EvalError {
    EvalError::new(format!("index out of range: {at}"))
}

/// Place in bytes of a code point, or of the end.
fn place(own: &str, at: i64) -> Option<usize> {
    let at = usize::try_from(at).ok()?;
    let mut places = own.char_indices().map(|own| own.0).chain([own.len()]);
    places.nth(at)
}

fn char_at<'a>(own: &Text<'a>, at: i64, meter: &mut Meter) -> Evaluated<'a> {
    let start = place(own.as_str(), at).ok_or_else(|| out_of_range(at))?;
    let rest = &own.as_str()[start..];
    let length = rest.chars().next().map_or(0, char::len_utf8);
    part(own, &rest[..length], meter)
}

fn substring<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    let (own, start, end) = match args {
        [Value::String(own), Value::Int(start)] => (own, *start, None),
        [Value::String(own), Value::Int(start), Value::Int(end)] => (own, *start, Some(*end)),
        _ => return None,
    };
    let whole = own.as_str();
    if let Some(end) = end
        && start > end
    {
        return fail(format!("invalid substring range. start: {start}, end: {end}"));
    }
    let Some(from) = place(whole, start) else {
        return Some(Err(out_of_range(start)));
    };
    let to = match end {
        Some(end) => match place(whole, end) {
            Some(to) => to,
            None => return Some(Err(out_of_range(end))),
        },
        None => whole.len(),
    };
    Some(part(own, &whole[from..to], meter))
}

fn mapped<'a>(meter: &mut Meter, args: &[Value<'a>], map: fn(&str) -> String) -> Option<Evaluated<'a>> {
    let [Value::String(own)] = args else { return None };
    Some(
        meter
            .hold(own.as_str().len())
            .and_then(|()| text(map(own.as_str()), meter)),
    )
}

fn quote(own: &str) -> String {
    let mut out = String::with_capacity(own.len() + 2);
    out.push('"');
    for own in own.chars() {
        match own {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            _ => out.push(own),
        }
    }
    out.push('"');
    out
}

fn replace<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    let (own, old, new, count) = match args {
        [Value::String(own), Value::String(old), Value::String(new)] => (own, old, new, -1),
        [
            Value::String(own),
            Value::String(old),
            Value::String(new),
            Value::Int(count),
        ] => (own, old, new, *count),
        _ => return None,
    };
    let (own, old, new) = (own.as_str(), old.as_str(), new.as_str());
    let limit = usize::try_from(count).unwrap_or(usize::MAX);
    let places = own.matches(old).take(limit).count();
    let length = (own.len() - places * old.len()).saturating_add(places.saturating_mul(new.len()));
    Some(
        meter
            .hold(length)
            .map(|()| Value::owned(own.replacen(old, new, limit))),
    )
}

fn split<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    let (own, separator, count) = match args {
        [Value::String(own), Value::String(separator)] => (own, separator.as_str(), -1),
        [Value::String(own), Value::String(separator), Value::Int(count)] => {
            (own, separator.as_str(), *count)
        }
        _ => return None,
    };
    let limit = usize::try_from(count).unwrap_or(usize::MAX);
    let parts = parts(own.as_str(), separator, limit);
    let held = meter.hold(parts.len() * (size_of::<Value<'_>>() + size_of::<&str>()));
    let mut out = Vec::new();
    for piece in parts {
        match held.clone().and_then(|()| part(own, piece, meter)) {
            Ok(own) => out.push(own),
            Err(error) => return Some(Err(error)),
        }
    }
    Some(super::list(out, meter))
}

/// Parts as Go's `SplitN` makes them: characters when there is no separator, none for a limit of none.
fn parts<'t>(own: &'t str, separator: &str, limit: usize) -> Vec<&'t str> {
    if limit == 0 {
        return Vec::new();
    }
    if !separator.is_empty() {
        return own.splitn(limit, separator).collect();
    }
    let (mut out, mut rest) = (Vec::new(), own);
    while let Some(first) = rest.chars().next() {
        if out.len() + 1 == limit {
            out.push(rest);
            return out;
        }
        let (piece, after) = rest.split_at(first.len_utf8());
        out.push(piece);
        rest = after;
    }
    out
}

fn join<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Option<Evaluated<'a>> {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, separator.as_str()),
        _ => return None,
    };
    let mut out = String::new();
    for (at, element) in list.iter().enumerate() {
        let element = match element {
            Ok(own) => own,
            Err(error) => return Some(Err(error)),
        };
        let Value::String(element) = &element else {
            return fail(format!("join: invalid input: {}", element.shown()));
        };
        let separator = if at == 0 { "" } else { separator };
        if let Err(error) = meter.hold(separator.len() + element.as_str().len()) {
            return Some(Err(error));
        }
        out.push_str(separator);
        out.push_str(element.as_str());
    }
    Some(Ok(Value::owned(out)))
}

/// Place of a part in a string by code points, from `from` on.
pub(super) fn index_of(own: &str, wanted: &str, from: Option<i64>) -> Result<i64, EvalError> {
    let from = from.unwrap_or_default();
    if from < 0 {
        return Err(out_of_range(from));
    }
    let length = i64::try_from(own.chars().count()).unwrap_or(i64::MAX);
    if wanted.is_empty() {
        return Ok(from.min(length));
    }
    let Some(start) = place(own, from).filter(|_| from < length) else {
        return Ok(-1);
    };
    let found = own[start..].find(wanted);
    Ok(found.map_or(-1, |at| from + count(&own[start..start + at])))
}

/// The last place of a part in a string by code points, not behind `from`.
pub(super) fn last_index_of(own: &str, wanted: &str, from: Option<i64>) -> Result<i64, EvalError> {
    let length = count(own);
    let from = match from {
        Some(from) if from < 0 => return Err(out_of_range(from)),
        Some(from) => from,
        None if wanted.is_empty() => return Ok(length),
        None if own.len() < wanted.len() => return Ok(-1),
        None => length - 1,
    };
    if wanted.is_empty() {
        return Ok(from.min(length));
    }
    if from >= length {
        return Ok(-1);
    }
    let end = place(own, from + count(wanted)).unwrap_or(own.len());
    Ok(own[..end].rfind(wanted).map_or(-1, |at| count(&own[..at])))
}

fn count(own: &str) -> i64 {
    i64::try_from(own.chars().count()).unwrap_or(i64::MAX)
}
