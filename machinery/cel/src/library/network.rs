//! IP addresses and networks.

use super::{Function, fail, yes};
use crate::value::{Opaque, Value};
use machinery_schema::leaf::go_quote;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "ip" => |_, args| match args.first()? {
            Value::String(own) => match parse_ip(own.as_str()) {
                Ok(own) => Some(Ok(Value::opaque(Opaque::Ip(own)))),
                Err(problem) => fail(problem),
            },
            own => Some(Ok(Value::opaque(Opaque::Ip(network(own)?.0)))),
        },
        "isIP" => |_, args| yes(read_ip(args.first()?.as_str()?).is_some()),
        "ip.isCanonical" => |_, args| {
            let own = args.first()?.as_str()?;
            match parse_ip(own) {
                Ok(address) => yes(address.to_string() == own),
                Err(problem) => fail(problem),
            }
        },
        "family" => |_, args| {
            let own = address(args.first()?)?;
            Some(Ok(Value::Int(if own.is_ipv4() { 4 } else { 6 })))
        },
        "isUnspecified" => |_, args| yes(address(args.first()?)?.is_unspecified()),
        "isLoopback" => |_, args| yes(address(args.first()?)?.is_loopback()),
        "isLinkLocalMulticast" => |_, args| yes(link_local_multicast(address(args.first()?)?)),
        "isLinkLocalUnicast" => |_, args| yes(link_local(address(args.first()?)?)),
        "isGlobalUnicast" => |_, args| yes(global(address(args.first()?)?)),
        "cidr" => |_, args| match parse_cidr(args.first()?.as_str()?) {
            Ok((own, bits)) => Some(Ok(Value::opaque(Opaque::Cidr(own, bits)))),
            Err(problem) => {
                let prefix = "network address parse error during conversion from string";
                fail(format!("{prefix}: {problem}"))
            }
        },
        "isCIDR" => |_, args| yes(read_cidr(args.first()?.as_str()?).is_some()),
        "prefixLength" => |_, args| Some(Ok(Value::Int(i64::from(network(args.first()?)?.1)))),
        "masked" => |_, args| {
            let (own, bits) = network(args.first()?)?;
            Some(Ok(Value::opaque(Opaque::Cidr(masked(own, bits), bits))))
        },
        "containsIP" => |_, args| {
            let [own, other] = args else { return None };
            let (own, bits) = network(own)?;
            let other = match other {
                Value::String(text) => match read_ip(text.as_str()) {
                    Some(own) => own,
                    None => return fail("no such overload"),
                },
                other => address(other)?,
            };
            yes(contains(own, bits, other))
        },
        "containsCIDR" => |_, args| {
            let [own, other] = args else { return None };
            let (own, bits) = network(own)?;
            let (other, other_bits) = match other {
                Value::String(text) => match parse_cidr(text.as_str()) {
                    Ok(own) => own,
                    Err(problem) => {
                        let prefix = "network address parse error during conversion from string";
                        return fail(format!("{prefix}: {problem}"));
                    }
                },
                other => network(other)?,
            };
            yes(bits <= other_bits && contains(own, bits, other))
        },
        _ => return None,
    })
}

fn address(value: &Value<'_>) -> Option<IpAddr> {
    match value {
        Value::Opaque(own) => match **own {
            Opaque::Ip(own) => Some(own),
            _ => None,
        },
        _ => None,
    }
}

fn network(value: &Value<'_>) -> Option<(IpAddr, u8)> {
    match value {
        Value::Opaque(own) => match **own {
            Opaque::Cidr(own, bits) => Some((own, bits)),
            _ => None,
        },
        _ => None,
    }
}

fn link_local_multicast(own: IpAddr) -> bool {
    match own {
        IpAddr::V4(own) => own.octets()[..3] == [224, 0, 0],
        IpAddr::V6(own) => own.segments()[0] & 0xff0f == 0xff02,
    }
}

fn link_local(own: IpAddr) -> bool {
    match own {
        IpAddr::V4(own) => own.is_link_local(),
        IpAddr::V6(own) => own.is_unicast_link_local(),
    }
}

fn global(own: IpAddr) -> bool {
    let broadcast = matches!(own, IpAddr::V4(own) if own.is_broadcast());
    !broadcast && !own.is_unspecified() && !own.is_loopback() && !own.is_multicast() && !link_local(own)
}

fn masked(own: IpAddr, bits: u8) -> IpAddr {
    match own {
        IpAddr::V4(own) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or_default();
            Ipv4Addr::from_bits(own.to_bits() & mask).into()
        }
        IpAddr::V6(own) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or_default();
            Ipv6Addr::from_bits(own.to_bits() & mask).into()
        }
    }
}

fn contains(own: IpAddr, bits: u8, other: IpAddr) -> bool {
    own.is_ipv4() == other.is_ipv4() && masked(own, bits) == masked(other, bits)
}

fn is_mapped(own: IpAddr) -> bool {
    matches!(own, IpAddr::V6(own) if own.to_ipv4_mapped().is_some())
}

/// An address without a zone, and none of IPv4 in the form of IPv6.
fn read_ip(text: &str) -> Option<IpAddr> {
    text.parse().ok().filter(|own| !is_mapped(*own))
}

fn parse_ip(text: &str) -> Result<IpAddr, String> {
    read_ip(text).ok_or_else(|| ip_problem(text))
}

