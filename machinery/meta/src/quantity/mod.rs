//! Amounts such as `500m`, `1Gi` or `1e3` (apimachinery's `resource.Quantity`).

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Neg, Sub};

mod parse;
#[cfg(test)]
mod tests;

pub use parse::{ParseQuantityError, canonical};

/// A fixed-point amount with nano precision and the suffix family it was written in.
///
/// Finer fractions are rounded away from zero. Amounts with a binary suffix are capped at 2^63-1, as upstream caps them;
/// others at what the nanos hold, some 1.7·10^29 (upstream's have no bound).
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// The family of suffixes a quantity prints with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// `n`, `u`, `m`, none, `k`, `M`, `G`, `T`, `P`, `E`.
    #[default]
    DecimalSi,
    /// `Ki`, `Mi`, `Gi`, `Ti`, `Pi`, `Ei`.
    BinarySi,
    /// `e3`.
    DecimalExponent,
}

const NANOS: i128 = 1_000_000_000;

impl Quantity {
    pub fn from_units(units: i64) -> Self {
        Self {
            nanos: i128::from(units) * NANOS,
            format: Format::DecimalSi,
        }
    }

    /// Thousandths: `from_millis(500)` is `500m`.
    pub fn from_millis(millis: i64) -> Self {
        Self {
            nanos: i128::from(millis) * (NANOS / 1000),
            format: Format::DecimalSi,
        }
    }

    /// Billionths: `from_nanos(500)` is `500n`.
    pub fn from_nanos(nanos: i64) -> Self {
        Self {
            nanos: i128::from(nanos),
            format: Format::DecimalSi,
        }
    }

    /// Bytes, printing with binary suffixes.
    pub fn from_bytes(bytes: i64) -> Self {
        Self {
            nanos: i128::from(bytes) * NANOS,
            format: Format::BinarySi,
        }
    }

    /// The same amount, printing with other suffixes.
    #[must_use]
    pub fn with_format(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// Whole units, rounded up (upstream's `Value`).
    pub fn units(self) -> i64 {
        saturate(divide_up(self.nanos, NANOS))
    }

    /// Thousandths, rounded up (upstream's `MilliValue`).
    pub fn millis(self) -> i64 {
        saturate(divide_up(self.nanos, NANOS / 1000))
    }

    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Reports whether the amount is a whole number of units.
    pub fn is_integer(self) -> bool {
        self.nanos % NANOS == 0
    }

    pub fn format(self) -> Format {
        self.format
    }

    pub fn as_f64(self) -> f64 {
        self.nanos as f64 / NANOS as f64
    }

    fn fmt_decimal(self, f: &mut fmt::Formatter<'_>, exponent_form: bool) -> fmt::Result {
        let (mut mantissa, mut exponent) = (self.nanos, -9i32);
        // Upstream writes `1` for `1000E`, since it finds no suffix for a thousand of the largest.
        while mantissa % 1000 == 0 && (exponent_form || exponent < 18) {
            mantissa /= 1000;
            exponent += 3;
        }
        if exponent_form {
            return if exponent == 0 {
                write!(f, "{mantissa}")
            } else {
                write!(f, "{mantissa}e{exponent}")
            };
        }
        let suffix = DECIMAL
            .iter()
            .find(|(_, own)| *own == exponent)
            .map_or("", |(text, _)| *text);
        write!(f, "{mantissa}{suffix}")
    }

    fn fmt_binary(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut mantissa, mut step) = (self.nanos / NANOS, 0usize);
        while mantissa % 1024 == 0 && step + 1 < BINARY.len() {
            mantissa /= 1024;
            step += 1;
        }
        write!(f, "{mantissa}{}", BINARY[step])
    }
}

const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let small = self.nanos.unsigned_abs() < 1024 * NANOS.unsigned_abs();
        match self.format {
            Format::BinarySi if !small && self.is_integer() => self.fmt_binary(f),
            Format::DecimalExponent => self.fmt_decimal(f, true),
            _ => self.fmt_decimal(f, false),
        }
    }
}

fn divide_up(value: i128, by: i128) -> i128 {
    let quotient = value / by;
    if value % by > 0 { quotient + 1 } else { quotient }
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Add for Quantity {
    type Output = Self;

    /// Keeps the left format, or takes the right one when the left amount is zero.
    fn add(self, other: Self) -> Self {
        let format = if self.nanos == 0 {
            other.format
        } else {
            self.format
        };
        Self {
            nanos: self.nanos.saturating_add(other.nanos),
            format,
        }
    }
}

impl Neg for Quantity {
    type Output = Self;

    fn neg(self) -> Self {
        Self {
            nanos: self.nanos.saturating_neg(),
            format: self.format,
        }
    }
}

impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}
