//! The string formats that CRD schemas may name; others are ignored.
//!
//! Upstream: `kube-openapi/pkg/validation/strfmt`, whose answers for some hundred texts of each format are in
//! `testdata/formats.jsonl`.

mod dates;
mod mail;
mod network;
mod numbers;
#[cfg(test)]
mod tests;

use super::pattern::Search;
use crate::leaf::RequestUrl;
use std::borrow::Cow;

const KNOWN: [&str; 26] = [
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
    "datetime",
    "duration",
    "k8sshortname",
    "k8slongname",
];

/// The format of values of a type; empty where it is none that is checked.
pub(super) fn of_type<'f>(ty: &str, format: &'f str) -> &'f str {
    let known = match ty {
        "" | "string" => KNOWN.contains(&&*normalised(format)),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    };
    if known { format } else { "" }
}

/// Names of formats are compared without their dashes.
fn normalised(format: &str) -> Cow<'_, str> {
    match format.contains('-') {
        true => format.replace('-', "").into(),
        false => format.into(),
    }
}

/// Reports whether a text is of a format; every text is of one that is not known.
pub fn is_valid(format: &str, text: &str) -> bool {
    match &*normalised(format) {
        "datetime" => dates::is_date_time(text),
        "date" => dates::is_date(text),
        "duration" => dates::is_duration(text),
        "byte" => is_base64(text),
        "ipv4" => network::is_ipv4(text),
        "ipv6" => network::is_ipv6(text),
        "cidr" => network::is_cidr(text),
        "mac" => network::is_mac(text),
        "hostname" => network::is_hostname(text),
        "uuid" => is_uuid(text, None, false),
        "uuid3" => is_uuid(text, Some(b'3'), false),
        "uuid4" => is_uuid(text, Some(b'4'), true),
        "uuid5" => is_uuid(text, Some(b'5'), true),
        "uri" => RequestUrl::parse(text).is_ok(),
        "email" => mail::is_address(text),
        "isbn" => numbers::is_isbn10(text) || numbers::is_isbn13(text),
        "isbn10" => numbers::is_isbn10(text),
        "isbn13" => numbers::is_isbn13(text),
        "creditcard" => numbers::is_credit_card(text),
        "ssn" => numbers::is_social_security(text),
        "rgbcolor" => numbers::is_rgb_color(text),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && is_hex(digits.as_bytes())
        }
        "bsonobjectid" => text.len() == 24 && is_hex(text.as_bytes()),
        "k8sshortname" => text.len() <= 63 && is_label(text),
        "k8slongname" => text.len() <= 253 && text.split('.').all(is_label),
        _ => true,
    }
}

/// A pattern of upstream's, compiled at its first use.
fn pattern(text: &'static str) -> Search {
    Search::new(text).expect("the pattern is one of Go's")
}

fn is_hex(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_hexdigit)
}

/// Base64 with padding, and of one group at least; bits beyond the last byte are not looked at.
fn is_base64(text: &str) -> bool {
    let body = text
        .strip_suffix('=')
        .map_or(text, |own| own.strip_suffix('=').unwrap_or(own));
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !text.is_empty() && text.len().is_multiple_of(4) && body.bytes().all(legal)
}

/// Sixteen bytes in hexadecimal digits, with a dash or none after the fourth, sixth, eighth and tenth.
fn is_uuid(text: &str, version: Option<u8>, has_variant: bool) -> bool {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let mut rest = text.as_bytes();
    for (at, length) in GROUPS.into_iter().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(length) else {
            return false;
        };
        rest = after;
        let fits = match at {
            2 => version.is_none_or(|version| group[0] == version),
            3 => !has_variant || matches!(group[0], b'8' | b'9' | b'a' | b'b' | b'A' | b'B'),
            _ => true,
        };
        if !fits || !is_hex(group) {
            return false;
        }
    }
    rest.is_empty()
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}
