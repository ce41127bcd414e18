//! Numbers of three types, compared by what they are worth.

use super::Value;
use super::convert::{float, unsigned_float};
use std::cmp::Ordering;

const TWO_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_64: f64 = 18_446_744_073_709_551_616.0;

/// The whole number that a double is.
#[expect(clippy::cast_possible_truncation, reason = "in range and whole")]
pub(crate) fn as_int(own: f64) -> Option<i64> {
    (own.fract() == 0.0 && (-TWO_63..TWO_63).contains(&own)).then_some(own as i64)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "in range and whole"
)]
pub(crate) fn as_uint(own: f64) -> Option<u64> {
    (own.fract() == 0.0 && (0.0..TWO_64).contains(&own)).then_some(own as u64)
}

/// Order of two numbers, as doubles where one of them is, so that large whole numbers are rounded; none of what is no number.
pub(super) fn compare(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    Some(match (left, right) {
        (Value::Int(own), Value::Int(other)) => own.cmp(other),
        (Value::Uint(own), Value::Uint(other)) => own.cmp(other),
        (Value::Double(own), Value::Double(other)) => own.partial_cmp(other)?,
        (Value::Int(own), Value::Uint(other)) => i128::from(*own).cmp(&i128::from(*other)),
        (Value::Uint(own), Value::Int(other)) => i128::from(*own).cmp(&i128::from(*other)),
        (Value::Double(own), Value::Int(other)) => own.partial_cmp(&float(*other))?,
        (Value::Double(own), Value::Uint(other)) => own.partial_cmp(&unsigned_float(*other))?,
        (Value::Int(own), Value::Double(other)) => float(*own).partial_cmp(other)?,
        (Value::Uint(own), Value::Double(other)) => unsigned_float(*own).partial_cmp(other)?,
        _ => return None,
    })
}
