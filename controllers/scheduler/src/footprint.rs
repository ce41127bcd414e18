//! Sizes of what the scheduler remembers of pods after they are gone: no namespace is charged for it.

use std::hash::{Hash, Hasher};

/// Bytes that hashing the value reads: texts in full, and a length for each list. In memory it may take ten times that.
pub(crate) fn hashed_bytes(value: &impl Hash) -> usize {
    let mut counter = Counter(0);
    value.hash(&mut counter);
    counter.0
}

struct Counter(usize);

impl Hasher for Counter {
    fn finish(&self) -> u64 {
        self.0 as u64
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = self.0.saturating_add(bytes.len());
    }
}
