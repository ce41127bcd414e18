//! Numbers as Go writes them.

use std::io::Write;

/// Appends a float the way Go's encoder does: shortest digits, plain below 1e21 and from 1e-6, else with exponent.
pub(crate) fn write_float(out: &mut Vec<u8>, value: f64) {
    if !value.is_finite() {
        out.extend_from_slice(b"null");
        return;
    }
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent
            .strip_prefix('-')
            .map_or(('+', exponent), |rest| ('-', rest));
        let _ = write!(out, "{digits}e{sign}{exponent}");
    } else {
        let _ = write!(out, "{value}");
    }
}

/// Appends a whole number.
pub(crate) fn write_int(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::{write_float, write_int};

    #[track_caller]
    fn float(value: f64, expected: &str) {
        let mut out = Vec::new();
        write_float(&mut out, value);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        float(1.0, "1");
        float(0.5, "0.5");
        float(1e20, "100000000000000000000");
        float(1e21, "1e+21");
        float(1.5e-7, "1.5e-7");
        float(-0.0, "-0");
        let mut out = Vec::new();
        write_int(&mut out, i64::MIN);
        assert_eq!(out, b"-9223372036854775808");
    }
}
