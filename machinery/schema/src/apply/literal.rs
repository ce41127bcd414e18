//! A value that stands in a path: a key of an item, or an item of a set.

use crate::json::needs_no_escape;
use crate::tree::Ref;
use std::cmp::Ordering;
use std::fmt;

/// A value as JSON, in upstream's order: numbers by what they are worth, then texts, booleans, lists, maps and null.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Literal(Box<str>);

impl Literal {
    /// A literal of valid JSON.
    pub(super) fn new(json: String) -> Self {
        Self(json.into())
    }

    pub(super) fn as_json(&self) -> &str {
        &self.0
    }

    fn rank(&self) -> u8 {
        match self.0.as_bytes().first() {
            Some(b'-' | b'0'..=b'9') => 0,
            Some(b'"') => 1,
            Some(b't' | b'f') => 2,
            Some(b'[') => 3,
            Some(b'{') => 4,
            _ => 5,
        }
    }

    /// Numbers by what they are worth.
    fn by_worth(&self, other: &Self) -> Ordering {
        if self.rank() > 0 {
            return Ordering::Equal;
        }
        match (self.0.parse::<f64>(), other.0.parse::<f64>()) {
            (Ok(own), Ok(theirs)) => own.total_cmp(&theirs),
            _ => Ordering::Equal,
        }
    }
}

impl Ord for Literal {
    fn cmp(&self, other: &Self) -> Ordering {
        let ranked = self.rank().cmp(&other.rank());
        ranked
            .then_with(|| self.by_worth(other))
            .then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for Literal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A value that is ordered as its [`Literal`]. Most are texts that stand in JSON as they are, and are not copied.
#[derive(Debug, Clone)]
pub(super) enum KeyValue<'v> {
    /// A text without quotes that needs no escapes.
    Plain(&'v str),
    Other(Literal),
}

impl<'v> KeyValue<'v> {
    pub(super) fn of(value: Ref<'v>) -> Self {
        match value.as_str() {
            Some(text) if needs_no_escape(text) => Self::Plain(text),
            _ => Self::Other(Literal::new(value.to_json())),
        }
    }

    pub(super) fn literal(self) -> Literal {
        match self {
            Self::Plain(text) => Literal::new(format!("\"{text}\"")),
            Self::Other(literal) => literal,
        }
    }
}

impl Ord for KeyValue<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            // The quote counts: it stands behind a space and before all letters.
            (Self::Plain(own), Self::Plain(theirs)) => quoted(own).cmp(quoted(theirs)),
            _ => self.clone().literal().cmp(&other.clone().literal()),
        }
    }
}

fn quoted(text: &str) -> impl Iterator<Item = u8> {
    text.bytes().chain(std::iter::once(b'"'))
}

impl PartialOrd for KeyValue<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for KeyValue<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plain(own), Self::Plain(theirs)) => own == theirs,
            _ => self.cmp(other).is_eq(),
        }
    }
}

impl Eq for KeyValue<'_> {}
