//! Memory that all requests share: no user holds more than a part of it, and the last part is not for ordinary users.

use apiserver_registry::UserClass;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// Of all memory this part is not for ordinary users.
const RESERVED_PART: usize = 4;

/// See the module.
#[derive(Debug)]
pub struct MemoryShares {
    state: Mutex<State>,
    all: usize,
    bound_of_user: usize,
    given_back: Notify,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// The part of `free` that ordinary users may take.
    free_for_ordinary: usize,
    /// By user; nobody holds nothing.
    held: BTreeMap<Box<str>, usize>,
}

impl MemoryShares {
    /// So many bytes, of which one user may hold so many.
    pub fn new(bytes: usize, bound_of_user: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                free: bytes,
                free_for_ordinary: bytes - bytes / RESERVED_PART,
                held: BTreeMap::new(),
            }),
            all: bytes,
            bound_of_user,
            given_back: Notify::new(),
        })
    }

    /// A holding of this user's, nothing yet.
    pub fn hold(self: &Arc<Self>, class: UserClass, user: &str) -> HeldMemory {
        HeldMemory {
            shares: Arc::clone(self),
            class,
            user: user.into(),
            bytes: 0,
        }
    }

    /// The most that one holding of this class can have.
    pub fn most(&self, class: UserClass) -> usize {
        match class {
            UserClass::Administrator => self.all,
            UserClass::System => self.all.min(self.bound_of_user),
            UserClass::Ordinary => (self.all - self.all / RESERVED_PART).min(self.bound_of_user),
        }
    }
}

impl State {
    fn take(&mut self, by: &HeldMemory, more: usize) -> bool {
        let own = self.held.get(&by.user).copied().unwrap_or(0);
        let is_ordinary = by.class == UserClass::Ordinary;
        let fits = more <= self.free
            && (!is_ordinary || more <= self.free_for_ordinary)
            && (by.class == UserClass::Administrator || own + more <= by.shares.bound_of_user);
        if fits {
            self.free -= more;
            if is_ordinary {
                self.free_for_ordinary -= more;
            }
            self.held.insert(by.user.clone(), own + more);
        }
        fits
    }

    fn give_back(&mut self, by: &HeldMemory) {
        self.free += by.bytes;
        if by.class == UserClass::Ordinary {
            self.free_for_ordinary += by.bytes;
        }
        if let Some(own) = self.held.get_mut(&by.user) {
            *own -= by.bytes;
            if *own == 0 {
                self.held.remove(&by.user);
            }
        }
    }
}

/// Memory of one request; dropped, it is given back.
#[derive(Debug)]
pub struct HeldMemory {
    shares: Arc<MemoryShares>,
    class: UserClass,
    user: Box<str>,
    bytes: usize,
}

impl HeldMemory {
    /// Takes what is missing to so many bytes in all; `false` where that is not to be had, and nothing changes.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let grown = more == 0 || self.shares.state.lock().take(self, more);
        if grown {
            self.bytes += more;
        }
        grown
    }

    /// The same, as soon as it is to be had.
    pub(crate) async fn grow_in_turn(&mut self, bytes: usize) {
        let shares = Arc::clone(&self.shares);
        loop {
            let mut given_back = std::pin::pin!(shares.given_back.notified());
            given_back.as_mut().enable();
            if self.grow_to(bytes) {
                return;
            }
            given_back.await;
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.shares.state.lock().give_back(self);
            self.shares.given_back.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = 64 << 20;
    const OF_USER: usize = ALL / 8;

    #[test]
    fn memory_shares_bound_each_user_and_keep_a_reserve() {
        let memory = MemoryShares::new(ALL, OF_USER);
        let take = |class, user: &str, bytes| {
            let mut held = memory.hold(class, user);
            held.grow_to(bytes).then_some(held)
        };
        let first = take(UserClass::Ordinary, "a", OF_USER).unwrap();
        assert!(take(UserClass::Ordinary, "a", 1).is_none());
        let others: Vec<_> = ["b", "c", "d", "e", "f"]
            .iter()
            .map(|user| take(UserClass::Ordinary, user, OF_USER).unwrap())
            .collect();
        // The reserve is the system's, a user's part of it at a time, and the administrators'.
        assert!(take(UserClass::Ordinary, "g", 1).is_none());
        let node = take(UserClass::System, "system:node:n", OF_USER).unwrap();
        assert!(take(UserClass::System, "system:node:n", 1).is_none());
        let admin = take(UserClass::Administrator, "admin", OF_USER).unwrap();
        assert!(take(UserClass::Administrator, "admin", 1).is_none());
        drop((first, others, node, admin));
        let _whole = take(UserClass::Administrator, "admin", ALL).unwrap();
    }

    #[test]
    fn memory_shares_grow_and_give_all_back() {
        let memory = MemoryShares::new(ALL, OF_USER);
        let mut held = memory.hold(UserClass::Ordinary, "a");
        assert!(held.grow_to(10) && held.grow_to(10) && held.grow_to(OF_USER));
        assert!(!held.grow_to(OF_USER + 1) && held.grow_to(OF_USER));
        drop(held);
        assert!(memory.hold(UserClass::Ordinary, "a").grow_to(OF_USER));
    }

    #[tokio::test]
    async fn memory_shares_are_waited_for() {
        let memory = MemoryShares::new(ALL, OF_USER);
        let mut first = memory.hold(UserClass::Ordinary, "a");
        assert!(first.grow_to(OF_USER));
        let mut second = memory.hold(UserClass::Ordinary, "a");
        let mut waiting = std::pin::pin!(second.grow_in_turn(1));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop(first);
        waiting.await;
    }
}
