//! URLs, read as Go reads those of requests.

use super::{Function, fail, list, text, yes};
use crate::value::{Entries, Evaluated, Map, Opaque, Value};
use machinery_schema::leaf::go_quote;
use std::fmt;

/// A URL.
#[derive(Debug, Clone, Default)]
pub struct Url {
    scheme: String,
    opaque: String,
    user: Option<String>,
    host: String,
    /// As it was written.
    path: String,
    query: String,
    fragment: String,
}

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "url" => |_, args| match Url::parse_request(args.first()?.as_str()?) {
            Ok(mut own) => {
                own.split_fragment();
                Some(Ok(Value::opaque(Opaque::Url(own))))
            }
            Err(problem) => fail(format!(
                "URL parse error during conversion from string: {problem}"
            )),
        },
        "isURL" => |_, args| yes(Url::parse_request(args.first()?.as_str()?).is_ok()),
        "getScheme" => |meter, args| Some(text(of(args)?.scheme.clone(), meter)),
        "getHost" => |meter, args| Some(text(of(args)?.host.clone(), meter)),
        "getHostname" => |meter, args| Some(text(split_host(&of(args)?.host).0.to_owned(), meter)),
        "getPort" => |meter, args| Some(text(split_host(&of(args)?.host).1.to_owned(), meter)),
        "getEscapedPath" => |meter, args| Some(text(of(args)?.escaped_path(), meter)),
        "getQuery" => |meter, args| Some(query(&of(args)?.query, meter)),
        _ => return None,
    })
}

fn of<'v>(args: &'v [Value<'_>]) -> Option<&'v Url> {
    match args {
        [Value::Opaque(own)] => match &**own {
            Opaque::Url(own) => Some(own),
            _ => None,
        },
        _ => None,
    }
}

impl Url {
    /// Reads the URL of a request: absolute, or a path from the root.
    pub(crate) fn parse_request(whole: &str) -> Result<Self, String> {
        Self::read(whole).map_err(|problem| format!("parse {}: {problem}", go_quote(whole)))
    }

    fn read(whole: &str) -> Result<Self, String> {
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
        unescape(path, false)?;
        url.path = path.to_owned();
        Ok(url)
    }

    fn authority(&mut self, authority: &str) -> Result<(), String> {
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        self.host = parse_host(host)?;
        if let Some(user) = user {
            let valid = |own: char| own.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(own);
            if !user.chars().all(valid) {
                return Err("net/url: invalid userinfo".to_owned());
            }
            unescape(user, false)?;
            self.user = Some(user.to_owned());
        }
        Ok(())
    }

    /// Takes the fragment from where a request's URL has it: the last part.
    fn split_fragment(&mut self) {
        let mut fragment = None;
        for part in [&mut self.opaque, &mut self.path, &mut self.query] {
            if fragment.is_some() {
                // What was behind the fragment is part of it.
                part.clear();
            } else if let Some(at) = part.find('#') {
                fragment = Some(part.split_off(at)[1..].to_owned());
            }
        }
        self.fragment = fragment.unwrap_or_default();
    }

    /// The path with what needs it escaped.
    fn escaped_path(&self) -> String {
        let plain = |own: u8| own.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]/%".contains(&own);
        if self.path.bytes().all(plain) {
            return self.path.clone();
        }
        let bytes = unescape(&self.path, false).unwrap_or_default();
        escape(&bytes)
    }
}

/// Escapes a path as Go does by default.
fn escape(path: &[u8]) -> String {
    use fmt::Write as _;
    let mut out = String::new();
    for own in path {
        if own.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(own) {
            out.push(char::from(*own));
        } else {
            let _ = write!(out, "%{own:02X}");
        }
    }
    out
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scheme.is_empty() {
            write!(f, "{}:", self.scheme)?;
        }
        if self.opaque.is_empty() {
            if !self.scheme.is_empty() || !self.host.is_empty() || self.user.is_some() {
                f.write_str("//")?;
                if let Some(user) = &self.user {
                    write!(f, "{user}@")?;
                }
                f.write_str(&self.host)?;
            }
            f.write_str(&self.escaped_path())?;
        } else {
            f.write_str(&self.opaque)?;
        }
        if !self.query.is_empty() {
            write!(f, "?{}", self.query)?;
        }
        if !self.fragment.is_empty() {
            write!(f, "#{}", self.fragment)?;
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

fn parse_host(host: &str) -> Result<String, String> {
    if host.starts_with('[') {
        let end = host.rfind(']').ok_or("missing ']' in host")?;
        check_port(&host[end + 1..])?;
        let inner = host[1..end].split('%').next().unwrap_or_default();
        if inner.parse::<std::net::Ipv6Addr>().is_err() {
            let quoted = go_quote(&host[..=end]);
            return Err(format!("invalid host: {quoted}"));
        }
    } else if let Some(at) = host.rfind(':') {
        check_port(&host[at..])?;
    }
    let bytes = unescape(host, true)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn check_port(port: &str) -> Result<(), String> {
    let valid = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|digits| digits.bytes().all(|own| own.is_ascii_digit()));
    if valid {
        return Ok(());
    }
    Err(format!("invalid port {} after host", go_quote(port)))
}

/// The bytes that a part means.
fn unescape(part: &str, host: bool) -> Result<Vec<u8>, String> {
    let (mut out, mut rest) = (Vec::with_capacity(part.len()), part.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            if host
                && *first < 0x80
                && !first.is_ascii_alphanumeric()
                && !b"-_.~!$&'()*+,;=:[]<>\"".contains(first)
            {
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
            Some(own) if !host || own >= 0x80 => out.push(own),
            _ => {
                let shown = String::from_utf8_lossy(&after[..after.len().min(2)]).into_owned();
                return Err(format!("invalid URL escape {}", go_quote(&format!("%{shown}"))));
            }
        }
        rest = &after[2..];
    }
    Ok(out)
}

/// Host and port.
fn split_host(host: &str) -> (&str, &str) {
    let (name, port) = match host.rfind(':') {
        Some(at) if check_port(&host[at..]).is_ok() => (&host[..at], &host[at + 1..]),
        _ => (host, ""),
    };
    let inner = name.strip_prefix('[').and_then(|own| own.strip_suffix(']'));
    (inner.unwrap_or(name), port)
}

/// The parameters of a query, each with its values; what cannot be read is left out.
fn query<'a>(query: &str, meter: &mut crate::eval::Meter) -> Evaluated<'a> {
    let mut found: Vec<(String, Vec<Value<'a>>)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for pair in query
        .split('&')
        .filter(|own| !own.is_empty() && !own.contains(';'))
    {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let read = |own: &str| {
            let bytes = unescape(&own.replace('+', " "), false).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let (Some(name), Some(value)) = (read(name), read(value)) else {
            continue;
        };
        let value = text(value, meter)?;
        let at = *places.entry(name.clone()).or_insert_with(|| {
            found.push((name, Vec::new()));
            found.len() - 1
        });
        found[at].1.push(value);
    }
    let mut entries = Entries::default();
    for (name, values) in found {
        let values = list(values, meter)?;
        entries.set(text(name, meter)?, values)?;
    }
    Ok(Value::Map(Map::new(entries)))
}
