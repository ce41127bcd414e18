//! Names of stored things.

use crate::StorageError;
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The key of one object: `/registry/pods/default/web`. Begins with a slash, ends without one. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

/// All keys below a slash: `/registry/pods/`. Begins and ends with one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix(Arc<str>);

/// The longest key or prefix. Group, plural, namespace and name at their limits need about 900 bytes.
pub const MAX_KEY_BYTES: usize = 1024;

impl Key {
    /// A key in upstream's form.
    pub fn parse(text: &str) -> Result<Self, StorageError> {
        let whole = text.len() > 1 && !text.ends_with('/');
        if whole && is_path(text) {
            Ok(Self(text.into()))
        } else {
            Err(StorageError::InvalidKey(text.to_owned()))
        }
    }

    /// The whole key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part after the prefix, if the key is below it.
    pub fn below(&self, prefix: &Prefix) -> Option<&str> {
        self.0.strip_prefix(prefix.as_str())
    }
}

impl Prefix {
    /// A prefix; `/` means every key.
    pub fn parse(text: &str) -> Result<Self, StorageError> {
        let whole = text.ends_with('/');
        if whole && is_path(text) {
            Ok(Self(text.into()))
        } else {
            Err(StorageError::InvalidKey(text.to_owned()))
        }
    }

    /// The whole prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reports whether the key is below this prefix.
    pub fn contains(&self, key: &Key) -> bool {
        key.as_str().starts_with(self.as_str())
    }

    /// The first text that sorts after every key below this prefix (a slash is followed by `0`).
    pub(crate) fn end(&self) -> String {
        let mut end = self.0.to_string();
        end.pop();
        end.push('0');
        end
    }
}

fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.len() <= MAX_KEY_BYTES && !text.contains("//") && !text.contains('\0')
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_prefixes_are_paths() {
        for (text, key, prefix) in [
            ("/registry/pods/default/web", true, false),
            ("/registry/pods/", false, true),
            ("/", false, true),
            ("registry/pods", false, false),
            ("/registry//pods", false, false),
            ("", false, false),
            ("/a\0b", false, false),
        ] {
            assert_eq!(
                (Key::parse(text).is_ok(), Prefix::parse(text).is_ok()),
                (key, prefix),
                "{text:?}"
            );
        }
        assert!(Key::parse(&"/x".repeat(513)).is_err());
    }

    #[test]
    fn key_prefix_end_follows_every_key_below() {
        let prefix = Prefix::parse("/registry/pods/").unwrap();
        for below in [
            "/registry/pods/a",
            "/registry/pods/~/z",
            "/registry/pods/\u{10ffff}",
        ] {
            assert!(below < prefix.end().as_str());
        }
        assert!("/registry/pods2/a" > prefix.end().as_str());
    }
}
