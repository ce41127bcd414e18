//! Go's duration text: `1h30m`, `1.5s`, `-300ms`.

const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

pub(super) fn canonical(text: &str) -> Result<Option<String>, String> {
    let nanos = parse(text)?;
    let canonical = write(nanos);
    Ok((canonical != text).then_some(canonical))
}

/// Nanoseconds, or `time.ParseDuration`'s sentence.
pub fn parse(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", super::go_quote(text));
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (value, after) = one(rest, text)?;
        total += value;
        rest = after;
        if total > i128::from(i64::MAX) + i128::from(negative) {
            return Err(invalid());
        }
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| invalid())
}

/// One number with its unit.
fn one<'a>(text: &'a str, whole_text: &str) -> Result<(i128, &'a str), String> {
    let quoted = || super::go_quote(whole_text);
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, mut rest) = text.split_at(digits);
    let mut fraction = "";
    if let Some(after) = rest.strip_prefix('.') {
        let count = after.bytes().take_while(u8::is_ascii_digit).count();
        (fraction, rest) = after.split_at(count);
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err(format!("time: invalid duration {}", quoted()));
    }
    let unit_len = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_len);
    if unit.is_empty() {
        return Err(format!("time: missing unit in duration {}", quoted()));
    }
    let Some((_, size)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!(
            "time: unknown unit {} in duration {}",
            super::go_quote(unit),
            quoted()
        ));
    };
    let number = |text: &str| {
        if text.is_empty() {
            Ok(0)
        } else {
            text.parse::<i64>()
        }
    };
    let whole = number(whole).map_err(|_| format!("time: invalid duration {}", quoted()))?;
    let fraction = &fraction[..fraction.len().min(18)];
    let scale = 10_i128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let part = i128::from(number(fraction).unwrap_or(0)) * size / scale;
    Ok((i128::from(whole) * size + part, rest))
}

/// The text of Go's `Duration.String`.
pub fn write(nanos: i64) -> String {
    let size = nanos.unsigned_abs();
    let sign = if nanos < 0 { "-" } else { "" };
    let (unit, scale) = match size {
        0 => return "0s".to_owned(),
        1..1_000 => ("ns", 1),
        1_000..1_000_000 => ("µs", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => return format!("{sign}{}", long(size)),
    };
    format!("{sign}{}{unit}", decimal(size, scale))
}

fn long(size: u64) -> String {
    let seconds = size / 1_000_000_000;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = decimal(size % 60_000_000_000, 1_000_000_000);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

/// `size / scale` with as many decimals as there are.
fn decimal(size: u64, scale: u64) -> String {
    let (whole, part) = (size / scale, size % scale);
    if part == 0 {
        return whole.to_string();
    }
    let width = scale.ilog10() as usize;
    let digits = format!("{part:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}
