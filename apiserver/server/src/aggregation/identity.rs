//! The user of a request, in the headers by which an extension knows her (upstream's `SetAuthProxyHeaders`).

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use machinery_meta::UserInfo;
use std::fmt::Write;

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA: &str = "x-remote-extra-";
/// Headers of clients that end here: those that a front proxy sets, credentials, and users that they act as.
const ENDING: [&str; 2] = ["x-remote-", "impersonate-"];

/// The user cannot be named in headers: a name has characters that no header may have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("net/http: invalid header field value for {0:?}")]
pub(super) struct UnnamedUser(String);

/// Takes whatever a client says of users out of a request, and names its user.
///
/// # Errors
/// See [`UnnamedUser`]. A request must not go on without a group or with another name.
pub(super) fn set_user(headers: &mut HeaderMap, user: &UserInfo) -> Result<(), UnnamedUser> {
    let ends = |name: &&HeaderName| ENDING.iter().any(|start| name.as_str().starts_with(start));
    let ending: Vec<HeaderName> = headers.keys().filter(ends).cloned().collect();
    for name in ending {
        headers.remove(name);
    }
    headers.remove(AUTHORIZATION);
    let value = |name: &HeaderName, text: &str| {
        HeaderValue::from_bytes(text.as_bytes()).map_err(|_| UnnamedUser(name.to_string()))
    };
    headers.insert(USER, value(&USER, &user.name)?);
    if !user.uid.is_empty() {
        headers.insert(UID, value(&UID, &user.uid)?);
    }
    for group in &user.groups {
        headers.append(GROUP, value(&GROUP, group)?);
    }
    for (key, values) in &user.extra {
        let name = format!("{EXTRA}{}", escaped(key));
        let name: HeaderName = name.parse().map_err(|_| UnnamedUser(name))?;
        for text in values {
            headers.append(&name, value(&name, text)?);
        }
    }
    Ok(())
}

/// A key of extra information as part of a header's name; what reads it makes capitals small and unescapes.
fn escaped(key: &str) -> String {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    let mut escaped = String::with_capacity(key.len());
    for byte in key.bytes() {
        match is_legal(byte) {
            true => escaped.push(char::from(byte)),
            false => drop(write!(escaped, "%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn extension_reads_the_user_and_nothing_that_the_client_says() {
        let mut own = headers(&[
            ("x-remote-user", "root"),
            ("x-remote-uid", "0"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-scopes", "all"),
            ("x-remote-other", "of no extension"),
            ("impersonate-user", "root"),
            ("authorization", "Bearer secret"),
            ("accept", "application/json"),
        ]);
        let mut user = UserInfo::named("jane", ["a", "b"]);
        user.extra
            .insert("Example.com/a%b".to_owned(), vec!["1".to_owned(), "2".to_owned()]);
        set_user(&mut own, &user).unwrap();
        let mut found: Vec<String> = own
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        found.sort();
        assert_eq!(
            found,
            [
                "accept: application/json",
                "x-remote-extra-example.com%2fa%25b: 1",
                "x-remote-extra-example.com%2fa%25b: 2",
                "x-remote-group: a",
                "x-remote-group: b",
                "x-remote-user: jane",
            ]
        );
    }

    #[test]
    fn extension_is_sent_no_request_of_a_user_without_a_header() {
        let lines = UserInfo::named("jane\r\nx-remote-group: system:masters", ["a"]);
        assert!(set_user(&mut HeaderMap::new(), &lines).is_err());
        let group = UserInfo::named("jane", ["a\n"]);
        assert!(set_user(&mut HeaderMap::new(), &group).is_err());
    }
}
