//! Addresses and names of machines.

use super::{Search, is_hex, pattern};
use std::net::IpAddr;
use std::sync::LazyLock;

/// Labels may have symbols (`\p{S}`), and a name of one label may end with a dash. Upstream's pattern bounds the labels
/// too, which their bytes do already.
static HOSTNAME: LazyLock<Search> = LazyLock::new(|| {
    pattern(concat!(
        r"^([a-zA-Z0-9\p{S}\p{L}]-?[a-zA-Z0-9\p{S}\p{L}]*",
        r"|([a-zA-Z0-9\p{S}\p{L}]([a-zA-Z0-9\-\p{S}\p{L}]*[a-zA-Z0-9\p{S}\p{L}])?\.)+[a-zA-Z\p{L}][a-zA-Z\p{L}]+)$",
    ))
});
/// Numbers that Go's reader of old addresses takes.
const MAX_NUMBER: u32 = 0xff_ffff;

pub(super) fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && HOSTNAME.is_match(text)
}

/// An address with a dot in it: parts may have leading zeros, and an IPv6 address may end with one.
pub(super) fn is_ipv4(text: &str) -> bool {
    text.contains('.') && is_old_address(text)
}

pub(super) fn is_ipv6(text: &str) -> bool {
    text.contains(':') && text.parse::<IpAddr>().is_ok()
}

pub(super) fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let most = if is_old_ipv4(address) { 32 } else { 128 };
    let known = most == 32 || is_old_ipv6(address);
    known && decimal(bits).is_some_and(|bits| bits <= most)
}

/// Pairs of hexadecimal digits, 6, 8 or 20, with colons, dashes or nothing between them, or dots between each two.
pub(super) fn is_mac(text: &str) -> bool {
    let separated = |by: u8, length: usize| {
        let parts: Vec<&[u8]> = text.as_bytes().split(|byte| *byte == by).collect();
        let fits = |part: &&[u8]| part.len() == length && is_hex(part);
        matches!(parts.len() * length, 12 | 16 | 40) && parts.iter().all(fits)
    };
    let plain = matches!(text.len(), 12 | 16 | 40) && is_hex(text.as_bytes());
    plain || separated(b':', 2) || separated(b'-', 2) || separated(b'.', 4)
}

fn is_old_address(text: &str) -> bool {
    match text.bytes().find(|byte| matches!(byte, b'.' | b':')) {
        Some(b'.') => is_old_ipv4(text),
        Some(_) => is_old_ipv6(text),
        None => false,
    }
}

/// Reports whether Go before 1.17 read it: with leading zeros.
fn is_old_ipv4(text: &str) -> bool {
    let mut parts = 0;
    let all = text.split('.').all(|part| {
        parts += 1;
        decimal(part).is_some_and(|part| part <= 255)
    });
    all && parts == 4
}

fn decimal(text: &str) -> Option<u32> {
    number(text, 10)
        .filter(|(_, rest)| rest.is_empty())
        .map(|(value, _)| value)
}

/// The number at the beginning of a text, and what follows it.
fn number(text: &str, radix: u32) -> Option<(u32, &str)> {
    let digits = text.chars().take_while(|own| own.is_digit(radix)).count();
    let significant = text[..digits].trim_start_matches('0');
    let value = match significant {
        "" if digits > 0 => 0,
        own => u32::from_str_radix(own, radix).ok()?,
    };
    (value < MAX_NUMBER).then_some((value, &text[digits..]))
}

/// Reports whether Go before 1.17 read it; its last four bytes may be an old IPv4 address.
fn is_old_ipv6(text: &str) -> bool {
    let (mut rest, mut bytes, mut has_gap) = (text, 0, false);
    if let Some(after) = rest.strip_prefix("::") {
        (rest, has_gap) = (after, true);
        if rest.is_empty() {
            return true;
        }
    }
    while bytes < 16 {
        let Some((_, after)) = number(rest, 16).filter(|(value, _)| *value <= 0xffff) else {
            return false;
        };
        if after.starts_with('.') {
            if !has_gap && bytes != 12 || bytes > 12 || !is_old_ipv4(rest) {
                return false;
            }
            (rest, bytes) = ("", bytes + 4);
            break;
        }
        (rest, bytes) = (after, bytes + 2);
        if rest.is_empty() {
            break;
        }
        match rest.strip_prefix(':') {
            Some(after) if !after.is_empty() => rest = after,
            _ => return false,
        }
        if let Some(after) = rest.strip_prefix(':') {
            if has_gap {
                return false;
            }
            (rest, has_gap) = (after, true);
            if rest.is_empty() {
                break;
            }
        }
    }
    rest.is_empty() && has_gap == (bytes < 16)
}
