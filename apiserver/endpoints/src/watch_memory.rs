//! Memory of watches that are not read: what is encoded and not yet sent, and the old objects that changes refer to.
//!
//! A connection takes a small piece at a time, a copy, so that all else that a watch holds can be dropped at any moment. What is
//! sent as it is stored costs references; what is encoded anew is counted before it is made, by owner: the namespace that an
//! ordinary user watches, otherwise the account. Where an owner's share is spent, those of its watches that have been behind for
//! [`PATIENCE`] end, the longest behind first: a client that reads a little now and then holds as much as one that reads
//! nothing. A watch that has something to encode waits for that, or until others have read. References may keep objects from being freed, and most of them keep none; their share is larger, and where it is spent
//! watches end in the same way, and nobody waits.

use crate::body::BodyError;
use apiserver_registry::{RequestContext, UserClass};
use bytes::Bytes;
use futures::Stream;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// A client that has not read all of what it was sent for so long may lose its watch.
const PATIENCE: Duration = Duration::from_secs(10);
/// Encoded bytes that wait, of all watches and of one owner's.
const ENCODED: Share = Share::of(128 << 20);
/// Bytes of the objects that changes refer to.
const REFERRED: Share = Share::of(1 << 30);
/// Frames of one owner's watches that wait for a thread among the heavy work; the next ones wait for these.
const FRAMES_IN_TURN: usize = 128;

/// Bound of something.
#[derive(Debug, Clone, Copy)]
struct Share {
    all: usize,
    of_owner: usize,
}

impl Share {
    const fn of(all: usize) -> Self {
        Self {
            all,
            of_owner: all / 4,
        }
    }
}

/// Bytes that a watch, or an owner's watches, hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeldByWatches {
    /// Encoded and not yet sent.
    pub encoded: usize,
    /// Objects that changes refer to.
    pub referred: usize,
}

impl HeldByWatches {
    fn add(&mut self, more: Self) {
        self.encoded += more.encoded;
        self.referred += more.referred;
    }

    fn subtract(&mut self, less: Self) {
        self.encoded -= less.encoded;
        self.referred -= less.referred;
    }

    fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// See the module.
#[derive(Debug)]
pub struct WatchMemory {
    ledger: Mutex<Ledger>,
    given_back: Notify,
    ended: AtomicUsize,
    runtime: Runtime,
}

#[derive(Debug, Default)]
struct Ledger {
    owners: HashMap<Arc<str>, Owner>,
    held: HeldByWatches,
    last: u64,
    /// A task looks again once watches have been unread for long.
    is_swept: bool,
}

#[derive(Debug)]
struct Owner {
    held: HeldByWatches,
    watches: HashMap<u64, Watch>,
    frames: Arc<Semaphore>,
}

#[derive(Debug)]
struct Watch {
    held: HeldByWatches,
    behind_since: Arc<AtomicU64>,
    body: Weak<ReadBody>,
}

impl Ledger {
    /// Reports whether an owner has encoded bytes that leave no room for more.
    fn is_full(&self, owner: &str, more: usize) -> bool {
        let own = self.owners.get(owner).map_or(0, |own| own.held.encoded);
        own > 0 && (own + more > ENCODED.of_owner || self.held.encoded + more > ENCODED.all)
    }

    /// The owner whose watches end first: this one where its share is spent, whoever holds most where all is.
    fn spent(&self, owner: &Arc<str>, more: usize) -> Option<Arc<str>> {
        let own = self.owners.get(owner)?.held;
        if own.encoded + more > ENCODED.of_owner || own.referred > REFERRED.of_owner {
            return Some(Arc::clone(owner));
        }
        let all = self.held;
        let by = |weight: fn(&HeldByWatches) -> usize| {
            let most = self.owners.iter().max_by_key(|(_, own)| weight(&own.held));
            most.map(|(name, _)| Arc::clone(name))
        };
        if all.encoded + more > ENCODED.all {
            return by(|held| held.encoded);
        }
        (all.referred > REFERRED.all)
            .then(|| by(|held| held.referred))
            .flatten()
    }

