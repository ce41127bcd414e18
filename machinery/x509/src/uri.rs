//! URIs of alternative names, as far as Go's `url.Parse` looks at them.

use std::net::Ipv6Addr;

/// The host of a URI with its port, and nothing where it has none; `None` where Go reads no URI.
pub(crate) fn host(uri: &str) -> Option<String> {
    let (uri, fragment) = uri.split_once('#').unwrap_or((uri, ""));
    if uri.bytes().any(|byte| byte.is_ascii_control()) || !is_escaped(fragment) {
        return None;
    }
    let (scheme, rest) = scheme(uri)?;
    let rest = rest.split('?').next().unwrap_or_default();
    if !rest.starts_with('/') {
        let first = rest.split('/').next().unwrap_or_default();
        // Behind a scheme anything may stand. Without one no colon stands in the first segment.
        let is_path = scheme.is_none() && !first.contains(':') && is_escaped(rest);
        return (scheme.is_some() || is_path).then(String::new);
    }
    let authority = rest
        .strip_prefix("//")
        .filter(|own| scheme.is_some() || !own.starts_with('/'));
    let Some(authority) = authority else {
        return is_escaped(rest).then(String::new);
    };
    let (authority, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_user = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !is_escaped(path) || !user.bytes().all(is_user) || !is_escaped(user) {
        return None;
    }
    host_and_port(scheme.unwrap_or_default(), host)
}

/// The scheme, where there is one, and the rest.
fn scheme(uri: &str) -> Option<(Option<&str>, &str)> {
    let is_of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let end = uri
        .bytes()
        .position(|byte| !is_of_scheme(byte))
        .unwrap_or(uri.len());
    match uri[end..].strip_prefix(':') {
        Some(_) if end == 0 => None,
        Some(rest) if uri.as_bytes()[0].is_ascii_alphabetic() => Some((Some(&uri[..end]), rest)),
        _ => Some((None, uri)),
    }
}

fn host_and_port(scheme: &str, host: &str) -> Option<String> {
    match host.rfind('[') {
        Some(0) => {
            let (own, port) = host[1..].rsplit_once(']')?;
            let (address, zone) = own.split_at(own.find("%25").unwrap_or(own.len()));
            let (address, zone) = (unescaped(address, false)?, unescaped(zone, true)?);
            let is_zone = zone.is_empty() || zone.len() > 1;
            let is_address = address.parse::<Ipv6Addr>().is_ok() && is_zone;
            (is_address && is_port(port)).then(|| format!("[{address}{zone}]{port}"))
        }
        Some(_) => None,
        None => {
            let is_web = ["http", "https"]
                .iter()
                .any(|own| scheme.eq_ignore_ascii_case(own));
            let colon = if is_web { host.find(':') } else { host.rfind(':') };
            let has_port = colon.is_none_or(|at| is_port(&host[at..]));
            has_port.then(|| unescaped(host, false)).flatten()
        }
    }
}

fn is_port(text: &str) -> bool {
    let digits = text.strip_prefix(':');
    text.is_empty() || digits.is_some_and(|own| own.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Reports whether two hexadecimal digits stand behind each percent sign.
fn is_escaped(text: &str) -> bool {
    let mut parts = text.split('%');
    parts.next();
    parts.all(|part| {
        part.get(..2)
            .is_some_and(|own| own.bytes().all(|byte| byte.is_ascii_hexdigit()))
    })
}

/// A host without its escapes: those of a percent sign, and in the zone of an address of characters that may stand there. Others
/// stand for bytes that no host has.
fn unescaped(host: &str, in_zone: bool) -> Option<String> {
    let may_stand = |byte: u8| byte.is_ascii_alphanumeric() || b"!\"$&'()*+,-.:;<=>[]_~".contains(&byte);
    let mut parts = host.split('%');
    let mut own = parts.next()?.to_owned();
    for part in parts {
        let byte = u8::from_str_radix(part.get(..2)?, 16).ok()?;
        if byte != b'%' && !(in_zone && may_stand(byte)) {
            return None;
        }
        own.push(char::from(byte));
        own.push_str(&part[2..]);
    }
    let is_host = own.bytes().all(|byte| byte == b'%' || may_stand(byte));
    is_host.then_some(own)
}

/// The domain of a host with its port, to be compared with constraints; `None` where it has none, or is an address.
pub(crate) fn domain(host: &str) -> Option<&str> {
    let own = match host.rsplit_once(':') {
        _ if host.starts_with('[') || host.is_empty() => return None,
        Some((own, _)) => Some(own).filter(|own| !own.contains(':'))?,
        None => host,
    };
    let is_address = own.parse::<std::net::IpAddr>().is_ok();
    (!is_address && !own.contains(['[', ']'])).then_some(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each answer is that of Go's `url.Parse`.
    #[test]
    fn uris_are_read_as_in_go() {
        for (uri, expected) in [
            ("spiffe://example.com/ns/a", Some("example.com")),
            ("https://user:p@ss@example.com:443?x", Some("example.com:443")),
            ("//example.com/x", Some("example.com")),
            ("///x", Some("")),
            ("https:///x", Some("")),
            ("urn:a://example.com", Some("")),
            ("urn:x", Some("")),
            ("x", Some("")),
            ("*", Some("")),
            ("", Some("")),
            ("a/b:c", Some("")),
            ("https://[::1]:443/", Some("[::1]:443")),
            ("https://[fe80::1%25en%30]/", Some("[fe80::1%en0]")),
            ("https://192.0.2.1/", Some("192.0.2.1")),
            ("https://:443/", Some(":443")),
            ("https://example.com:", Some("example.com:")),
            ("x://a:b:1/", Some("a:b:1")),
            ("x://a%25b/", Some("a%b")),
            ("https://x/?%zz", Some("x")),
            ("http://a b/%zz", None),
            ("http://a b/", None),
            ("http://x/%zz", None),
            ("http://x/#%z", None),
            ("http://x:y/", None),
            ("http://a:b:1/", None),
            ("http://a%41/", None),
            ("http://a{/", None),
            ("http://[::1/", None),
            ("http://[1.2.3.4]/", None),
            ("http://x[::1]/", None),
            ("http://a<>b@x/", None),
            ("http://x\u{7f}/", None),
            (":x", None),
            ("a b:c", None),
            ("1a:b", None),
        ] {
            assert_eq!(host(uri).as_deref(), expected, "{uri}");
        }
    }

    /// Each answer is that of Go's `parseURIs`.
    #[test]
    fn domains_of_hosts_are_compared_without_their_port() {
        for (host, expected) in [
            ("example.com", Some("example.com")),
            ("example.com:443", Some("example.com")),
            ("example.com:", Some("example.com")),
            (":443", Some("")),
            ("", None),
            ("a:b:1", None),
            ("192.0.2.1", None),
            ("192.0.2.1:443", None),
            ("[::1]", None),
            ("[::1]:443", None),
        ] {
            assert_eq!(domain(host), expected, "{host}");
        }
    }
}
