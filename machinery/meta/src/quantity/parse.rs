//! Reading of quantities (`resource.ParseQuantity`).

use std::str::FromStr;

use super::{BINARY, DECIMAL, Format, NANOS, Quantity};

/// The text is not a quantity; the messages are upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const MAX_BINARY_NANOS: i128 = i64::MAX as i128 * NANOS;
/// Decimal digits behind the point that a nano divided by 2^60 may have.
const MAX_BINARY_DECIMALS: usize = 69;

/// A quantity's text in its parts.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a str,
    fraction: &'a str,
    base: i128,
    exponent: i32,
    format: Format,
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = Parts::read(text)?;
        let magnitude = scaled(parts.whole, parts.fraction, parts.base, parts.exponent);
        // As upstream: what is less than one has no binary suffix.
        let format = match parts.format {
            Format::BinarySi if (1..NANOS).contains(&magnitude) => Format::DecimalSi,
            own => own,
        };
        Ok(Self {
            nanos: if parts.negative { -magnitude } else { magnitude },
            format,
        })
    }
}

/// The text that upstream writes for a quantity that it read from `text`, absent where that is `text` itself. Of few digits it
/// keeps texts that are not its canonical form, such as `1.500` and `+1`.
///
/// # Errors
/// The text is not a quantity.
pub fn canonical(text: &str) -> Result<Option<String>, ParseQuantityError> {
    if Parts::read(text)?.stay() {
        return Ok(None);
    }
    let canonical = text.parse::<Quantity>()?.to_string();
    Ok((canonical != text).then_some(canonical))
}

impl<'a> Parts<'a> {
    /// Digits that upstream reads without its decimal numbers.
    const MAX_DIGITS: usize = 18;

    fn read(text: &'a str) -> Result<Self, ParseQuantityError> {
        if text.is_empty() {
            return Err(ParseQuantityError::Format);
        }
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, rest) = unsigned.split_at(digits(unsigned));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        check_suffix_form(suffix)?;
        let (base, exponent, format) = read_suffix(suffix)?;
        Ok(Self {
            negative: text.starts_with('-'),
            whole: whole.trim_start_matches('0'),
            fraction,
            base,
            exponent,
            format,
        })
    }

    /// Reports whether upstream takes the text for canonical as it reads it (the quick way of `ParseQuantity`).
    fn stay(&self) -> bool {
        let digits = self.whole.len().max(1) + self.fraction.len();
        if self.format == Format::BinarySi {
            let factor = usize::try_from(self.exponent).unwrap_or(0) * 3;
            return self.fraction.is_empty()
                && digits + factor < 15
                && self
                    .whole
                    .parse()
                    .is_ok_and(|whole: u64| !whole.is_multiple_of(8));
        }
        let places = i32::try_from(self.fraction.len()).unwrap_or(i32::MAX);
        let scale = self.exponent.saturating_sub(places);
        let zeros = |text: &str| text.bytes().rev().take_while(|byte| *byte == b'0').count();
        let trailing = match zeros(self.fraction) {
            all if all == self.fraction.len() => all + zeros(self.whole),
            some => some,
        };
        digits <= Self::MAX_DIGITS && scale >= -9 && scale % 3 == 0 && !self.whole.is_empty() && trailing < 3
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
    let exponent: i64 = exponent.parse().map_err(|_| ParseQuantityError::Suffix)?;
    // Upstream keeps the lower half.
    let [a, b, c, d, ..] = exponent.to_le_bytes();
    Ok((10, i32::from_le_bytes([a, b, c, d]), Format::DecimalExponent))
}

/// `whole.fraction * base^exponent` in nanos, rounded away from zero and capped.
fn scaled(whole: &str, fraction: &str, base: i128, exponent: i32) -> i128 {
    if base == 1024 {
        return scaled_binary(whole, fraction, 1i128 << (10 * exponent));
    }
    let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|c| c - b'0').collect();
    let first = digits.iter().position(|d| *d != 0);
    let Some(first) = first else { return 0 };
    let digits = &digits[first..];
    // The decimal exponent of the last digit, in nanos.
    let fraction_digits = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let shift = i64::from(exponent)
        .saturating_sub(fraction_digits)
        .saturating_add(9);
    let length = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    if length.saturating_add(shift) > 40 {
        return i128::MAX;
    }
    accumulate(digits, shift)
}

fn accumulate(digits: &[u8], shift: i64) -> i128 {
    // Long division by hand over the digits keeps every intermediate value below 2^127.
    let (mut value, mut rest_is_zero) = (0i128, true);
    let kept = usize::try_from(digits.len() as i64 + shift.min(0)).unwrap_or(0);
    for digit in &digits[..kept.min(digits.len())] {
        value = value.saturating_mul(10).saturating_add(i128::from(*digit));
    }
    if shift < 0 {
        rest_is_zero = digits[kept..].iter().all(|d| *d == 0);
    }
    for _ in 0..shift.max(0) {
        value = value.saturating_mul(10);
    }
    value.saturating_add(i128::from(!rest_is_zero))
}

/// `whole.fraction * factor` in nanos, exact for every number of digits.
fn scaled_binary(whole: &str, fraction: &str, factor: i128) -> i128 {
    let unit = factor * NANOS;
    let most = MAX_BINARY_NANOS / unit;
    let mut units = 0i128;
    for digit in whole.bytes() {
        units = units * 10 + i128::from(digit - b'0');
        if units > most {
            return MAX_BINARY_NANOS;
        }
    }
    (units * unit + fraction_of(fraction, unit)).min(MAX_BINARY_NANOS)
}

/// `0.fraction * unit`, rounded up. A multiple of a nano has at most [`MAX_BINARY_DECIMALS`] decimals in that unit, so further
/// digits cannot reach the next one, and only their being zero matters.
fn fraction_of(fraction: &str, unit: i128) -> i128 {
    let digits = fraction.as_bytes();
    let (near, far) = digits.split_at(digits.len().min(MAX_BINARY_DECIMALS));
    // From the last digit to the first: what is carried stays below ten units, some 2^94.
    let (mut carried, mut inexact) = (0i128, far.iter().any(|digit| *digit != b'0'));
    for digit in near.iter().rev() {
        carried += i128::from(*digit - b'0') * unit;
        inexact |= carried % 10 != 0;
        carried /= 10;
    }
    carried + i128::from(inexact)
}
