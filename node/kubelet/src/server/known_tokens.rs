//! Tokens that were good when they were reviewed last, and whose they are.
//!
//! They outlive the cached answer: the next review of such a token counts for its user, and not for the address that it comes
//! from, which it may share with all pods of another node. One user's tokens displace no other's.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// A token that was not used for so long is a stranger's again. Those of service accounts are renewed within an hour.
const AGE_MAX: Duration = Duration::from_secs(3_600);
/// Tokens of one user: a client uses one, its successor, and those of its replicas.
const OF_USER_MAX: usize = 16;
const ALL_MAX: usize = 1_024;

/// Users by tokens `T`.
#[derive(Debug)]
pub(super) struct KnownTokens<T>(Mutex<HashMap<T, Known>>);

#[derive(Debug)]
struct Known {
    user: Arc<str>,
    until: Duration,
}

impl<T> Default for KnownTokens<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Hash + Eq + Copy> KnownTokens<T> {
    /// Returns the user of a token that was good a while ago.
    pub(super) fn user(&self, token: &T, now: Duration) -> Option<Arc<str>> {
        let all = self.0.lock();
        let known = all.get(token).filter(|known| known.until > now)?;
        Some(Arc::clone(&known.user))
    }

    /// The token is this user's.
    pub(super) fn put(&self, token: T, user: &str, now: Duration) {
        let mut all = self.0.lock();
        all.remove(&token);
        all.retain(|_, known| known.until > now);
        if let Some(oldest) = in_the_way(&all, user) {
            all.remove(&oldest);
        }
        let until = now + AGE_MAX;
        let user = user.into();
        all.insert(token, Known { user, until });
    }

    /// The token is nobody's any more.
    pub(super) fn forget(&self, token: &T) {
        self.0.lock().remove(token);
    }
}

/// The token that one more of this user takes the place of: the user's oldest, or that of the user who has most.
fn in_the_way<T: Copy>(all: &HashMap<T, Known>, user: &str) -> Option<T> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for known in all.values() {
        *counts.entry(&known.user).or_default() += 1;
    }
    let from = if counts.get(user).is_some_and(|count| *count >= OF_USER_MAX) {
        user
    } else if all.len() >= ALL_MAX {
        counts.iter().max_by_key(|(_, count)| **count)?.0
    } else {
        return None;
    };
    let of_user = all.iter().filter(|(_, known)| *known.user == *from);
    of_user
        .min_by_key(|(_, known)| known.until)
        .map(|(token, _)| *token)
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
        assert_eq!(tokens.0.lock().len(), 1 + OF_USER_MAX);
    }

    #[test]
    fn known_tokens_are_bounded_and_taken_from_the_user_who_has_most() {
        let tokens = KnownTokens::default();
        tokens.put(0, "monitor", NOW);
        for token in 1..10_000 {
            tokens.put(token, &format!("user {}", token % 200), NOW);
        }
        assert_eq!(tokens.0.lock().len(), ALL_MAX);
        assert_eq!(tokens.user(&0, NOW).as_deref(), Some("monitor"));
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
