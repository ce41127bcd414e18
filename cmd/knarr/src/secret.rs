//! Secrets among the flags: no page, log or message shows them.

use clap::Arg;
use std::any::TypeId;
use std::fmt;

/// Text in the place of a secret, upstream's word.
pub(crate) const SHOWN: &str = "<masked>";
/// Text in the place of a URL's credentials, as Go's `URL.Redacted` has it for a password.
const CREDENTIALS_SHOWN: &str = "xxxxx";

/// Value of a flag that is a secret. A flag is marked as one by this type.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SHOWN)
    }
}

/// Reports whether the values of a flag are secrets.
pub(crate) fn is_held_by(flag: &Arg) -> bool {
    flag.get_value_parser().type_id() == TypeId::of::<Secret>()
}

/// A text whose URLs name no user and no password.
pub(crate) fn without_credentials(text: &str) -> String {
    let mut parts = text.split("://");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(['/', '?', '#', ',']).unwrap_or(part.len());
        let (authority, rest) = part.split_at(end);
        shown.push_str("://");
        match authority.rsplit_once('@') {
            Some((_, host)) => shown.extend([CREDENTIALS_SHOWN, "@", host]),
            None => shown.push_str(authority),
        }
        shown.push_str(rest);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_shown_without_credentials() {
        for (text, expected) in [
            ("plain", "plain"),
            ("user@host", "user@host"),
            ("https://h:1/a@b?c=d@e", "https://h:1/a@b?c=d@e"),
            ("https://u:p@h:1/a", "https://xxxxx@h:1/a"),
            ("https://token@h", "https://xxxxx@h"),
            ("https://u:p@w@h#f", "https://xxxxx@h#f"),
            (
                "http://a:b@[::1]:1,https://h,https://c:d@h",
                "http://xxxxx@[::1]:1,https://h,https://xxxxx@h",
            ),
            ("https://", "https://"),
        ] {
            assert_eq!(without_credentials(text), expected);
        }
    }

    #[test]
    fn secret_is_not_shown_by_debug() {
        assert_eq!(
            format!("{:?}", Some(Secret::from("s".to_owned()))),
            "Some(<masked>)"
        );
    }
}
