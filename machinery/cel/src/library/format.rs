//! `format`: clauses of a format string, applied to values.

use crate::eval::Meter;
use crate::value::{EvalError, Evaluated, List, Map, Value};
use std::fmt::Write as _;

/// Digits after the point, when the clause does not say.
const PRECISION: usize = 6;
/// Digits after the point, at most; upstream has no bound, and a cost that does not count them.
const MAX_PRECISION: usize = 100_000;

/// One clause of a format string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clause {
    String,
    Decimal,
    Fixed(usize),
    Scientific(usize),
    Binary,
    Hex { upper: bool },
    Octal,
}

/// A part of a format string.
pub(super) enum Piece<'t> {
    Text(&'t str),
    Clause(Clause),
}

/// The next part of a format string, and what is after it; `args` says whether there is a value for another clause.
pub(super) fn piece(rest: &str, has_arg: Result<(), usize>) -> Result<(Piece<'_>, &str), String> {
    let Some(clause) = rest.strip_prefix('%') else {
        let end = rest.find('%').unwrap_or(rest.len());
        return Ok((Piece::Text(&rest[..end]), &rest[end..]));
    };
    if let Some(after) = clause.strip_prefix('%') {
        return Ok((Piece::Text("%"), after));
    }
    has_arg.map_err(|at| format!("index {at} out of range"))?;
    if clause.is_empty() {
        return Err("unexpected end of string".to_owned());
    }
    let wrong = |problem: &str| format!("could not parse formatting clause: {problem}");
    let (precision, after) = precision(clause).map_err(|problem| wrong(&problem))?;
    let mut chars = after.chars();
    let kind = chars.next().unwrap_or_default();
    let digits = precision.unwrap_or(PRECISION);
    let clause = match kind {
        's' => Clause::String,
        'd' => Clause::Decimal,
        'f' => Clause::Fixed(digits),
        'e' => Clause::Scientific(digits),
        'b' => Clause::Binary,
        'x' | 'X' => Clause::Hex { upper: kind == 'X' },
        'o' => Clause::Octal,
        // Upstream shows one byte.
        _ => {
            let byte = char::from(after.as_bytes().first().copied().unwrap_or_default());
            return Err(wrong(&format!("unrecognized formatting clause \"{byte}\"")));
        }
    };
    Ok((Piece::Clause(clause), chars.as_str()))
}

fn precision(clause: &str) -> Result<(Option<usize>, &str), String> {
    let Some(rest) = clause.strip_prefix('.') else {
        return Ok((None, clause));
    };
    let wrong = |problem: String| format!("error while parsing precision: {problem}");
    let end = rest.bytes().take_while(u8::is_ascii_digit).count();
    if end == rest.len() {
        return Err(wrong("could not find end of precision specifier".to_owned()));
    }
    let digits = &rest[..end];
    let problem = match digits.parse::<usize>() {
        Ok(own) if own <= MAX_PRECISION => return Ok((Some(own), &rest[end..])),
        Ok(own) => {
            return Err(wrong(format!(
                "precision {own} exceeds maximum allowed precision {MAX_PRECISION}"
            )));
        }
        Err(_) if digits.is_empty() => "invalid syntax",
        Err(_) => "value out of range",
    };
    let quoted = machinery_schema::leaf::go_quote(digits);
    Err(wrong(format!(
        "error while converting precision to integer: strconv.Atoi: parsing {quoted}: {problem}"
    )))
}

/// A format string with the values in the places of its clauses.
pub(super) fn format<'a>(text: &str, args: &List<'a>, meter: &mut Meter) -> Evaluated<'a> {
    let (mut out, mut rest, mut used) = (String::new(), text, 0);
    while !rest.is_empty() {
        let has_arg = if used < args.len() { Ok(()) } else { Err(used) };
        let (piece, after) = piece(rest, has_arg).map_err(EvalError::new)?;
        let before = out.len();
        match piece {
            Piece::Text(own) => {
                meter.hold(own.len())?;
                out.push_str(own);
            }
            Piece::Clause(clause) => {
                let value = args.get(used).unwrap_or(Ok(Value::Null))?;
                used += 1;
                let mut writer = Writer { out: &mut out, meter };
                writer.clause(clause, &value)?;
                meter.hold(out.len() - before)?;
            }
        }
        rest = after;
    }
    Ok(Value::owned(out))
}

