//! A value that stands in a path: a key of an item, or an item of a set.

use std::cmp::Ordering;
use std::fmt;

/// A value as JSON, in upstream's order: numbers by what they are worth, then texts, booleans, lists, maps and null.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Literal(Box<str>);

impl Literal {
    /// From valid JSON.
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
}

impl Ord for Literal {
    fn cmp(&self, other: &Self) -> Ordering {
        let ranked = self.rank().cmp(&other.rank());
        let valued = || match (self.rank(), self.0.parse::<f64>(), other.0.parse::<f64>()) {
            (0, Ok(own), Ok(theirs)) => own.total_cmp(&theirs),
            _ => Ordering::Equal,
        };
        ranked.then_with(valued).then_with(|| self.0.cmp(&other.0))
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
