//! The address of a plugin: `unix:///path/of/a.sock`, or `unix:///@name` for a name without a file.

use std::path::PathBuf;

const SCHEME: &str = "unix";

/// The socket of an endpoint, for [`tokio::net::UnixStream::connect`], or upstream's words for what is wrong with it.
pub(in crate::encryption) fn socket(endpoint: &str) -> Result<PathBuf, String> {
    if endpoint.is_empty() {
        return Err("endpoint is a mandatory field for a kms".to_owned());
    }
    let invalid = |why: &str| format!("invalid endpoint for kms provider, error: parse {endpoint:?}: {why}");
    if endpoint.chars().any(|letter| letter.is_ascii_control()) {
        return Err(invalid("net/url: invalid control character in URL"));
    }
    let rest = endpoint.split_once('#').map_or(endpoint, |(before, _)| before);
    let (scheme, rest) = match rest.split_once(':') {
        Some(("", _)) => return Err(invalid("missing protocol scheme")),
        Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), rest),
        _ => (String::new(), rest),
    };
    if scheme != SCHEME {
        return Err(format!(
            "unsupported scheme {scheme:?} for KMS provider, only unix is supported"
        ));
    }
    let rest = rest.split_once('?').map_or(rest, |(before, _)| before);
    // What stands between two slashes and the next one is a host, which a socket has not.
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.find('/').map_or("", |at| &rest[at..]),
        None => rest,
    };
    let path = unescaped(path).map_err(|part| invalid(&format!("invalid URL escape {part:?}")))?;
    Ok(match path.strip_prefix("/@") {
        Some(name) => PathBuf::from(format!("\0{name}")),
        None => PathBuf::from(path),
    })
}

fn is_scheme(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && letters.all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
}

/// The path without its `%XX`, or the first of them that is none.
fn unescaped(path: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = more.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let part = || format!("%{}", String::from_utf8_lossy(&more[..more.len().min(2)]));
        bytes.push(byte.ok_or_else(part)?);
        rest = &more[2..];
    }
    String::from_utf8(bytes).map_err(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(endpoint: &str, expected: Result<&str, &str>) {
        let found = socket(endpoint);
        let found = found.as_ref().map(|path| path.to_str().unwrap());
        assert_eq!(found.map_err(String::as_str), expected, "{endpoint}");
    }

    #[test]
    fn kms_endpoint_is_a_socket() {
        check("unix:///run/kms/a.sock", Ok("/run/kms/a.sock"));
        check("UNIX:///a%20b?x=y#z", Ok("/a b"));
        check("unix:///@name", Ok("\0name"));
        check("unix:/a", Ok("/a"));
        check("unix://host/a", Ok("/a"));
        check("", Err("endpoint is a mandatory field for a kms"));
        check(
            "http://a",
            Err("unsupported scheme \"http\" for KMS provider, only unix is supported"),
        );
        check(
            "/a",
            Err("unsupported scheme \"\" for KMS provider, only unix is supported"),
        );
        check(
            "://a",
            Err("invalid endpoint for kms provider, error: parse \"://a\": missing protocol scheme"),
        );
        check(
            "unix:///a\n",
            Err(
                "invalid endpoint for kms provider, error: parse \"unix:///a\\n\": net/url: invalid control character in URL",
            ),
        );
        check(
            "unix:///%zz",
            Err(
                "invalid endpoint for kms provider, error: parse \"unix:///%zz\": invalid URL escape \"%zz\"",
            ),
        );
    }
}
