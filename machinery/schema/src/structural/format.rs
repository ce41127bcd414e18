//! The string formats that CRD schemas may name; others are ignored.

use crate::leaf::{parse_duration, parse_rfc3339};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::net::{Ipv4Addr, Ipv6Addr};

const KNOWN: [&str; 27] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "date-time",
    "k8s-short-name",
    "k8s-long-name",
];

/// The format is checked at all.
pub(super) fn is_known(format: &str) -> bool {
    KNOWN.contains(&format)
}

/// A text is of a format; what is not checked is.
pub fn is_valid(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => parse_rfc3339(text).is_some(),
        "date" => text.len() == 10 && parse_rfc3339(&format!("{text}T00:00:00Z")).is_some(),
        "duration" => parse_duration(text).is_ok() || long_duration(text),
        "byte" => STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "mac" => mac(text),
        "uuid" => uuid(text, None),
        "uuid3" => uuid(text, Some('3')),
        "uuid4" => uuid(text, Some('4')),
        "uuid5" => uuid(text, Some('5')),
        "uri" => uri(text),
        "email" => email(text),
        "hostname" => hostname(text),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        }
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "k8s-short-name" => short_name(text),
        "k8s-long-name" => text.len() <= 253 && text.split('.').all(|part| !part.is_empty() && label(part)),
        _ => true,
    }
}

/// `22 ns`, `3 days`: the form with words.
fn long_duration(text: &str) -> bool {
    const UNITS: [&str; 15] = [
        "ns", "us", "ms", "s", "m", "h", "d", "w", "second", "minute", "hour", "day", "week", "milli",
        "micro",
    ];
    let Some((number, unit)) = text.trim().split_once(' ') else {
        return false;
    };
    let unit = unit.trim();
    let singular = if unit.len() > 2 {
        unit.trim_end_matches('s')
    } else {
        unit
    };
    number.parse::<u32>().is_ok() && UNITS.contains(&singular)
}

fn cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let Ok(bits) = bits.parse::<u8>() else {
        return false;
    };
    (address.parse::<Ipv4Addr>().is_ok() && bits <= 32)
        || (address.parse::<Ipv6Addr>().is_ok() && bits <= 128)
}

fn mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    let hex = |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    matches!(parts.len(), 6 | 8 | 20) && parts.iter().all(hex)
}

fn uuid(text: &str, version: Option<char>) -> bool {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let version_fits = version.is_none_or(|version| digits.chars().nth(12) == Some(version));
    digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) && version_fits
}

/// As Go's `url.ParseRequestURI`: an absolute URI or an absolute path.
fn uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let scheme_fits = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    scheme_fits && !rest.is_empty()
}

fn email(text: &str) -> bool {
    let Some((local, host)) = text.rsplit_once('@') else {
        return false;
    };
    !local.is_empty() && !host.is_empty() && !text.contains(char::is_whitespace)
}

fn hostname(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part.len() <= 63
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.chars().all(|c| c.is_alphanumeric() || c == '-')
    };
    text.len() <= 255 && text.trim_end_matches('.').split('.').all(part)
}

fn short_name(text: &str) -> bool {
    text.len() <= 63 && label(text)
}

fn label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}