    /// The body of the owner's watch that has been behind for longest, if that is long.
    fn longest_behind(&self, owner: &str, now: Duration) -> Option<Arc<ReadBody>> {
        let before = nanos(now.checked_sub(PATIENCE)?);
        let behind = self.owners.get(owner)?.watches.values().filter_map(|watch| {
            let since = watch.behind_since.load(Ordering::Relaxed);
            (since != READ && since <= before && !watch.held.is_nothing()).then_some((since, watch))
        });
        let (_, watch) = behind.min_by_key(|(since, _)| *since)?;
        watch.body.upgrade()
    }

    fn set(&mut self, owner: &str, id: u64, held: HeldByWatches) {
        let Some(owner) = self.owners.get_mut(owner) else {
            return;
        };
        let Some(watch) = owner.watches.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut watch.held, held);
        for sum in [&mut owner.held, &mut self.held] {
            sum.add(held);
            sum.subtract(before);
        }
    }
}

/// A client has read everything, and waits for what comes.
const READ: u64 = u64::MAX;

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(READ - 1)
}

impl WatchMemory {
    pub(crate) fn new(runtime: Runtime) -> Arc<Self> {
        Arc::new(Self {
            ledger: Mutex::default(),
            given_back: Notify::new(),
            ended: AtomicUsize::new(0),
            runtime,
        })
    }

    /// A watch of this request's, and its body, which [`ReadBody::begin`] is to follow.
    pub(crate) fn join(self: &Arc<Self>, ctx: &RequestContext) -> (Holding, Arc<ReadBody>) {
        let owner = owner_of(ctx);
        let body = Arc::new(ReadBody::default());
        let behind_since = Arc::new(AtomicU64::new(READ));
        let mut ledger = self.ledger.lock();
        ledger.last += 1;
        let id = ledger.last;
        let own = ledger.owners.entry(Arc::clone(&owner)).or_insert_with(|| Owner {
            held: HeldByWatches::default(),
            watches: HashMap::new(),
            frames: Arc::new(Semaphore::new(FRAMES_IN_TURN)),
        });
        let watch = Watch {
            held: HeldByWatches::default(),
            behind_since: Arc::clone(&behind_since),
            body: Arc::downgrade(&body),
        };
        own.watches.insert(id, watch);
        let holding = Holding {
            memory: Arc::clone(self),
            frames: Arc::clone(&own.frames),
            owner,
            id,
            held: HeldByWatches::default(),
            behind_since,
        };
        (holding, body)
    }

    /// Memory that all watches hold, and the number of watches that were ended since they were not read.
    pub fn figures(&self) -> (HeldByWatches, usize) {
        (self.ledger.lock().held, self.ended.load(Ordering::Relaxed))
    }

    /// Ends watches that have not been read for long, until there is room for this owner; `false` where there is none.
    fn relieve(&self, owner: &Arc<str>, more: usize) -> bool {
        loop {
            let ledger = self.ledger.lock();
            let Some(spent) = ledger.spent(owner, more) else {
                return true;
            };
            let unread = ledger.longest_behind(&spent, self.runtime.monotonic());
            drop(ledger);
            // What is polled just now is read.
            let Some(true) = unread.map(|body| body.end()) else {
                return false;
            };
            self.ended.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(owner = %spent, "a watch is ended, its client does not read");
        }
    }

    /// Looks again when watches have been unread for long, until no share is spent.
    fn sweep(self: &Arc<Self>) {
        if std::mem::replace(&mut self.ledger.lock().is_swept, true) {
            return;
        }
        let own = Arc::clone(self);
        let sweeping = async move {
            own.runtime.sleep(PATIENCE).await;
            own.ledger.lock().is_swept = false;
            let owners: Vec<Arc<str>> = own.ledger.lock().owners.keys().cloned().collect();
            let spent = owners.iter().filter(|owner| !own.relieve(owner, 0)).count();
            if spent > 0 {
                own.sweep();
            }
        };
        self.runtime.spawn("watch-memory", sweeping).detach();
    }
}

