//! Amounts such as `500m`, `1Gi` or `1e3` (apimachinery's `resource.Quantity`).

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Neg, Sub};
use std::str::FromStr;

/// A fixed-point amount with nano precision and the suffix family it was written in.
///
/// Finer fractions are rounded away from zero; magnitudes above 2^63-1 are capped, as upstream does.
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

/// The text is not a quantity; the messages are upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const NANOS: i128 = 1_000_000_000;
const MAX_NANOS: i128 = i64::MAX as i128 * NANOS;

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
        while mantissa % 1000 == 0 && exponent < 18 {
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
        let small = self.nanos.abs() < 1024 * NANOS;
        match self.format {
            Format::BinarySi if !small && self.is_integer() => self.fmt_binary(f),
            Format::DecimalExponent => self.fmt_decimal(f, true),
            _ => self.fmt_decimal(f, false),
        }
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (negative, rest) = match text.as_bytes().first() {
            None => return Err(ParseQuantityError::Format),
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
        };
        let number_end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(ParseQuantityError::Format);
        }
        check_suffix_form(suffix)?;
        let (base, exponent, format) = read_suffix(suffix)?;
        let magnitude = scaled(whole, fraction, base, exponent);
        Ok(Self {
            nanos: if negative { -magnitude } else { magnitude },
            format,
        })
    }
}

/// The suffix must look like `[eEinumkKMGTP]*[-+]?[0-9]*` before it is looked up.
fn check_suffix_form(suffix: &str) -> Result<(), ParseQuantityError> {
    let letters = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let digits = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    let fits = digits.chars().all(|c| c.is_ascii_digit());
    if fits {
        Ok(())
    } else {
        Err(ParseQuantityError::Format)
    }
}

fn read_suffix(suffix: &str) -> Result<(i128, i32, Format), ParseQuantityError> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(text, _)| *text == suffix) {
        return Ok((10, *exponent, Format::DecimalSi));
    }
    if let Some(step) = BINARY.iter().position(|text| *text == suffix) {
        let step = i32::try_from(step).map_err(|_| ParseQuantityError::Suffix)?;
        return Ok((1024, step, Format::BinarySi));
    }
    let exponent = suffix
        .strip_prefix(['e', 'E'])
        .ok_or(ParseQuantityError::Suffix)?;
    let exponent: i32 = exponent.parse().map_err(|_| ParseQuantityError::Suffix)?;
    Ok((10, exponent, Format::DecimalExponent))
}

/// `whole.fraction * base^exponent` in nanos, rounded away from zero and capped.
fn scaled(whole: &str, fraction: &str, base: i128, exponent: i32) -> i128 {
    let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|c| c - b'0').collect();
    let first = digits.iter().position(|d| *d != 0);
    let Some(first) = first else { return 0 };
    let digits = &digits[first..];
    // The decimal exponent of the last digit, in nanos.
    let fraction_digits = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let tens = if base == 10 { i64::from(exponent) } else { 0 };
    let shift = tens.saturating_sub(fraction_digits).saturating_add(9);
    let binary = if base == 1024 { 1i128 << (10 * exponent) } else { 1 };
    let length = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    if length.saturating_add(shift) > 40 {
        return MAX_NANOS;
    }
    accumulate(digits, shift, binary)
}

fn accumulate(digits: &[u8], shift: i64, binary: i128) -> i128 {
    // Long division by hand over the digits keeps every intermediate value below 2^127.
    let (mut value, mut rest_is_zero) = (0i128, true);
    let kept = usize::try_from(digits.len() as i64 + shift.min(0)).unwrap_or(0);
    if binary > 1 {
        return accumulate_binary(digits, shift, binary);
    }
    for digit in &digits[..kept.min(digits.len())] {
        value = value.saturating_mul(10).saturating_add(i128::from(*digit));
    }
    if shift < 0 {
        rest_is_zero = digits[kept..].iter().all(|d| *d == 0);
    }
    for _ in 0..shift.max(0) {
        value = value.saturating_mul(10);
    }
    value.saturating_add(i128::from(!rest_is_zero)).min(MAX_NANOS)
}

