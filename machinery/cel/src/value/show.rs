//! Texts of values.

use super::{EvalError, List, Map, Value};
use crate::eval::Meter;
use std::fmt::Write as _;

impl<'a> Value<'a> {
    /// The value as upstream's messages show it.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(own) => own.to_string(),
            Self::Int(own) => own.to_string(),
            Self::Uint(own) => own.to_string(),
            Self::Double(own) => shortest(*own),
            Self::String(own) => own.as_str().to_owned(),
            Self::Type(own) => own.name().to_owned(),
            Self::Timestamp(own) => own.to_string(),
            Self::Duration(own) => machinery_schema::leaf::write_duration(*own),
            other => other.ty().name().to_owned(),
        }
    }

    /// A text that is the same for equal values.
    pub(crate) fn canonical(&self, meter: &mut Meter) -> Result<String, EvalError> {
        let mut out = String::new();
        write_canonical(self, &mut out, meter)?;
        Ok(out)
    }
}

fn write_canonical(value: &Value<'_>, out: &mut String, meter: &mut Meter) -> Result<(), EvalError> {
    meter.work(1)?;
    match value {
        Value::String(own) => {
            meter.hold(own.as_str().len())?;
            let _ = write!(out, "{:?}", own.as_str());
        }
        Value::Double(own) => match super::as_int(*own) {
            Some(whole) => out.push_str(&whole.to_string()),
            None => out.push_str(&own.to_string()),
        },
        Value::List(own) => write_list(own, out, meter)?,
        Value::Map(own) => write_map(own, out, meter)?,
        Value::Bytes(own) => {
            meter.hold(own.len())?;
            let _ = write!(out, "b{own:?}");
        }
        other => out.push_str(&other.shown()),
    }
    Ok(())
}

fn write_list(list: &List<'_>, out: &mut String, meter: &mut Meter) -> Result<(), EvalError> {
    out.push('[');
    for element in list.iter() {
        write_canonical(&element?, out, meter)?;
        out.push(',');
    }
    out.push(']');
    Ok(())
}

fn write_map(map: &Map<'_>, out: &mut String, meter: &mut Meter) -> Result<(), EvalError> {
    let mut entries = Vec::new();
    for key in map.keys() {
        let mut entry = key.canonical(meter)?;
        entry.push(':');
        if let Some(value) = map.find(&key) {
            write_canonical(&value?, &mut entry, meter)?;
        }
        entries.push(entry);
    }
    entries.sort();
    out.push('{');
    for entry in entries {
        out.push_str(&entry);
        out.push(',');
    }
    out.push('}');
    Ok(())
}

/// A double as Go's `%g` writes it: the fewest digits that read back, an exponent below -4 and from 6 on.
pub(crate) fn shortest(own: f64) -> String {
    if own.is_nan() {
        return "NaN".to_owned();
    }
    if own.is_infinite() {
        return if own > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    if own == 0.0 {
        return if own.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let scientific = format!("{own:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return own.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}
