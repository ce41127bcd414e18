//! The ports of every node that services may have.

use std::fmt;

/// The node ports there are (`--service-node-port-range`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePorts {
    pub(crate) first: u16,
    pub(crate) last: u16,
}

impl Default for NodePorts {
    /// Upstream's.
    fn default() -> Self {
        Self::new(30_000, 32_767)
    }
}

impl fmt::Display for NodePorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl NodePorts {
    /// A range with both ends.
    pub fn new(first: u16, last: u16) -> Self {
        Self {
            first,
            last: last.max(first),
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-')?;
        Some(Self::new(first.parse().ok()?, last.parse().ok()?))
    }

    /// Reports whether a port is in the range.
    pub fn contains(self, port: i64) -> bool {
        (i64::from(self.first)..=i64::from(self.last)).contains(&port)
    }

    pub(crate) fn all(self) -> impl DoubleEndedIterator<Item = i64> {
        i64::from(self.first)..=i64::from(self.last)
    }

    pub(crate) fn bitmap_bytes(self) -> usize {
        usize::from(self.last - self.first) / 8 + 1
    }
}