struct Writer<'w> {
    out: &'w mut String,
    meter: &'w mut Meter,
}

/// Problem of a clause that does not take a type.
pub(super) fn problem(clause: Clause, name: &str) -> String {
    let what = match clause {
        Clause::String => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
        }
        Clause::Decimal => "decimal clause can only be used on integers",
        Clause::Fixed(_) => "fixed-point clause can only be used on doubles",
        Clause::Scientific(_) => "scientific clause can only be used on doubles",
        Clause::Binary => "only integers and bools can be formatted as binary",
        Clause::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
        Clause::Octal => "octal clause can only be used on integers",
    };
    format!("error during formatting: {what}, was given {name}")
}

impl Writer<'_> {
    fn clause(&mut self, clause: Clause, value: &Value<'_>) -> Result<(), EvalError> {
        let unusable = || EvalError::new(problem(clause, value.ty().name()));
        let out = &mut *self.out;
        match (clause, value) {
            (Clause::String, _) => return self.string(value).map_err(|error| error.unwrap_or_else(unusable)),
            (Clause::Decimal, Value::Int(_) | Value::Uint(_)) => out.push_str(&value.shown()),
            (Clause::Binary, Value::Int(own)) => out.push_str(&signed(*own, |own| format!("{own:b}"))),
            (Clause::Binary, Value::Uint(own)) => out.push_str(&format!("{own:b}")),
            (Clause::Binary, Value::Bool(own)) => out.push(if *own { '1' } else { '0' }),
            (Clause::Octal, Value::Int(own)) => out.push_str(&signed(*own, |own| format!("{own:o}"))),
            (Clause::Octal, Value::Uint(own)) => out.push_str(&format!("{own:o}")),
            (Clause::Hex { upper }, _) => {
                let text = hex(value).ok_or_else(unusable)?;
                out.push_str(&if upper { text.to_uppercase() } else { text });
            }
            (Clause::Fixed(digits), _) => {
                let own = number(value).ok_or_else(unusable)?;
                out.push_str(&fixed(own, digits));
            }
            (Clause::Scientific(digits), _) => {
                let own = number(value).ok_or_else(unusable)?;
                out.push_str(&scientific(own, digits));
            }
            _ => return Err(unusable()),
        }
        Ok(())
    }

    /// A value of a string clause; none of a type that has no text.
    fn string(&mut self, value: &Value<'_>) -> Result<(), Option<EvalError>> {
        match value {
            Value::List(own) => self.list(own),
            Value::Map(own) => self.map(own),
            Value::Null => {
                self.out.push_str("null");
                Ok(())
            }
            Value::Object(_) | Value::Optional(_) | Value::Opaque(_) => Err(None),
            other => {
                let text = other.convert(crate::value::To::String)?;
                self.out.push_str(text.as_str().unwrap_or_default());
                Ok(())
            }
        }
    }

    /// An element of a list or map, as an expression has it.
    fn element(&mut self, value: &Value<'_>) -> Result<(), Option<EvalError>> {
        self.meter.work(1)?;
        if self.out.len() > crate::eval::MAX_MEMORY {
            self.meter.hold(self.out.len())?;
        }
        let own = |name: &str, value: &Value<'_>| -> Result<String, EvalError> {
            let text = value.convert(crate::value::To::String)?;
            Ok(format!("{name}(\"{}\")", text.as_str().unwrap_or_default()))
        };
        match value {
            Value::String(text) => self
                .out
                .push_str(&machinery_schema::leaf::go_quote(text.as_str())),
            Value::Bytes(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                self.out.push('b');
                self.out.push_str(&machinery_schema::leaf::go_quote(&text));
            }
            Value::Double(own) if own.is_finite() => {
                let _ = write!(self.out, "{own:.PRECISION$}");
            }
            Value::Double(_) => {
                let _ = write!(self.out, "\"{}\"", value.shown());
            }
            Value::Duration(_) => self.out.push_str(&own("duration", value)?),
            Value::Timestamp(_) => self.out.push_str(&own("timestamp", value)?),
            Value::Object(_) | Value::Optional(_) | Value::Opaque(_) => {
                let message = format!("no formatting function for {}", value.ty().name());
                return Err(Some(EvalError::new(format!(
                    "error during formatting: {message}"
                ))));
            }
            other => self.string(other)?,
        }
        Ok(())
    }

    fn list(&mut self, list: &List<'_>) -> Result<(), Option<EvalError>> {
        self.out.push('[');
        for (at, element) in list.iter().enumerate() {
            if at > 0 {
                self.out.push_str(", ");
            }
            self.element(&element?)?;
        }
        self.out.push(']');
        Ok(())
    }

    fn map(&mut self, map: &Map<'_>) -> Result<(), Option<EvalError>> {
        let mut entries = Vec::new();
        for key in map.keys() {
            let mut own = [String::new(), String::new()];
            let value = map.find(&key).unwrap_or(Ok(Value::Null))?;
            for (out, value) in own.iter_mut().zip([&key, &value]) {
                let mut writer = Writer {
                    out,
                    meter: self.meter,
                };
                writer.element(value)?;
            }
            self.meter.hold(own[0].len() + own[1].len())?;
            entries.push(own);
        }
        entries.sort_by(|own, other| own[0].cmp(&other[0]));
        self.out.push('{');
        for (at, [key, value]) in entries.iter().enumerate() {
            let separator = if at > 0 { ", " } else { "" };
            let _ = write!(self.out, "{separator}{key}:{value}");
        }
        self.out.push('}');
        Ok(())
    }
}

