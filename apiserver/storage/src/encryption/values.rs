//! Stored values: the resource of each, its seal, and those that nothing decrypts.

use crate::Key;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The key with which a value is encrypted; the default is none.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Seal(pub(crate) u64);

/// Stored values that no key decrypts, or that none would any more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UndecryptedValues {
    pub count: usize,
    /// By the order of keys.
    pub first: Option<Key>,
}

/// Group and plural of a resource.
pub(crate) type Named<'a> = (&'a str, &'a str);

/// Group and plural of the resources whose objects lie below a prefix.
#[derive(Debug, Clone, Default)]
pub struct ResourceNames(HashMap<Box<str>, (Box<str>, Box<str>)>);

impl Seal {
    /// Marks seals of plugins: their name, then the key.
    const PLUGIN: u64 = 1 << 63;
    const NAME_BITS: u64 = Self::PLUGIN - (1 << 32);

    /// The seal of a key of the configuration; zero is for what is plain.
    pub(super) fn of_key(hash: u64) -> Self {
        Self((hash & !Self::PLUGIN).max(1))
    }

    /// The seal of a key of a plugin.
    pub(super) fn of_plugin(name: &str, key: u64) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self(Self::PLUGIN | (hasher.finish() & Self::NAME_BITS) | (key & u64::from(u32::MAX)))
    }

    pub(super) fn is_of_plugin(self, name: &str) -> bool {
        self.0 >> 32 == Self::of_plugin(name, 0).0 >> 32
    }
}

impl UndecryptedValues {
    /// Undecrypted values at these keys, which are in order.
    pub(crate) fn of<'a>(keys: impl IntoIterator<Item = &'a Key>) -> Self {
        let mut keys = keys.into_iter();
        let Some(first) = keys.next() else {
            return Self::default();
        };
        Self {
            count: 1 + keys.count(),
            first: Some(first.clone()),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A sentence of them, for logs: it names a key.
    pub fn described(&self, what: &str) -> String {
        let plural = if self.count == 1 { "" } else { "s" };
        let first = self.first.as_ref().map(|key| format!(", {key} first"));
        format!(
            "{} stored value{plural} {what}{}",
            self.count,
            first.unwrap_or_default()
        )
    }
}

impl ResourceNames {
    /// The map from prefixes (`/registry/pods/`), groups and plurals.
    pub fn new(rows: impl IntoIterator<Item = (String, String, String)>) -> Self {
        let named = |(prefix, group, plural): (String, String, String)| {
            (prefix.into(), (group.into(), plural.into()))
        };
        Self(rows.into_iter().map(named).collect())
    }

    /// Group and resource of the object at a key. A key without a known prefix is of a custom resource, whose keys name both, or
    /// one of upstream's own that has no address.
    pub(super) fn of<'a>(&'a self, key: &'a Key) -> (&'a str, &'a str) {
        let text = key.as_str();
        let prefixes = text.match_indices('/').map(|(at, _)| &text[..=at]);
        if let Some((group, plural)) = prefixes.rev().find_map(|prefix| self.0.get(prefix)) {
            return (group, plural);
        }
        let mut parts = text.split('/').skip(2);
        match (parts.next().unwrap_or_default(), parts.next().unwrap_or_default()) {
            ("ranges", "serviceips") => ("", "serviceipallocations"),
            ("ranges", "servicenodeports") => ("", "servicenodeportallocations"),
            ("masterleases", _) => ("", "apiServerIPInfo"),
            (group, plural) if group.contains('.') => (group, plural),
            (plural, _) => ("", plural),
        }
    }
}

/// A resource as `schema.GroupResource` writes it.
pub(super) fn resource_text(group: &str, resource: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The number is made from a secret.
        f.write_str(if *self == Self::default() {
            "Plain"
        } else {
            "Sealed"
        })
    }
}
