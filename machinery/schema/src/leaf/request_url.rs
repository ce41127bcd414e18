//! URLs of requests, as Go's `url.ParseRequestURI` reads them.

use super::go_quote;
use std::net::IpAddr;

/// A URL by its parts: absolute, or a path from the root.
#[derive(Debug, Clone, Default)]
pub struct RequestUrl {
    pub scheme: String,
    pub opaque: String,
    pub user: Option<String>,
    pub host: String,
    /// As it was written.
    pub path: String,
    pub query: String,
}

impl RequestUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// Go's reason, without the text that is read.
    pub fn parse(whole: &str) -> Result<Self, String> {
        if whole.bytes().any(|own| own < 0x20 || own == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        if whole.is_empty() {
            return Err("empty url".to_owned());
        }
        let mut url = Self::default();
        if whole == "*" {
            url.path = "*".to_owned();
            return Ok(url);
        }
        let (scheme, rest) = scheme(whole)?;
        url.scheme = scheme.to_ascii_lowercase();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        url.query = query.to_owned();
        if !rest.starts_with('/') {
            if url.scheme.is_empty() {
                return Err("invalid URI for request".to_owned());
            }
            url.opaque = rest.to_owned();
            return Ok(url);
        }
        let mut path = rest;
        if let Some(authority) = rest.strip_prefix("//").filter(|_| !url.scheme.is_empty()) {
            let end = authority.find('/').unwrap_or(authority.len());
            path = &authority[end..];
            url.authority(&authority[..end])?;
        }
        unescape(path, UrlPart::Path)?;
        url.path = path.to_owned();
        Ok(url)
    }

    fn authority(&mut self, authority: &str) -> Result<(), String> {
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        self.host = parse_host(&self.scheme, host)?;
        if let Some(user) = user {
            let valid = |own: char| own.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(own);
            if !user.chars().all(valid) {
                return Err("net/url: invalid userinfo".to_owned());
            }
            unescape(user, UrlPart::Path)?;
            self.user = Some(user.to_owned());
        }
        Ok(())
    }
}

fn scheme(whole: &str) -> Result<(&str, &str), String> {
    for (at, own) in whole.bytes().enumerate() {
        match own {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&whole[..at], &whole[at + 1..])),
            _ => return Ok(("", whole)),
        }
    }
    Ok(("", whole))
}

fn parse_host(scheme: &str, host: &str) -> Result<String, String> {
    match host.rfind('[') {
        None => {}
        Some(0) => return parse_literal(host),
        Some(_) => return Err("invalid IP-literal".to_owned()),
    }
    let colon = match scheme {
        "http" | "https" => host.find(':'),
        // Some databases have a list of hosts here.
        _ => host.rfind(':'),
    };
    if let Some(at) = colon {
        check_port(&host[at..])?;
    }
    Ok(text(&unescape(host, UrlPart::Host)?))
}

/// An IPv6 address in brackets, with a zone perhaps, and a port.
fn parse_literal(host: &str) -> Result<String, String> {
    let end = host.rfind(']').ok_or("missing ']' in host")?;
    let (inner, port) = (&host[1..end], &host[end + 1..]);
    check_port(port)?;
    let zone = inner.find("%25").unwrap_or(inner.len());
    let mut own = unescape(&inner[..zone], UrlPart::Host)?;
    own.extend(unescape(&inner[zone..], UrlPart::Zone)?);
    let own = text(&own);
    let (address, zone) = own
        .split_once('%')
        .map_or((&*own, None), |(address, zone)| (address, Some(zone)));
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V6(_)) if zone != Some("") => Ok(format!("[{own}]{port}")),
        Ok(IpAddr::V4(_)) if zone.is_none() => Err("invalid IP-literal".to_owned()),
        _ => Err(format!(
            "invalid host: ParseAddr({}): unable to parse IP",
            go_quote(&own)
        )),
    }
}

/// Checks what follows a host: nothing, or a port.
///
/// # Errors
/// It is neither.
pub fn check_port(port: &str) -> Result<(), String> {
    let digits = port.strip_prefix(':');
    if port.is_empty() || digits.is_some_and(|own| own.bytes().all(|own| own.is_ascii_digit())) {
        return Ok(());
    }
    Err(format!("invalid port {} after host", go_quote(port)))
}

/// A part of a URL, which decides what may be escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlPart {
    Path,
    Host,
    /// The zone of an IPv6 address, with its `%25`.
    Zone,
}

/// The bytes that a part means.
///
/// # Errors
/// An escape is wrong, or a character is not for a host.
pub fn unescape(part: &str, of: UrlPart) -> Result<Vec<u8>, String> {
    let (mut out, mut rest) = (Vec::with_capacity(part.len()), part.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            if of != UrlPart::Path && first.is_ascii() && !is_of_host(*first) {
                let shown = go_quote(&char::from(*first).to_string());
                return Err(format!("invalid character {shown} in host name"));
            }
            out.push(*first);
            continue;
        }
        let digits = after.get(..2).and_then(|own| std::str::from_utf8(own).ok());
        let value = digits
            .filter(|own| own.bytes().all(|own| own.is_ascii_hexdigit()))
            .and_then(|own| u8::from_str_radix(own, 16).ok());
        match value {
            Some(own) if may_be_escaped(own, of) => out.push(own),
            _ => {
                let shown = String::from_utf8_lossy(&after[..after.len().min(2)]).into_owned();
                return Err(format!("invalid URL escape {}", go_quote(&format!("%{shown}"))));
            }
        }
        rest = &after[2..];
    }
    Ok(out)
}

fn may_be_escaped(byte: u8, of: UrlPart) -> bool {
    match of {
        UrlPart::Path => true,
        UrlPart::Host => byte >= 0x80 || byte == b'%',
        UrlPart::Zone => matches!(byte, b'%' | b' ') || is_of_host(byte),
    }
}

fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
