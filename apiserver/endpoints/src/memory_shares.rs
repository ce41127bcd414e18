//! Memory that all requests share: no user holds more than a part of it, and the last part is not for ordinary users. A
//! request that waits for some is woken, in the order of arrival, once as much as it waits for is free for it.
//!
//! Shares of owners that a tenant can make at will, as namespaces are, leave as much free as they hold
//! ([`MemoryShares::leaving_free`]): many greedy owners get less and less, and the next one still finds some.

use apiserver_registry::UserClass;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio::sync::Notify;

/// Part of all memory that is not for ordinary users.
const RESERVED_PART: usize = 4;

/// See the module.
#[derive(Debug)]
pub struct MemoryShares {
    state: Mutex<State>,
    all: usize,
    for_ordinary: usize,
    /// The most that one user may hold.
    bound_of_user: usize,
}

#[derive(Debug)]
struct State {
    free: Free,
    bounds: Bounds,
    /// By user; one that holds nothing is not there.
    held: BTreeMap<Box<str>, usize>,
    /// In the order of arrival.
    waiting: VecDeque<Waiting>,
    last: u64,
}

/// Bounds of one user's share.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    most: usize,
    /// The share is no more than what it leaves to others of its class.
    leaves_free: bool,
}

#[derive(Debug, Clone, Copy)]
struct Free {
    all: usize,
    /// The part of it that ordinary users may take.
    for_ordinary: usize,
}

impl Free {
    fn of(self, class: UserClass) -> usize {
        match class {
            UserClass::Ordinary => self.all.min(self.for_ordinary),
            UserClass::System | UserClass::Administrator => self.all,
        }
    }

    fn has(self, class: UserClass, bytes: usize) -> bool {
        bytes <= self.of(class)
    }

    fn take(&mut self, class: UserClass, bytes: usize) {
        self.all -= bytes;
        if class == UserClass::Ordinary {
            self.for_ordinary -= bytes;
        }
    }

    fn give_back(&mut self, class: UserClass, bytes: usize) {
        self.all += bytes;
        if class == UserClass::Ordinary {
            self.for_ordinary += bytes;
        }
    }
}

/// One that waits for memory.
#[derive(Debug)]
struct Waiting {
    id: u64,
    class: UserClass,
    user: Box<str>,
    bytes: usize,
    woken: Arc<Notify>,
}

impl MemoryShares {
    /// Shares of so many bytes, of which one user may hold so many.
    pub fn new(bytes: usize, bound_of_user: usize) -> Arc<Self> {
        let bounds = Bounds {
            most: bound_of_user,
            leaves_free: false,
        };
        Self::bounded(bytes, bytes / RESERVED_PART, bounds)
    }

    /// Shares of so many bytes without a reserve, of which one user may hold so many, and no more than it leaves to others.
    pub fn leaving_free(bytes: usize, bound_of_user: usize) -> Arc<Self> {
        let bounds = Bounds {
            most: bound_of_user.min(bytes / 2),
            leaves_free: true,
        };
        Self::bounded(bytes, 0, bounds)
    }

