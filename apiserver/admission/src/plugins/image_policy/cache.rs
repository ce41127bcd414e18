//! Answers of the backend that are remembered, by the digest of the question.

use super::Status;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::time::Duration;

/// Answers in memory at most; upstream's.
pub(super) const MAX_ANSWERS: usize = 1_024;
/// Bytes of an answer's texts beyond which it is not remembered.
pub(super) const MAX_ANSWER_BYTES: usize = 16 << 10;

pub(super) type Digest = [u8; 32];

pub(super) fn digest_of(question: &str) -> Digest {
    Sha256::digest(question.as_bytes()).into()
}

#[derive(Debug)]
struct Entry {
    status: Status,
    until: Duration,
    /// The number of its last use.
    used: u64,
}

/// The least recently used answer goes first.
#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: HashMap<Digest, Entry>,
    uses: u64,
}

impl Cache {
    pub(super) fn get(&mut self, digest: &Digest, now: Duration) -> Option<Status> {
        self.uses += 1;
        let entry = self.entries.get_mut(digest).filter(|own| own.until > now)?;
        entry.used = self.uses;
        Some(entry.status.clone())
    }

    /// Remembers an answer for a time.
    pub(super) fn put(&mut self, digest: Digest, status: &Status, ttl: Duration, now: Duration) {
        if ttl.is_zero() || status.bytes() > MAX_ANSWER_BYTES {
            return;
        }
        if self.entries.len() >= MAX_ANSWERS {
            self.make_room(now);
        }
        self.uses += 1;
        let entry = Entry {
            status: status.clone(),
            until: now.saturating_add(ttl),
            used: self.uses,
        };
        self.entries.insert(digest, entry);
    }

    fn make_room(&mut self, now: Duration) {
        self.entries.retain(|_, own| own.until > now);
        if self.entries.len() < MAX_ANSWERS {
            return;
        }
        let oldest = self.entries.iter().min_by_key(|(_, own)| own.used);
        if let Some(oldest) = oldest.map(|(digest, _)| *digest) {
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_is_bounded_and_keeps_what_is_used() {
        let (mut cache, second) = (Cache::default(), Duration::from_secs(1));
        let allowed = Status {
            allowed: true,
            ..Status::default()
        };
        let used = digest_of("used");
        cache.put(used, &allowed, second, Duration::ZERO);
        for number in 0..3 * MAX_ANSWERS {
            cache.put(digest_of(&number.to_string()), &allowed, second, Duration::ZERO);
            assert!(cache.get(&used, Duration::ZERO).is_some(), "{number}");
        }
        assert_eq!(cache.entries.len(), MAX_ANSWERS);
        assert!(cache.get(&digest_of("0"), Duration::ZERO).is_none());
        assert!(cache.get(&used, second).is_none(), "its time is over");
        cache.put(digest_of("later"), &allowed, second, second);
        assert_eq!(cache.entries.len(), 1, "those whose time is over go together");
    }

    #[test]
    fn cache_keeps_no_answer_that_is_large_or_has_no_time() {
        let mut cache = Cache::default();
        let large = Status {
            reason: "x".repeat(MAX_ANSWER_BYTES + 1),
            ..Status::default()
        };
        let digest = digest_of("a");
        cache.put(digest, &large, Duration::MAX, Duration::ZERO);
        cache.put(digest, &Status::default(), Duration::ZERO, Duration::ZERO);
        assert!(cache.get(&digest, Duration::ZERO).is_none());
    }
}
