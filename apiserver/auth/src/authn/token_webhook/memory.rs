//! Answers that are remembered, by the digest of token and audiences. Users have room of their own: invented tokens push none of them out.

use super::Verdict;
use crate::authn::Authenticated;
use ring::digest;
use std::collections::HashMap;
use std::time::Duration;

/// Users in memory at most.
const MAX_USERS: usize = 8_192;
/// Refusals in memory at most.
const MAX_REFUSALS: usize = 8_192;

pub(super) type Digest = [u8; 32];

/// See the module.
pub(super) struct Memory {
    ttl: Duration,
    /// With the time at which each ends.
    users: HashMap<Digest, (Duration, Authenticated)>,
    refusals: HashMap<Digest, Duration>,
}

/// The digest of a token for these audiences.
pub(super) fn digest_of(token: &str, audiences: &[String]) -> Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    for text in std::iter::once(token).chain(audiences.iter().map(String::as_str)) {
        context.update(&text.len().to_be_bytes());
        context.update(text.as_bytes());
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}

impl Memory {
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            users: HashMap::new(),
            refusals: HashMap::new(),
        }
    }

    pub(super) fn get(&self, digest: &Digest, now: Duration) -> Option<Verdict> {
        if let Some((_, found)) = self.users.get(digest).filter(|(until, _)| *until > now) {
            return Some(Verdict::User(found.clone()));
        }
        let until = self.refusals.get(digest).filter(|until| **until > now);
        until.map(|_| Verdict::Unknown)
    }

    /// Failures are not remembered.
    pub(super) fn keep(&mut self, digest: Digest, verdict: &Verdict, now: Duration) {
        if self.ttl.is_zero() {
            return;
        }
        let until = now + self.ttl;
        match verdict {
            Verdict::User(found) => {
                if self.users.len() >= MAX_USERS {
                    self.users.retain(|_, (until, _)| *until > now);
                }
                if self.users.len() < MAX_USERS {
                    self.users.insert(digest, (until, found.clone()));
                }
            }
            Verdict::Unknown => {
                if self.refusals.len() >= MAX_REFUSALS {
                    self.refusals.clear();
                }
                self.refusals.insert(digest, until);
            }
            Verdict::Failed(_) | Verdict::Unasked => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_meta::UserInfo;

    #[test]
    fn memory_of_users_is_not_filled_by_refusals() {
        let (mut memory, now) = (Memory::new(Duration::from_secs(60)), Duration::from_secs(1));
        let anna = digest_of("anna", &[]);
        let user = Verdict::User(Authenticated::new(UserInfo::anonymous()));
        memory.keep(anna, &user, now);
        for number in 0..3 * MAX_REFUSALS {
            memory.keep(digest_of(&number.to_string(), &[]), &Verdict::Unknown, now);
        }
        assert!(memory.refusals.len() <= MAX_REFUSALS);
        assert!(matches!(memory.get(&anna, now), Some(Verdict::User(_))));
        assert!(memory.get(&anna, now + Duration::from_secs(60)).is_none());
        memory.keep(anna, &Verdict::Failed("no".into()), now);
        assert!(matches!(memory.get(&anna, now), Some(Verdict::User(_))));
        let mut none = Memory::new(Duration::ZERO);
        none.keep(anna, &user, now);
        assert!(none.get(&anna, now).is_none());
    }

    #[test]
    fn memory_tells_tokens_and_audiences_apart() {
        let audience = |own: &str| vec![own.to_owned()];
        assert_ne!(digest_of("ab", &audience("c")), digest_of("a", &audience("bc")));
        assert_ne!(digest_of("a", &[]), digest_of("a", &audience("")));
    }
}
