//! The memory of request bodies, counted as their bytes arrive. No user holds more than a part of it, and the last part of all is
//! for those who keep the cluster running.

use super::body::MAX_BODY_BYTES;
use super::standing::Standing;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Of all memory one user may hold this part, a whole body at least.
const PART_OF_USER: usize = 8;
/// Of all memory this part is not for ordinary users.
const RESERVED_PART: usize = 4;

/// See the module.
pub(crate) struct BodyMemory {
    state: Mutex<State>,
    bound_of_user: usize,
}

struct State {
    free: usize,
    /// How much of that ordinary users may take.
    free_for_ordinary: usize,
    /// What each user holds; nobody holds nothing.
    held: BTreeMap<Box<str>, usize>,
}

impl BodyMemory {
    pub(crate) fn of(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                free: bytes,
                free_for_ordinary: bytes - bytes / RESERVED_PART,
                held: BTreeMap::new(),
            }),
            bound_of_user: (bytes / PART_OF_USER).max(MAX_BODY_BYTES),
        })
    }

    /// The memory of one body of this user's, none yet.
    pub(crate) fn hold(self: &Arc<Self>, standing: Standing, user: &str) -> Held {
        Held {
            memory: Arc::clone(self),
            standing,
            user: user.into(),
            bytes: 0,
        }
    }
}

impl State {
    fn take(&mut self, by: &Held, more: usize) -> bool {
        let own = self.held.get(&by.user).copied().unwrap_or(0);
        let is_ordinary = by.standing == Standing::Ordinary;
        let fits = more <= self.free
            && (!is_ordinary || more <= self.free_for_ordinary)
            && (by.standing == Standing::Repair || own + more <= by.memory.bound_of_user);
        if fits {
            self.free -= more;
            if is_ordinary {
                self.free_for_ordinary -= more;
            }
            self.held.insert(by.user.clone(), own + more);
        }
        fits
    }

    fn give_back(&mut self, by: &Held) {
        self.free += by.bytes;
        if by.standing == Standing::Ordinary {
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

/// What one body takes; dropped, it is given back.
pub(crate) struct Held {
    memory: Arc<BodyMemory>,
    standing: Standing,
    user: Box<str>,
    bytes: usize,
}

impl Held {
    /// Takes what is missing to so many bytes in all; `false` where that is not to be had, and nothing changes.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let grown = more == 0 || self.memory.state.lock().take(self, more);
        if grown {
            self.bytes += more;
        }
        grown
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.memory.state.lock().give_back(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = 64 << 20;

    #[test]
    fn one_user_holds_a_part_and_all_ordinary_ones_leave_the_rest() {
        let memory = BodyMemory::of(ALL);
        let take = |standing, user: &str, bytes| {
            let mut held = memory.hold(standing, user);
            held.grow_to(bytes).then_some(held)
        };
        let first = take(Standing::Ordinary, "a", ALL / 8).unwrap();
        assert!(take(Standing::Ordinary, "a", 1).is_none());
        let others: Vec<_> = ["b", "c", "d", "e", "f"]
            .iter()
            .map(|user| take(Standing::Ordinary, user, ALL / 8).unwrap())
            .collect();
        // The reserve is the system's, a user's part of it at a time, and the administrators'.
        assert!(take(Standing::Ordinary, "g", 1).is_none());
        let node = take(Standing::System, "system:node:n", ALL / 8).unwrap();
        assert!(take(Standing::System, "system:node:n", 1).is_none());
        let admin = take(Standing::Repair, "admin", ALL / 8).unwrap();
        assert!(take(Standing::Repair, "admin", 1).is_none());
        drop((first, others, node, admin));
        let _whole = take(Standing::Repair, "admin", ALL).unwrap();
    }

    #[test]
    fn a_body_takes_memory_as_it_grows_and_gives_all_back() {
        let memory = BodyMemory::of(2 * MAX_BODY_BYTES);
        let mut held = memory.hold(Standing::Ordinary, "a");
        assert!(held.grow_to(10) && held.grow_to(10) && held.grow_to(MAX_BODY_BYTES));
        assert!(!held.grow_to(MAX_BODY_BYTES + 1) && held.grow_to(MAX_BODY_BYTES));
        drop(held);
        assert!(memory.hold(Standing::Ordinary, "a").grow_to(MAX_BODY_BYTES));
    }
}
