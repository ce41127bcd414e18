//! URLs, read as Go reads those of requests.

use super::{Function, fail, list, text};
use crate::eval::Meter;
use crate::value::{Entries, EvalError, Evaluated, Map, Opaque, Value};
use machinery_schema::leaf::{RequestUrl, UrlPart, check_port, go_quote, unescape};
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
        "isURL" => |meter, args| {
            let own = args.first()?.as_str()?;
            Some(each_byte(own, meter).map(|()| Value::Bool(Url::parse_request(own).is_ok())))
        },
        "getScheme" => |meter, args| Some(text(of(args)?.scheme.clone(), meter)),
        "getHost" => |meter, args| Some(text(of(args)?.host.clone(), meter)),
        "getHostname" => |meter, args| Some(text(split_host(&of(args)?.host).0.to_owned(), meter)),
        "getPort" => |meter, args| Some(text(split_host(&of(args)?.host).1.to_owned(), meter)),
        "getEscapedPath" => |meter, args| {
            let own = of(args)?;
            Some(each_byte(&own.path, meter).and_then(|()| text(own.escaped_path(), meter)))
        },
        "getQuery" => |meter, args| {
            let own = of(args)?;
            Some(each_byte(&own.query, meter).and_then(|()| query(&own.query, meter)))
        },
        _ => return None,
    })
}

/// Counts a text whose bytes are read one by one, which takes more than to find its end.
fn each_byte(own: &str, meter: &mut Meter) -> Result<(), EvalError> {
    meter.check_interrupt()?;
    meter.work(own.len() as u64)
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
        let read = RequestUrl::parse(whole);
        let read = read.map_err(|problem| format!("parse {}: {problem}", go_quote(whole)))?;
        let RequestUrl {
            scheme,
            opaque,
            user,
            host,
            path,
            query,
        } = read;
        Ok(Self {
            scheme,
            opaque,
            user,
            host,
            path,
            query,
            fragment: String::new(),
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        let user = self.user.as_ref().map_or(0, String::len);
        let others = [
            &self.scheme,
            &self.opaque,
            &self.host,
            &self.path,
            &self.query,
            &self.fragment,
        ];
        others.map(String::len).iter().sum::<usize>() + user
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
        let bytes = unescape(&self.path, UrlPart::Path).unwrap_or_default();
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
fn query<'a>(query: &str, meter: &mut Meter) -> Evaluated<'a> {
    let mut found: Vec<(String, Vec<Value<'a>>)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for pair in query
        .split('&')
        .filter(|own| !own.is_empty() && !own.contains(';'))
    {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let read = |own: &str| {
            let bytes = unescape(&own.replace('+', " "), UrlPart::Path).ok()?;
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
