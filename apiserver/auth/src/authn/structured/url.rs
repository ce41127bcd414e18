//! URLs as Go takes them apart, as far as the rules of issuers ask.

/// Parts of a URL that rules look at.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    pub(super) scheme: &'a str,
    pub(super) has_user: bool,
    pub(super) query: &'a str,
    pub(super) fragment: &'a str,
}

/// Takes a URL apart.
///
/// # Errors
/// The text of Go's `url.Parse`.
pub(super) fn parse(text: &str) -> Result<Parts<'_>, String> {
    let failed = |why: &str| Err(format!("parse {text:?}: {why}"));
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return failed("net/url: invalid control character in URL");
    }
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let is_scheme = |own: &str| {
        own.starts_with(|first: char| first.is_ascii_alphabetic())
            && own
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let (scheme, rest) = match rest.split_once(':') {
        Some(("", _)) => return failed("missing protocol scheme"),
        Some((scheme, rest)) if is_scheme(scheme) => (scheme, rest),
        Some((first, _)) if !first.contains('/') => {
            return failed("first path segment in URL cannot contain colon");
        }
        _ => ("", rest),
    };
    let authority = rest.strip_prefix("//").unwrap_or_default();
    let authority = authority.split('/').next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if host.contains([' ', '<', '>', '"']) {
        return failed("invalid character in host name");
    }
    let behind_host = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    if let Some((_, port)) = behind_host.split_once(':')
        && !port.bytes().all(|byte| byte.is_ascii_digit())
    {
        return failed(&format!("invalid port {:?} after host", format!(":{port}")));
    }
    Ok(Parts {
        scheme,
        has_user: authority.contains('@'),
        query,
        fragment,
    })
}
