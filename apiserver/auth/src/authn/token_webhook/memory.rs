//! Answers that are remembered, by the digest of token and audiences. Users have room of their own: invented tokens push none of them out.

pub(super) use crate::authn::remembered_users::Digest;

use super::Verdict;
use crate::authn::remembered_users::{RememberedUsers, Room};
use ring::digest;
use std::collections::HashMap;
use std::time::Duration;

/// Room for users: with one place for each of the largest there would be a gibibyte.
const ROOM: Room = Room {
    tokens: 8_192,
    tokens_of_user: 256,
    bytes: 64 << 20,
};
/// Refusals in memory at most.
const MAX_REFUSALS: usize = 8_192;

/// See the module.
pub(super) struct Memory {
    ttl: Duration,
    users: RememberedUsers<Duration>,
    /// With the time at which each ends.
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
            users: RememberedUsers::new(ROOM),
            refusals: HashMap::new(),
        }
    }

    pub(super) fn get(&self, digest: &Digest, now: Duration) -> Option<Verdict> {
        if let Some(found) = self.users.get(digest, now) {
            return Some(Verdict::User(found));
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
            Verdict::User(found) => self.users.put(digest, found, until, now),
            Verdict::Unknown => {
                if self.refusals.len() >= MAX_REFUSALS {
                    self.refusals.clear();
                }
                self.refusals.insert(digest, until);
            }
            Verdict::Failed(_) | Verdict::Busy => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::Authenticated;
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
    fn memory_of_users_is_not_filled_by_tokens_of_one() {
        let (mut memory, now) = (Memory::new(Duration::from_secs(60)), Duration::from_secs(1));
        let user = |name: &str| {
            let named = UserInfo::named(name, [UserInfo::AUTHENTICATED]);
            Verdict::User(Authenticated::new(named))
        };
        for number in 0..=ROOM.tokens {
            let token = digest_of(&number.to_string(), &[]);
            memory.keep(token, &user("greedy"), now);
        }
        let anna = digest_of("anna", &[]);
        memory.keep(anna, &user("anna"), now);
        assert!(matches!(memory.get(&anna, now), Some(Verdict::User(_))));
        let is_kept = |number: &usize| memory.get(&digest_of(&number.to_string(), &[]), now).is_some();
        let kept = (0..=ROOM.tokens).filter(is_kept).count();
        assert_eq!(kept, ROOM.tokens_of_user);
    }

    #[test]
    fn memory_tells_tokens_and_audiences_apart() {
        let audience = |own: &str| vec![own.to_owned()];
        assert_ne!(digest_of("ab", &audience("c")), digest_of("a", &audience("bc")));
        assert_ne!(digest_of("a", &[]), digest_of("a", &audience("")));
    }
}
