//! Connections that requests are proxied over, bounded by user: each takes a file beside the client's own.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// The bounds, and who has how many.
#[derive(Debug)]
pub(crate) struct ProxiedConnections {
    most: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_user: HashMap<Arc<str>, usize>,
}

/// A connection that may be open; dropped when it is closed.
#[derive(Debug)]
pub(crate) struct Permit {
    of: Arc<ProxiedConnections>,
    user: Arc<str>,
}

impl ProxiedConnections {
    /// At most so many at once, of which no user has more than half.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            open: Mutex::default(),
        })
    }

    /// Room for one more of a user, if there is any.
    pub(super) fn open(self: &Arc<Self>, user: &str) -> Option<Permit> {
        let mut open = self.open.lock();
        let own = open.by_user.get(user).copied().unwrap_or_default();
        if open.all >= self.most || own >= self.most.div_ceil(2) {
            return None;
        }
        let user: Arc<str> = user.into();
        open.all += 1;
        open.by_user.insert(Arc::clone(&user), own + 1);
        Some(Permit {
            of: Arc::clone(self),
            user,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = self.of.open.lock();
        open.all -= 1;
        let left = open.by_user.get_mut(&self.user).map(|own| {
            *own -= 1;
            *own
        });
        if left == Some(0) {
            open.by_user.remove(&self.user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_half_to_other_users() {
        let connections = ProxiedConnections::new(4);
        let mut one: Vec<Permit> = std::iter::from_fn(|| connections.open("one")).collect();
        assert_eq!(one.len(), 2);
        let two: Vec<Permit> = std::iter::from_fn(|| connections.open("two")).collect();
        assert_eq!(two.len(), 2);
        assert!(connections.open("three").is_none(), "no more at all");
        one.pop();
        let third = connections.open("three");
        assert!(third.is_some() && connections.open("one").is_none());
        drop((one, two, third));
        let open = connections.open.lock();
        assert_eq!((open.all, open.by_user.len()), (0, 0));
    }
}