/// Binary suffixes multiply first, so that `0.5Gi` is exact; digits beyond 18 only matter to the rounding.
fn accumulate_binary(digits: &[u8], shift: i64, binary: i128) -> i128 {
    let kept = digits.len().min(18);
    let mut value = digits[..kept]
        .iter()
        .fold(0i128, |sum, d| sum * 10 + i128::from(*d));
    let mut inexact = digits[kept..].iter().any(|d| *d != 0);
    let mut shift = shift + (digits.len() - kept) as i64;
    value *= binary;
    while shift < 0 && value != 0 {
        inexact |= value % 10 != 0;
        value /= 10;
        shift += 1;
    }
    for _ in 0..shift.max(0) {
        value = value.saturating_mul(10);
    }
    value.saturating_add(i128::from(inexact)).min(MAX_NANOS)
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
            nanos: -self.nanos,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, canonical: &str) {
        assert_eq!(
            text.parse::<Quantity>().expect(text).to_string(),
            canonical,
            "{text}"
        );
    }

    #[test]
    fn prints_canonically() {
        check("0", "0");
        check("0.5", "500m");
        check("1500", "1500");
        check("1000", "1k");
        check("100000", "100k");
        check("1.5Gi", "1536Mi");
        check("1024Mi", "1Gi");
        check("512", "512");
        check("0.5Ki", "512");
        check("1023.5Ki", "1048064");
        check("1e3", "1e3");
        check("12e-1", "1200e-3");
        check("0.0000000001", "1n");
        check("-250m", "-250m");
        check("+1", "1");
        check(".5", "500m");
        check("5.", "5");
        check("9223372036854775807", "9223372036854775807");
        check("99999999999999999999", "9223372036854775807");
        check("1E", "1E");
        check("1Ei", "1Ei");
    }

    #[test]
    fn refuses_in_upstreams_words() {
        for text in ["", "-", "x", "1.2.3", "1 ", "1%"] {
            assert_eq!(
                text.parse::<Quantity>(),
                Err(ParseQuantityError::Format),
                "{text}"
            );
        }
        for text in ["1ki", "1mm", "1e", "1KiB2"] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
    }

    #[test]
    fn adds_and_rounds_up() {
        let sum = "1500m".parse::<Quantity>().expect("valid") + Quantity::from_units(1);
        assert_eq!(
            (sum.to_string().as_str(), sum.units(), sum.millis()),
            ("2500m", 3, 2500)
        );
        assert!("1Gi".parse::<Quantity>().expect("valid") > Quantity::from_units(1_000_000_000));
    }

    #[test]
    fn survives_absurd_input() {
        let long = format!("{}.{}e99", "9".repeat(500), "1".repeat(500));
        assert_eq!(
            long.parse::<Quantity>().expect("capped"),
            "9223372036854775807".parse().expect("valid")
        );
        check(&format!("0.{}1", "0".repeat(400)), "1n");
        check("1e-300", "1e-9");
    }

    /// However many digits stand behind the point, those before it count.
    #[test]
    fn long_fractions_are_rounded_not_lost() {
        for zeros in [0, 100, 119, 120, 121, 495, 5_000] {
            let zeros = "0".repeat(zeros);
            check(&format!("12345.{zeros}"), "12345");
            check(
                &format!("12345.{zeros}1"),
                if zeros.is_empty() {
                    "12345100m"
                } else {
                    "12345000000001n"
                },
            );
            check(&format!("12345.{zeros}Ki"), "12345Ki");
            check(&format!("{zeros}12345"), "12345");
        }
        check(&format!("0.5{}1Ki", "0".repeat(300)), "512000000001n");
        check(&format!("123456789{}e-300", "0".repeat(300)), "123456789");
    }
}
