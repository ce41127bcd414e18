//! Whence a request came, as its event says: the addresses and the agent, both by upstream's rules and bounded.

use super::form::cut;
use http::HeaderMap;
use http::header::USER_AGENT;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Forwarded addresses beyond these are left out; the last address is always the peer's.
const MAX_FORWARDED: usize = 32;

/// Addresses that `X-Forwarded-For` and `X-Real-Ip` name, and that of the peer, without repeats at the ends. Values that
/// are no addresses are left out.
pub(super) fn source_addresses(headers: &HeaderMap, peer: Option<SocketAddr>) -> Vec<IpAddr> {
    let text = |name: &str| {
        headers
            .get(name)
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
    };
    let forwarded = text("x-forwarded-for").unwrap_or_default();
    let mut sources: Vec<IpAddr> = forwarded
        .split(',')
        .filter_map(|part| parse(part.trim()))
        .take(MAX_FORWARDED)
        .collect();
    let real = text("x-real-ip").and_then(|text| parse(&text));
    sources.extend(real.filter(|real| !sources.contains(real)));
    let peer = peer.map(|peer| peer.ip().to_canonical());
    sources.extend(peer.filter(|peer| sources.last() != Some(peer)));
    sources
}

/// An address as upstream's older parser takes it: leading zeros of IPv4 are no octal, and IPv4 in IPv6 is IPv4.
fn parse(text: &str) -> Option<IpAddr> {
    let strict = text.parse::<IpAddr>().ok();
    strict
        .or_else(|| parse_zeros(text).map(IpAddr::V4))
        .map(|address| address.to_canonical())
}

fn parse_zeros(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let digits = parts.next()?;
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let significant = digits.trim_start_matches('0');
        *octet = if significant.is_empty() {
            0
        } else {
            significant.parse().ok()?
        };
    }
    parts.next().is_none().then(|| octets.into())
}

/// The `User-Agent`, cut where it is long.
pub(super) fn user_agent(headers: &HeaderMap) -> String {
    let agent = headers
        .get(USER_AGENT)
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    cut(&agent.unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(forwarded: &str, real: &str, expected: &[&str]) {
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-forwarded-for", forwarded), ("x-real-ip", real)] {
            if !value.is_empty() {
                headers.insert(name, value.parse().unwrap());
            }
        }
        let peer = "127.0.0.1:80".parse().ok();
        let found: Vec<String> = source_addresses(&headers, peer)
            .iter()
            .map(IpAddr::to_string)
            .collect();
        assert_eq!(found, expected, "{forwarded}; {real}");
    }

    #[test]
    fn audit_source_addresses_are_upstreams() {
        check("", "", &["127.0.0.1"]);
        check(
            "1.2.3.4, 5.6.7.8",
            "9.9.9.9",
            &["1.2.3.4", "5.6.7.8", "9.9.9.9", "127.0.0.1"],
        );
        check("1.2.3.4", "1.2.3.4", &["1.2.3.4", "127.0.0.1"]);
        check(
            "unknown,010.1.1.1, ::ffff:1.2.3.4",
            "",
            &["10.1.1.1", "1.2.3.4", "127.0.0.1"],
        );
        check("1.2.3.4, 127.0.0.1", "", &["1.2.3.4", "127.0.0.1"]);
        check("127.0.0.1, fe80::1%eth0, 1.2.3, 1.2.3.256", "x", &["127.0.0.1"]);
        check("", "fe80::1", &["fe80::1", "127.0.0.1"]);
    }

    #[test]
    fn audit_source_addresses_are_bounded() {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", vec!["::1"; 10_000].join(",").parse().unwrap());
        let found = source_addresses(&headers, "10.0.0.1:80".parse().ok());
        assert_eq!(found.len(), MAX_FORWARDED + 1);
        assert_eq!(found.last(), Some(&IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))));
    }

    #[test]
    fn audit_user_agent_is_cut() {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, "x".repeat(1_100).parse().unwrap());
        assert_eq!(user_agent(&headers), "x".repeat(1_024) + "...TRUNCATED");
    }
}
