//! Conversions between types.

use super::{EvalError, Opaque, Timestamp, Value};
use crate::library::times;
use crate::types::Type;
use std::sync::Arc;

/// A type that values can be converted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    Bool,
    Bytes,
    Double,
    Duration,
    Int,
    String,
    Timestamp,
    Uint,
}

impl To {
    fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Bytes => "bytes",
            Self::Double => "double",
            Self::Duration => "google.protobuf.Duration",
            Self::Int => "int",
            Self::String => "string",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Uint => "uint",
        }
    }
}

impl<'a> Value<'a> {
    /// The value as another type.
    pub(crate) fn convert(&self, to: To) -> Result<Value<'a>, EvalError> {
        let overflow = || EvalError::new("integer overflow");
        let unsigned = || EvalError::new("unsigned integer overflow");
        Ok(match (to, self) {
            (To::Bool, Self::Bool(_))
            | (To::Bytes, Self::Bytes(_))
            | (To::Double, Self::Double(_))
            | (To::Duration, Self::Duration(_))
            | (To::Int, Self::Int(_))
            | (To::String, Self::String(_))
            | (To::Timestamp, Self::Timestamp(_))
            | (To::Uint, Self::Uint(_)) => self.clone(),
            (To::Int, Self::Uint(own)) => Self::Int(i64::try_from(*own).map_err(|_| overflow())?),
            (To::Int, Self::Double(own)) => Self::Int(to_int(*own).ok_or_else(overflow)?),
            (To::Int, Self::Duration(own)) => Self::Int(*own),
            (To::Int, Self::Timestamp(own)) => Self::Int(own.seconds),
            (To::Uint, Self::Int(own)) => Self::Uint(u64::try_from(*own).map_err(|_| unsigned())?),
            (To::Uint, Self::Double(own)) => Self::Uint(to_uint(*own).ok_or_else(unsigned)?),
            (To::Double, Self::Int(own)) => Self::Double(float(*own)),
            (To::Double, Self::Uint(own)) => Self::Double(unsigned_float(*own)),
            (To::Timestamp, Self::Int(own)) if times::in_range(*own) => {
                Self::Timestamp(Timestamp::utc(*own, 0))
            }
            (To::Timestamp, Self::Int(_)) => return Err(EvalError::new("timestamp overflow")),
            (_, Self::String(own)) => return from_text(own.as_str(), to),
            (To::String, _) => return self.to_text(),
            _ => return Err(self.no_conversion(to)),
        })
    }

    fn no_conversion(&self, to: To) -> EvalError {
        let from = self.ty();
        EvalError::new(format!(
            "type conversion error from '{}' to '{}'",
            from.name(),
            to.name()
        ))
    }

    fn to_text(&self) -> Result<Value<'a>, EvalError> {
        Ok(Value::owned(match self {
            Self::Bool(_)
            | Self::Int(_)
            | Self::Uint(_)
            | Self::Double(_)
            | Self::Timestamp(_)
            | Self::Null => self.shown(),
            Self::Type(own) => own.name().to_owned(),
            Self::Duration(own) => format!("{}s", seconds(*own)),
            Self::Bytes(own) => match std::str::from_utf8(own) {
                Ok(text) => text.to_owned(),
                Err(_) => return Err(EvalError::new("invalid UTF-8 in bytes, cannot convert to string")),
            },
            Self::Opaque(own) => match &**own {
                Opaque::Ip(own) => own.to_string(),
                Opaque::Cidr(own, bits) => format!("{own}/{bits}"),
                _ => return Err(self.no_conversion(To::String)),
            },
            _ => return Err(self.no_conversion(To::String)),
        }))
    }

    /// The type of a value, as a value.
    pub(crate) fn type_value(&self) -> Value<'a> {
        Value::Type(Arc::new(match self.ty() {
            Type::Type(_) => Type::Type(None),
            other => other,
        }))
    }
}

/// Seconds of a duration as Go writes a float without an exponent.
fn seconds(nanos: i64) -> String {
    let (whole, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let value = float(whole) + float(rest) / 1e9;
    value.to_string()
}

#[expect(clippy::cast_precision_loss, reason = "what a conversion to a double does")]
pub(crate) fn float(own: i64) -> f64 {
    own as f64
}

#[expect(clippy::cast_precision_loss, reason = "what a conversion to a double does")]
pub(crate) fn unsigned_float(own: u64) -> f64 {
    own as f64
}

/// Rounds toward zero; none outside of the type, whose edges cannot be had.
#[expect(clippy::cast_possible_truncation, reason = "in range")]
fn to_int(own: f64) -> Option<i64> {
    const EDGE: f64 = 9_223_372_036_854_775_808.0;
    (own > -EDGE && own < EDGE).then_some(own as i64)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
fn to_uint(own: f64) -> Option<u64> {
    const EDGE: f64 = 18_446_744_073_709_551_616.0;
    (0.0..EDGE).contains(&own).then_some(own as u64)
}

fn from_text(text: &str, to: To) -> Result<Value<'static>, EvalError> {
    let parsed = match to {
        To::Int => go_digits(text).and_then(|own| own.parse().ok()).map(Value::Int),
        To::Uint => (!text.starts_with('+'))
            .then(|| text.parse().ok())
            .flatten()
            .map(Value::Uint),
        To::Double => go_float(text).map(Value::Double),
        To::Bool => match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(Value::Bool(false)),
            _ => None,
        },
        To::Bytes => Some(Value::Bytes(text.as_bytes().into())),
        To::Duration => times::parse_duration(text).map(Value::Duration),
        To::Timestamp => match times::parse_timestamp(text) {
            Some(own) => Some(Value::Timestamp(own)),
            None if times::is_timestamp(text) => return Err(EvalError::new("timestamp overflow")),
            None => None,
        },
        To::String => Some(Value::owned(text)),
    };
    parsed.ok_or_else(|| Value::owned(text).no_conversion(to))
}

fn go_digits(text: &str) -> Option<&str> {
    let digits = text.trim_start_matches(['+', '-']);
    (text.len() - digits.len() <= 1 && digits.bytes().all(|own| own.is_ascii_digit())).then_some(text)
}

/// A double as Go's `ParseFloat` reads it, but for hexadecimal ones.
fn go_float(text: &str) -> Option<f64> {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let lower = rest.to_ascii_lowercase();
    if matches!(lower.as_str(), "inf" | "infinity" | "nan") {
        return text.parse().ok();
    }
    if rest.is_empty()
        || rest.starts_with(['+', '-'])
        || rest
            .bytes()
            .any(|own| own.is_ascii_alphabetic() && !matches!(own, b'e' | b'E'))
    {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(value)
}