fn signed(own: i64, digits: impl Fn(u64) -> String) -> String {
    let sign = if own < 0 { "-" } else { "" };
    format!("{sign}{}", digits(own.unsigned_abs()))
}

fn hex(value: &Value<'_>) -> Option<String> {
    let bytes = match value {
        Value::Int(own) => return Some(signed(*own, |own| format!("{own:x}"))),
        Value::Uint(own) => return Some(format!("{own:x}")),
        Value::String(own) => own.as_str().as_bytes(),
        Value::Bytes(own) => own,
        _ => return None,
    };
    Some(bytes.iter().fold(String::new(), |mut out, own| {
        let _ = write!(out, "{own:02x}");
        out
    }))
}

/// The number of a clause; three strings are numbers, too.
fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(own) => Some(*own),
        Value::String(own) => match own.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn not_finite(own: f64) -> Option<&'static str> {
    if own.is_nan() {
        return Some("NaN");
    }
    own.is_infinite().then_some(if own > 0.0 { "∞" } else { "-∞" })
}

/// A number with commas between thousands, as the locale `en_US` has it.
fn fixed(own: f64, digits: usize) -> String {
    if let Some(own) = not_finite(own) {
        return own.to_owned();
    }
    // The formatter takes no more than this; further digits of a double are zeros.
    let exact = digits.min(60_000);
    let text = format!("{own:.exact$}") + &"0".repeat(digits - exact);
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.as_str()),
    };
    let whole = text.find('.').unwrap_or(text.len());
    let mut out = sign.to_owned();
    for (at, own) in text.char_indices() {
        if at > 0 && at < whole && (whole - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(own);
    }
    out
}

/// A number with its power of ten in raised digits; the precision of a clause is its width, as upstream has it.
fn scientific(own: f64, width: usize) -> String {
    if let Some(own) = not_finite(own) {
        return padded(own, width);
    }
    let text = format!("{own:.PRECISION$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let mut out = format!("{mantissa}×10");
    if exponent < 0 {
        out.push('⁻');
    }
    for own in format!("{:02}", exponent.abs()).chars() {
        let at = own.to_digit(10).unwrap_or_default() as usize;
        out.extend("⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(at));
    }
    padded(&out, width)
}

fn padded(own: &str, width: usize) -> String {
    let missing = width.saturating_sub(own.chars().count());
    " ".repeat(missing) + own
}