/// The namespace that an ordinary user watches, otherwise the account: many accounts in a namespace are one tenant's.
fn owner_of(ctx: &RequestContext) -> Arc<str> {
    match UserClass::of(&ctx.user) {
        UserClass::Ordinary if !ctx.namespace.is_empty() => format!("namespace {}", ctx.namespace).into(),
        _ => format!("account {}", ctx.memory_owner()).into(),
    }
}

/// Memory of one watch; dropped, it is given back.
#[derive(Debug)]
pub(crate) struct Holding {
    memory: Arc<WatchMemory>,
    owner: Arc<str>,
    id: u64,
    held: HeldByWatches,
    behind_since: Arc<AtomicU64>,
    /// Places of the owner's frames among the heavy work.
    pub(crate) frames: Arc<Semaphore>,
}

impl Holding {
    /// The client has been handed a piece, and so much is left.
    pub(crate) fn left(&mut self, held: HeldByWatches) {
        // Most watches hold nothing between two changes.
        if !(held.is_nothing() && self.held.is_nothing()) {
            self.set(held);
            let now = nanos(self.memory.runtime.monotonic());
            let since = match self.behind_since.load(Ordering::Relaxed) {
                _ if held.is_nothing() => READ,
                READ => now,
                since => since,
            };
            self.behind_since.store(since, Ordering::Relaxed);
            if !held.is_nothing() && !self.memory.relieve(&self.owner, 0) {
                self.memory.sweep();
            }
        }
    }

    /// Takes room for what is to be encoded, as soon as there is some.
    pub(crate) async fn take(&mut self, bytes: usize) {
        loop {
            let memory = Arc::clone(&self.memory);
            let mut given_back = std::pin::pin!(memory.given_back.notified());
            given_back.as_mut().enable();
            if self.try_take(bytes) || (memory.relieve(&self.owner, bytes) && self.try_take(bytes)) {
                return;
            }
            let _ = memory.runtime.timeout(PATIENCE / 10, given_back).await;
        }
    }

    fn try_take(&mut self, bytes: usize) -> bool {
        let mut ledger = self.memory.ledger.lock();
        let has_room = !ledger.is_full(&self.owner, bytes);
        if has_room {
            self.held.encoded += bytes;
            ledger.set(&self.owner, self.id, self.held);
        }
        has_room
    }

    fn set(&mut self, held: HeldByWatches) {
        let before = std::mem::replace(&mut self.held, held);
        if before == held {
            return;
        }
        self.memory.ledger.lock().set(&self.owner, self.id, held);
        if held.encoded < before.encoded {
            self.memory.given_back.notify_waiters();
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.set(HeldByWatches::default());
        let mut ledger = self.memory.ledger.lock();
        if let Some(own) = ledger.owners.get_mut(&self.owner) {
            own.watches.remove(&self.id);
            if own.watches.is_empty() {
                ledger.owners.remove(&self.owner);
            }
        }
    }
}

type Frames = Pin<Box<dyn Stream<Item = Result<Bytes, BodyError>> + Send>>;

/// The frames of a watch, which can be ended while nobody asks for them.
#[derive(Default)]
pub(crate) struct ReadBody(Mutex<Option<Frames>>);

impl std::fmt::Debug for ReadBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReadBody")
    }
}

impl ReadBody {
    /// The stream of these frames.
    pub(crate) fn begin(
        self: Arc<Self>,
        frames: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static,
    ) -> ReadFrames {
        *self.0.lock() = Some(Box::pin(frames));
        ReadFrames(self)
    }

    /// Drops what is left; `false` where it is asked for just now.
    fn end(&self) -> bool {
        let frames = self.0.try_lock().and_then(|mut frames| frames.take());
        frames.is_some()
    }
}

/// See [`ReadBody::begin`].
pub(crate) struct ReadFrames(Arc<ReadBody>);

impl Stream for ReadFrames {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match &mut *self.0.0.lock() {
            Some(frames) => frames.as_mut().poll_next(cx),
            None => Poll::Ready(Some(Err("the watch was not read".into()))),
        }
    }
}
