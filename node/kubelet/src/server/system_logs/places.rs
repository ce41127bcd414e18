//! Places of answers under way, shared by user.
//!
//! A user has no more places than it leaves free: the first may have half of them, the next half of the rest, so that one who reads
//! slowly, or not at all, takes none of those of others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Files, folders and queries that are sent at once.
const ANSWERS_MAX: usize = 32;

/// Places that are taken, by user; one without any is not there.
#[derive(Debug, Default)]
pub(super) struct Places {
    taken: Mutex<HashMap<Arc<str>, usize>>,
}

/// A place, for as long as an answer is sent.
#[derive(Debug)]
pub(super) struct Place {
    of: Arc<Places>,
    user: Arc<str>,
}

impl Places {
    /// Takes a place for an answer to this user, where its share has one.
    pub(super) fn enter(self: &Arc<Self>, user: &str) -> Option<Place> {
        let mut taken = self.taken.lock();
        let free = ANSWERS_MAX.saturating_sub(taken.values().sum());
        let own = taken.get(user).copied().unwrap_or_default();
        if own >= free {
            return None;
        }
        let user: Arc<str> = user.into();
        *taken.entry(Arc::clone(&user)).or_default() += 1;
        Some(Place {
            of: Arc::clone(self),
            user,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock();
        match taken.get_mut(&self.user) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(taken.remove(&self.user)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_log_places_of_one_user_leave_others_theirs() {
        let places = Arc::<Places>::default();
        let all = |user: &str| -> Vec<Place> { std::iter::from_fn(|| places.enter(user)).collect() };
        let (first, second) = (all("a"), all("b"));
        assert_eq!((first.len(), second.len()), (ANSWERS_MAX / 2, ANSWERS_MAX / 4));
        assert!(places.enter("a").is_none() && places.enter("c").is_some());
        drop((first, second));
        assert!(places.taken.lock().is_empty());
    }
}
