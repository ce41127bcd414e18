//! Tokens that were good when they were reviewed last, and whose they are.
//!
//! They outlive the cached answer: the next review of such a token counts for its user, and not for the address that it comes
//! from, which it may share with all pods of another node, or with strangers who guess. One user's tokens displace no other's, and many users that come
//! displace none that was there before them. A token that is renewed came with its user's first one.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// A token that was not used for so long is unknown again. Those of service accounts are renewed within an hour.
const AGE_MAX: Duration = Duration::from_secs(3_600);
/// Tokens of one user: a client uses one, its successor, and those of its replicas.
const OF_USER_MAX: usize = 16;
const ALL_MAX: usize = 1_024;

/// Users by tokens `T`.
#[derive(Debug)]
pub struct KnownTokens<T>(Mutex<All<T>>);

#[derive(Debug)]
struct All<T> {
    known: HashMap<T, Known>,
    /// Tokens that have come.
    come: u64,
}

#[derive(Debug)]
struct Known {
    user: Arc<str>,
    /// Its place among all that have come.
    came: u64,
    until: Duration,
}

impl<T> Default for KnownTokens<T> {
    fn default() -> Self {
        let known = HashMap::new();
        Self(Mutex::new(All { known, come: 0 }))
    }
}

impl<T: Hash + Eq + Copy> KnownTokens<T> {
    /// Returns the user of a token that was good a while ago.
    pub fn user(&self, token: &T, now: Duration) -> Option<Arc<str>> {
        let all = self.0.lock();
        let known = all.known.get(token).filter(|known| known.until > now)?;
        Some(Arc::clone(&known.user))
    }

    /// The token is this user's.
    pub fn put(&self, token: T, user: &str, now: Duration) {
        let mut all = self.0.lock();
        let before = all.known.remove(&token).filter(|known| *known.user == *user);
        all.known.retain(|_, known| known.until > now);
        let own = all.known.values().filter(|known| *known.user == *user);
        let first = before.iter().chain(own).map(|known| known.came).min();
        if let Some(other) = in_the_way(&all.known, user) {
            all.known.remove(&other);
        }
        all.come += 1;
        let known = Known {
            user: user.into(),
            came: first.unwrap_or(all.come),
            until: now + AGE_MAX,
        };
        all.known.insert(token, known);
    }

    /// The token is not valid any more.
    pub fn forget(&self, token: &T) {
        self.0.lock().known.remove(token);
    }
}

/// The token that one more of this user takes the place of: the user's oldest; or where there are too many in all, of the
/// users with most one of that which came last, the one that was longest not used.
fn in_the_way<T: Copy>(all: &HashMap<T, Known>, user: &str) -> Option<T> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for known in all.values() {
        *counts.entry(&known.user).or_default() += 1;
    }
    let found = if counts.get(user).is_some_and(|count| *count >= OF_USER_MAX) {
        let own = all.iter().filter(|(_, known)| *known.user == *user);
        own.min_by_key(|(_, known)| known.until)
    } else if all.len() >= ALL_MAX {
        all.iter()
            .max_by_key(|(_, known)| (counts.get(&*known.user), known.came, Reverse(known.until)))
    } else {
        None
    };
    found.map(|(token, _)| *token)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(5);

    #[test]
    fn known_tokens_of_one_user_displace_no_others() {
        let tokens = KnownTokens::default();
        tokens.put(0, "monitor", NOW);
        for token in 1..10_000 {
            tokens.put(token, "greedy", NOW + Duration::from_millis(token));
        }
        let now = NOW + Duration::from_secs(11);
        assert_eq!(tokens.user(&0, now).as_deref(), Some("monitor"));
        assert_eq!(
            tokens.user(&9_999, now).as_deref(),
            Some("greedy"),
            "the newest stay"
        );
        assert_eq!(tokens.0.lock().known.len(), 1 + OF_USER_MAX);
    }

    #[test]
    fn known_tokens_are_bounded_and_taken_from_the_user_who_has_most() {
        let tokens = KnownTokens::default();
        tokens.put(0, "monitor", NOW);
        for token in 1..10_000 {
            tokens.put(token, &format!("user {}", token % 200), NOW);
        }
        assert_eq!(tokens.0.lock().known.len(), ALL_MAX);
        assert_eq!(tokens.user(&0, NOW).as_deref(), Some("monitor"));
    }

    #[test]
    fn known_tokens_of_many_users_displace_none_that_came_before() {
        let tokens = KnownTokens::default();
        for token in 0..8 {
            tokens.put(token, &format!("monitor {token}"), NOW);
        }
        for token in 8..2_000 {
            tokens.put(token, &format!("account {token}"), NOW);
            // It is used all the time, and is no newcomer for that.
            tokens.put(0, "monitor 0", NOW);
        }
        let is_known = |token| tokens.user(&token, NOW).is_some();
        assert!((0..8).all(is_known));
        assert!(is_known(1_999), "the newest finds room");
        assert_eq!(tokens.0.lock().known.len(), ALL_MAX);
    }

    #[test]
    fn known_tokens_that_are_renewed_are_no_newcomers() {
        let tokens = KnownTokens::default();
        tokens.put(0, "monitor", NOW);
        for token in 1..ALL_MAX as u64 {
            tokens.put(token, &format!("account {token}"), NOW);
        }
        let later = NOW + Duration::from_secs(1);
        tokens.put(5_000, "monitor", later);
        for token in 6_000..8_000 {
            tokens.put(token, &format!("account {token}"), later);
        }
        assert!(tokens.user(&5_000, later).is_some());
        assert!(
            tokens.user(&0, later).is_none(),
            "one user has two, and all others one"
        );
    }

    #[test]
    fn known_tokens_end() {
        let tokens = KnownTokens::default();
        tokens.put(1, "a", NOW);
        tokens.put(2, "a", NOW);
        tokens.forget(&1);
        assert_eq!(tokens.user(&1, NOW), None);
        assert_eq!(tokens.user(&2, NOW + AGE_MAX), None);
    }
}
