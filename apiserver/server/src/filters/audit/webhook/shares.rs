//! Events that wait or are under way in the mode `batch`, shared by user.
//!
//! A user has no more events and bytes than it leaves free: the first may have half of them, the next half of the rest, so that the
//! events of others are not dropped for those of one who makes many or large ones.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// An amount of events.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) events: usize,
    pub(super) bytes: usize,
}

impl Amount {
    /// One event.
    fn of(bytes: usize) -> Self {
        Self { events: 1, bytes }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            events: self.events.saturating_add(other.events),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            events: self.events.saturating_sub(other.events),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    fn fits(self, free: Self) -> bool {
        self.events <= free.events && self.bytes <= free.bytes
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Shares {
    limit: Amount,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    all: Amount,
    /// A user without events is not there.
    by_user: HashMap<Arc<str>, Amount>,
}

/// The part that an event takes, until it is sent or lost.
#[derive(Debug)]
pub(super) struct Share {
    of: Arc<Shares>,
    user: Arc<str>,
    bytes: usize,
}

impl Shares {
    pub(super) fn new(limit: Amount) -> Arc<Self> {
        Arc::new(Self {
            limit,
            held: Mutex::default(),
        })
    }

    /// The part of an event of this user with so many bytes, where there is one left for it.
    pub(super) fn take(self: &Arc<Self>, user: &str, bytes: usize) -> Option<Share> {
        let mut held = self.held.lock();
        let own = held.by_user.get(user).copied().unwrap_or_default();
        let wanted = own.plus(Amount::of(bytes));
        if !wanted.fits(self.limit.minus(held.all)) {
            return None;
        }
        let user: Arc<str> = user.into();
        held.all = held.all.plus(Amount::of(bytes));
        held.by_user.insert(Arc::clone(&user), wanted);
        Some(Share {
            of: Arc::clone(self),
            user,
            bytes,
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.of.held.lock();
        let own = Amount::of(self.bytes);
        held.all = held.all.minus(own);
        match held.by_user.get_mut(&self.user) {
            Some(all) if all.events > 1 => *all = all.minus(own),
            _ => drop(held.by_user.remove(&self.user)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_one_user_leave_others_theirs() {
        let shares = Shares::new(Amount {
            events: 64,
            bytes: 1_000,
        });
        let all = |user: &str, bytes: usize| -> Vec<Share> {
            std::iter::from_fn(|| shares.take(user, bytes)).collect()
        };
        let (many, large) = (all("many", 1), all("large", 100));
        assert_eq!(
            (many.len(), large.len()),
            (32, 5),
            "half of the events, half of the bytes left"
        );
        assert!(shares.take("other", 400).is_some());
        drop((many, large));
        assert_eq!(shares.held.lock().all, Amount::default());
        assert!(shares.held.lock().by_user.is_empty());
    }
}
