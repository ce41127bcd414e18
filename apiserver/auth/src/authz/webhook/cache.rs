//! Answers of a webhook that are remembered, by the digest of the question.

use super::review::Status;
use ring::digest;
use std::collections::HashMap;
use std::time::Duration;

/// Answers in memory at most; upstream's.
const MAX_ANSWERS: usize = 8_192;

pub(super) type Digest = [u8; 32];

/// Two generations: what is used moves to the newer one, and the older one goes when that is full.
#[derive(Debug, Default)]
pub(super) struct Cache {
    newer: HashMap<Digest, (Duration, Status)>,
    older: HashMap<Digest, (Duration, Status)>,
}

pub(super) fn digest_of(question: &str) -> Digest {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, question.as_bytes()).as_ref());
    out
}

impl Cache {
    pub(super) fn get(&mut self, digest: &Digest, now: Duration) -> Option<Status> {
        if let Some((until, status)) = self.newer.get(digest) {
            return (*until > now).then(|| status.clone());
        }
        let (until, status) = self.older.remove(digest).filter(|(until, _)| *until > now)?;
        self.put(*digest, until, status.clone());
        Some(status)
    }

    pub(super) fn put(&mut self, digest: Digest, until: Duration, status: Status) {
        if self.newer.len() >= MAX_ANSWERS / 2 {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(digest, (until, status));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_is_bounded_and_keeps_what_is_used() {
        let (mut cache, until) = (Cache::default(), Duration::from_secs(9));
        let used = digest_of("used");
        cache.put(used, until, Status::default());
        for number in 0..3 * MAX_ANSWERS {
            cache.put(digest_of(&number.to_string()), until, Status::default());
            assert!(cache.get(&used, Duration::ZERO).is_some(), "{number}");
        }
        assert!(cache.newer.len() + cache.older.len() <= MAX_ANSWERS);
        assert!(cache.get(&digest_of("0"), Duration::ZERO).is_none());
        assert!(cache.get(&used, until).is_none(), "its time is over");
    }
}
