//! IP addresses and ranges, in the strict form that newer fields demand.

use super::{Errors, Path};
use std::net::IpAddr;

/// An address that a lenient reader understands: zeros may lead the numbers of a dotted address.
pub fn lenient_ip(text: &str) -> Option<IpAddr> {
    let plain = || {
        let parts: Vec<&str> = text.split('.').collect();
        let short = |part: &&str| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0".to_owned(),
            rest => rest.to_owned(),
        };
        let trimmed: Vec<String> = parts.iter().map(short).collect();
        trimmed.join(".").parse().ok()
    };
    text.parse().ok().or_else(plain)
}

/// Problems of an IP address.
pub fn ip_problems(text: &str) -> Vec<String> {
    match unambiguous(text) {
        Ok(address) => not_canonical(text, &address.to_string()),
        Err(problem) => vec![problem.into()],
    }
}

/// An address that every reader takes for the same.
fn unambiguous(text: &str) -> Result<IpAddr, &'static str> {
    let address = lenient_ip(text).ok_or("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")?;
    if text.parse::<IpAddr>().is_err() {
        return Err("must not have leading 0s");
    }
    if is_mapped(address) {
        return Err("must not be an IPv4-mapped IPv6 address");
    }
    Ok(address)
}

/// An address in a field from before there was a canonical form; says whether it is one.
pub fn legacy_ip(errors: &mut Errors, path: &Path<'_>, text: &str) -> bool {
    let problem = unambiguous(text).err();
    if let Some(problem) = problem {
        errors.invalid(path, text, problem);
    }
    problem.is_none()
}

/// Reports whether several addresses, or ranges, are a pair of an IPv4 and an IPv6 one.
pub fn is_pair(texts: &[&str]) -> bool {
    let family = |text: &&str| lenient_ip(text.split('/').next()?).map(|own| own.is_ipv6());
    let families: Vec<_> = texts.iter().map(family).collect();
    matches!(families[..], [Some(first), Some(second)] if first != second)
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(own) if own.to_ipv4_mapped().is_some())
}

fn not_canonical(text: &str, canonical: &str) -> Vec<String> {
    if text == canonical {
        return Vec::new();
    }
    vec![format!("must be in canonical form ({canonical:?})")]
}

/// A range of addresses: `10.0.0.0/8`.
pub fn cidr(errors: &mut Errors, path: &Path<'_>, text: &str) {
    let before = errors.len();
    let Some((address, length)) = unambiguous_range(errors, path, text) else {
        return;
    };
    if errors.len() == before {
        for problem in not_canonical(text, &format!("{address}/{length}")) {
            errors.invalid(path, text, problem);
        }
    }
}

/// An address with the length of its network: `10.9.8.7/24`.
pub fn interface_address(errors: &mut Errors, path: &Path<'_>, text: &str) {
    let Some((address, length)) = parse_range(text) else {
        let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return errors.invalid(path, text, detail);
    };
    for problem in not_canonical(text, &format!("{address}/{length}")) {
        errors.invalid(path, text, problem);
    }
}

/// A range in a field from before there was a canonical form.
pub fn legacy_cidr(errors: &mut Errors, path: &Path<'_>, text: &str) {
    unambiguous_range(errors, path, text);
}

/// A range, if it is one; what readers might read differently is reported.
fn unambiguous_range(errors: &mut Errors, path: &Path<'_>, text: &str) -> Option<(IpAddr, u8)> {
    let Some((address, length)) = parse_range(text) else {
        let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        errors.invalid(path, text, detail);
        return None;
    };
    let (written, digits) = text.split_once('/').unwrap_or_default();
    if written.parse::<IpAddr>().is_err() || (digits.len() > 1 && digits.starts_with('0')) {
        errors.invalid(path, text, "must not have leading 0s in IP or prefix length");
    }
    if is_mapped(address) {
        errors.invalid(path, text, "must not have an IPv4-mapped IPv6 address");
    }
    if !is_network(address, length) {
        errors.invalid(path, text, "must not have bits set beyond the prefix length");
    }
    Some((address, length))
}

/// A range that a lenient reader understands.
pub fn lenient_range(text: &str) -> Option<(IpAddr, u8)> {
    parse_range(text)
}

/// Reports whether a range is a part of another and not all of it; none where one of them cannot be read.
pub fn is_strict_part(text: &str, whole: &str) -> Option<bool> {
    let ((own, length), (outer, outer_length)) = (parse_range(text)?, parse_range(whole)?);
    Some(match (own, outer) {
        (IpAddr::V4(own), IpAddr::V4(outer)) => {
            let beyond = 32 - u32::from(outer_length);
            let prefix = |bits: u32| bits.checked_shr(beyond).unwrap_or(0);
            prefix(own.to_bits()) == prefix(outer.to_bits()) && length > outer_length
        }
        (IpAddr::V6(own), IpAddr::V6(outer)) => {
            let beyond = 128 - u32::from(outer_length);
            let prefix = |bits: u128| bits.checked_shr(beyond).unwrap_or(0);
            prefix(own.to_bits()) == prefix(outer.to_bits()) && length > outer_length
        }
        _ => false,
    })
}

fn parse_range(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let (address, length) = (lenient_ip(address)?, length.parse::<u8>().ok()?);
    (length <= bits(address)).then_some((address, length))
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// No bit is set behind the prefix.
fn is_network(address: IpAddr, length: u8) -> bool {
    match address {
        IpAddr::V4(own) => own.to_bits().checked_shl(length.into()).unwrap_or(0) == 0,
        IpAddr::V6(own) => own.to_bits().checked_shl(length.into()).unwrap_or(0) == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_canonical() {
        for good in ["10.0.0.1", "fe80::42:1dff:fe84:f9e2", "::1"] {
            assert!(ip_problems(good).is_empty(), "{good}");
        }
        let cases = [
            (
                "A_b",
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ),
            ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
            ("01.2.3.4", "must not have leading 0s"),
            ("FE80::1", "must be in canonical form (\"fe80::1\")"),
        ];
        for (text, problem) in cases {
            assert_eq!(ip_problems(text), [problem], "{text}");
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let mut errors = Errors::new();
        cidr(&mut errors, &Path::of("cidr"), text);
        let found: Vec<String> = errors.into_list().into_iter().map(|error| error.detail).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn ranges() {
        check("10.0.0.0/8", &[]);
        check("2001:db8::/64", &[]);
        check("0.0.0.0/0", &[]);
        check("10.0.0.1/32", &[]);
        check("10.0.0.1/8", &["must not have bits set beyond the prefix length"]);
        check(
            "10.0.0.0",
            &["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"],
        );
        check(
            "2001:DB8::/64",
            &["must be in canonical form (\"2001:db8::/64\")"],
        );
    }
}