    fn bounded(bytes: usize, reserved: usize, bounds: Bounds) -> Arc<Self> {
        let free = Free {
            all: bytes,
            for_ordinary: bytes - reserved,
        };
        Arc::new(Self {
            state: Mutex::new(State {
                free,
                bounds,
                held: BTreeMap::new(),
                waiting: VecDeque::new(),
                last: 0,
            }),
            all: free.all,
            for_ordinary: free.for_ordinary,
            bound_of_user: bounds.most,
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

    /// Bytes of an owner's share, of memory that knows no classes ([`MemoryShares::leaving_free`]); `None` where it holds too
    /// much already. A request for more than any owner may have gets all of that.
    pub fn hold_share(self: &Arc<Self>, owner: &str, bytes: usize) -> Option<HeldMemory> {
        let class = UserClass::Ordinary;
        let mut held = self.hold(class, owner);
        held.grow_to(bytes.min(self.most(class))).then_some(held)
    }

    /// The most that one holding of this class can have.
    pub fn most(&self, class: UserClass) -> usize {
        match class {
            UserClass::Administrator => self.all,
            UserClass::System => self.all.min(self.bound_of_user),
            UserClass::Ordinary => self.for_ordinary.min(self.bound_of_user),
        }
    }
}

impl State {
    fn held(&self, user: &str) -> usize {
        self.held.get(user).copied().unwrap_or(0)
    }

    /// Reports whether there is so much, and whether a user with so much already may take it.
    fn may_take(&self, free: Free, class: UserClass, own: usize, more: usize) -> bool {
        let is_bounded = class != UserClass::Administrator;
        let wanted = own.saturating_add(more);
        let leaves = || free.of(class) - more;
        free.has(class, more)
            && !(is_bounded && wanted > self.bounds.most)
            && !(is_bounded && self.bounds.leaves_free && wanted > leaves())
    }

    fn take(&mut self, by: &HeldMemory, more: usize) -> bool {
        let own = self.held(&by.user);
        let fits = self.may_take(self.free, by.class, own, more);
        if fits {
            self.free.take(by.class, more);
            self.held.insert(by.user.clone(), own + more);
        }
        fits
    }

    fn give_back(&mut self, by: &HeldMemory) {
        self.free.give_back(by.class, by.bytes);
        if let Some(own) = self.held.get_mut(&by.user) {
            *own -= by.bytes;
            if *own == 0 {
                self.held.remove(&by.user);
            }
        }
        self.wake();
    }

    /// Wakes exactly those for whom there is memory once those before them have taken theirs.
    fn wake(&self) {
        let mut free = self.free;
        let mut promised: BTreeMap<&str, usize> = BTreeMap::new();
        for waiting in &self.waiting {
            let own = promised.entry(&waiting.user).or_default();
            let held = self.held(&waiting.user) + *own;
            if self.may_take(free, waiting.class, held, waiting.bytes) {
                free.take(waiting.class, waiting.bytes);
                *own += waiting.bytes;
                waiting.woken.notify_one();
            }
        }
    }

    fn wait(&mut self, by: &HeldMemory, bytes: usize) -> (u64, Arc<Notify>) {
        self.last += 1;
        let woken = Arc::<Notify>::default();
        self.waiting.push_back(Waiting {
            id: self.last,
            class: by.class,
            user: by.user.clone(),
            bytes,
            woken: Arc::clone(&woken),
        });
        (self.last, woken)
    }
}

/// A place in the queue for memory; dropped, it is given up.
struct Place {
    shares: Arc<MemoryShares>,
    id: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.shares.state.lock();
        state.waiting.retain(|waiting| waiting.id != self.id);
        // It may have been woken, and not have taken what others wait for.
        state.wake();
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
        let more = bytes.saturating_sub(self.bytes);
        let shares = Arc::clone(&self.shares);
        let (_place, woken) = {
            let mut state = shares.state.lock();
            if more == 0 || state.take(self, more) {
                self.bytes += more;
                return;
            }
            let (id, woken) = state.wait(self, more);
            let shares = Arc::clone(&shares);
            (Place { shares, id }, woken)
        };
        loop {
            woken.notified().await;
            if self.grow_to(bytes) {
                return;
            }
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
    fn memory_shares_leave_free_what_they_hold() {
        let memory = MemoryShares::leaving_free(ALL, ALL);
        let take = |owner: &str, bytes| memory.hold_share(owner, bytes);
        let greedy = |owner: &str| {
            let each = || take(owner, ALL / 128);
            std::iter::from_fn(each).collect::<Vec<_>>()
        };
        let held = ["a", "b", "c", "d"].map(greedy);
        assert_eq!(held.each_ref().map(Vec::len), [64, 32, 16, 8]);
        assert!(take("a", 1).is_none());
        assert!(take("e", ALL / 32 + 1).is_none());
        assert!(take("e", ALL / 32).is_some());
        drop(held);
        let _most = take("e", ALL).unwrap();
        assert!(take("e", 1).is_none());
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

    #[tokio::test]
    async fn memory_shares_wake_those_for_whom_there_is_room() {
        let memory = MemoryShares::new(ALL, OF_USER);
        let full = |user: &str| {
            let mut held = memory.hold(UserClass::Ordinary, user);
            assert!(held.grow_to(OF_USER));
            held
        };
        let (first, other) = (full("a"), full("b"));
        // Three of `a`, of which one and a small one fit at a time, and one of `b`.
        let wait = |user: &'static str, bytes| {
            let mut held = memory.hold(UserClass::Ordinary, user);
            let wait = async move {
                held.grow_in_turn(bytes).await;
                held
            };
            polled(wait)
        };
        let mut waiting = [
            wait("a", OF_USER / 2),
            wait("a", OF_USER),
            wait("a", OF_USER / 2),
            wait("b", 1),
        ];
        for one in &mut waiting {
            assert!(one.poll().is_none());
        }
        drop(first);
        let woken: Vec<bool> = waiting.iter().map(|one| one.is_woken()).collect();
        assert_eq!(woken, [true, false, true, false]);
        let halves = [waiting[0].poll().unwrap(), waiting[2].poll().unwrap()];
        // A woken request that leaves makes room for the next.
        drop(other);
        assert!(waiting[3].is_woken());
        drop(halves);
        assert!(waiting[1].is_woken() && waiting[1].poll().is_some());
    }

    #[tokio::test]
    async fn memory_shares_go_to_the_next_where_one_leaves() {
        let memory = MemoryShares::new(ALL, OF_USER);
        let mut first = memory.hold(UserClass::Ordinary, "a");
        assert!(first.grow_to(OF_USER));
        let wait = || {
            let mut held = memory.hold(UserClass::Ordinary, "a");
            polled(async move {
                held.grow_in_turn(OF_USER).await;
                held
            })
        };
        let (mut leaving, mut next) = (wait(), wait());
        assert!(leaving.poll().is_none() && next.poll().is_none());
        drop(first);
        assert!(leaving.is_woken() && !next.is_woken());
        drop(leaving);
        assert!(next.is_woken() && next.poll().is_some());
    }

    /// A future that is polled by hand, and whether it was woken since.
    struct Polled {
        future: std::pin::Pin<Box<dyn Future<Output = HeldMemory> + Send>>,
        woken: Arc<Woken>,
    }

    #[derive(Default)]
    struct Woken(std::sync::atomic::AtomicBool);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }

    fn polled(future: impl Future<Output = HeldMemory> + Send + 'static) -> Polled {
        Polled {
            future: Box::pin(future),
            woken: Arc::default(),
        }
    }

    impl Polled {
        fn poll(&mut self) -> Option<HeldMemory> {
            self.woken.0.store(false, std::sync::atomic::Ordering::SeqCst);
            let waker = std::task::Waker::from(Arc::clone(&self.woken));
            match self
                .future
                .as_mut()
                .poll(&mut std::task::Context::from_waker(&waker))
            {
                std::task::Poll::Ready(held) => Some(held),
                std::task::Poll::Pending => None,
            }
        }

        fn is_woken(&self) -> bool {
            self.woken.0.load(std::sync::atomic::Ordering::SeqCst)
        }
    }
}