/// The problem of a text that is no address.
fn ip_problem(text: &str) -> String {
    let quoted = go_quote(text);
    if let Some((address, zone)) = text.split_once('%')
        && !zone.is_empty()
        && address.parse::<Ipv6Addr>().is_ok()
    {
        return format!("IP address {quoted} with zone value is not allowed");
    }
    if text.parse::<IpAddr>().is_ok_and(is_mapped) {
        return format!("IPv4-mapped IPv6 address {quoted} is not allowed");
    }
    let problem = address_problem(text);
    format!("IP Address {quoted} parse error during conversion from string: ParseAddr({quoted}): {problem}")
}

/// The problem of an address in Go's words.
fn address_problem(text: &str) -> String {
    let first = text.find(['.', ':', '%']).map(|at| text.as_bytes()[at]);
    match first {
        None => "unable to parse IP".to_owned(),
        Some(b'%') => "missing IPv6 address".to_owned(),
        Some(b'.') => ipv4_problem(text),
        _ => ipv6_problem(text),
    }
}

fn ipv4_problem(text: &str) -> String {
    let (mut value, mut digits, mut fields) = (0u32, 0, 0);
    for (at, own) in text.char_indices() {
        match own {
            '0'..='9' => {
                if digits == 1 && value == 0 {
                    return "IPv4 field has octet with leading zero".to_owned();
                }
                value = value * 10 + own.to_digit(10).unwrap_or_default();
                digits += 1;
                if value > 255 {
                    return "IPv4 field has value >255".to_owned();
                }
            }
            '.' => {
                if digits == 0 || at + 1 == text.len() {
                    let rest = go_quote(&text[at..]);
                    return format!("IPv4 field must have at least one digit (at {rest})");
                }
                if fields == 3 {
                    return "IPv4 address too long".to_owned();
                }
                (fields, value, digits) = (fields + 1, 0, 0);
            }
            _ => return format!("unexpected character (at {})", go_quote(&text[at..])),
        }
    }
    "IPv4 address too short".to_owned()
}

fn ipv6_problem(text: &str) -> String {
    if let Some(at) = text.find(":::") {
        let rest = go_quote(&text[at + 2..]);
        return format!("each colon-separated field must have at least one digit (at {rest})");
    }
    let fields: Vec<&str> = text.split(':').collect();
    let mut at = 0;
    for field in &fields {
        let digits = field.bytes().take_while(u8::is_ascii_hexdigit).count();
        // The rest is quoted for the one field that is wrong: for each of them it would be the square of the text.
        let rest = || go_quote(&text[at..]);
        if digits > 4 {
            let rest = rest();
            return format!("each group must have 4 or less digits (at {rest})");
        }
        if digits == 0 && !field.is_empty() {
            let rest = rest();
            return format!("each colon-separated field must have at least one digit (at {rest})");
        }
        if digits < field.len() {
            return format!(
                "unexpected character, want colon (at {})",
                go_quote(&text[at + digits..])
            );
        }
        at += field.len() + 1;
    }
    if fields.len() < 8 && !text.contains("::") {
        return "address string too short".to_owned();
    }
    if text.matches("::").count() > 1 {
        let last = text.rfind("::").unwrap_or_default();
        return format!("multiple :: in address (at {})", go_quote(&text[last + 1..]));
    }
    "trailing garbage after address".to_owned()
}

/// A network whose address is not of IPv4 in the form of IPv6.
fn read_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.rsplit_once('/')?;
    let own = read_ip(address)?;
    let bits: u8 = read_bits(bits)?.parse().ok()?;
    (bits <= greatest_bits(own)).then_some((own, bits))
}

/// The digits of a prefix's length.
fn read_bits(bits: &str) -> Option<&str> {
    let digits = !bits.is_empty() && bits.bytes().all(|own| own.is_ascii_digit());
    (digits && (bits.len() == 1 || !bits.starts_with('0'))).then_some(bits)
}

fn greatest_bits(own: IpAddr) -> u8 {
    if own.is_ipv4() { 32 } else { 128 }
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), String> {
    read_cidr(text).ok_or_else(|| cidr_problem(text))
}

/// The problem of a text that is no network.
fn cidr_problem(text: &str) -> String {
    let quoted = go_quote(text);
    let wrong = |problem: &str| {
        format!(
            "network address parse error during conversion from string: netip.ParsePrefix({quoted}): {problem}"
        )
    };
    let Some((address, bits)) = text.rsplit_once('/') else {
        return wrong("no '/'");
    };
    let Ok(own) = address.parse::<IpAddr>() else {
        let quoted = go_quote(address);
        return wrong(&format!("ParseAddr({quoted}): {}", address_problem(address)));
    };
    let Some(digits) = read_bits(bits) else {
        return wrong(&format!("bad bits after slash: {}", go_quote(bits)));
    };
    if digits.parse::<u8>().is_ok_and(|bits| bits <= greatest_bits(own)) {
        return format!("IPv4-mapped IPv6 address {quoted} is not allowed");
    }
    wrong("prefix length out of range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_long_text_take_no_square_of_it() {
        // A message for each of its fields would take the day.
        let long = "1:".repeat(400_000);
        let network = format!("{long}/1");
        assert_eq!((read_ip(&long), read_cidr(&network)), (None, None));
        for problem in [parse_ip(&long).map(|_| ()), parse_cidr(&network).map(|_| ())] {
            let problem = problem.unwrap_err();
            assert!(
                problem.ends_with("trailing garbage after address"),
                "{}",
                &problem[..100]
            );
        }
    }
}
