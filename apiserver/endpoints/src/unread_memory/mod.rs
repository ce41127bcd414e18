//! Memory of answers that are not read: what watches have encoded, and the stored objects that watches and other answers refer to.
//!
//! A connection takes a small piece at a time, a copy, so that all else that an answer holds can be dropped at any moment. It is
//! counted by owner: the namespace that an ordinary user reads or writes, otherwise the account. Where an owner's share is spent, those
//! of its answers that have been behind for [`PATIENCE`] end, the longest behind first.
//!
//! **Watches.** What is sent as it is stored costs references; what is encoded anew is counted before it is made. A client that reads
//! a little now and then holds as much as one that reads nothing. A watch that has something to encode waits for that, or until others
//! have read. References may keep objects from being freed, and most of them keep none; their share is larger, and where it is
//! spent watches end in the same way, and no watch waits.
//!
//! **Other answers** are counted as references, with the length of their objects, from [`COUNTED_BYTES`] on and until they have been
//! handed out; an owner whose share is spent gets no further ones: reads are refused, writes are answered once there is room. A
//! client that reads on is not behind. One that has not for [`LONGEST_UNREAD`] loses its answer in any case, whatever else goes on on
//! its connection.

mod holding;
mod ledger;

use crate::list_memory::too_many_requests;
use crate::read_body::{AnswerPace, READ, ReadBody, nanos};
use crate::waiting_answers::WaitingAnswers;
use apiserver_registry::{RegistryError, RequestContext, UserClass};
pub(crate) use holding::{Admitted, Holding};
pub use ledger::HeldUnread;
use ledger::{Ledger, Owner, REFERRED, Unread};
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// A client that has not read all of what it was sent for so long, or has not read on, may lose its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// A client that does not read on for so long loses its answer: the time of an idle connection. Watches have no such end.
const LONGEST_UNREAD: Duration = Duration::from_secs(90);
/// Smaller answers are not counted. 2,048 connections of an address with 250 streams each hold a gibibyte of them, less than their
/// streams take by themselves.
const COUNTED_BYTES: usize = 2 << 10;

/// See the module.
#[derive(Debug)]
pub struct UnreadMemory {
    ledger: Mutex<Ledger>,
    given_back: Notify,
    ended: AtomicUsize,
    waiting: Arc<WaitingAnswers>,
    runtime: Runtime,
}

impl UnreadMemory {
    pub(crate) fn new(runtime: Runtime, waiting: Arc<WaitingAnswers>) -> Arc<Self> {
        Arc::new(Self {
            ledger: Mutex::default(),
            given_back: Notify::new(),
            ended: AtomicUsize::new(0),
            waiting,
            runtime,
        })
    }

    /// A watch of this request's, and its body, which [`ReadBody::begin`] is to follow.
    pub(crate) fn join(self: &Arc<Self>, ctx: &RequestContext) -> (Holding, Arc<ReadBody>) {
        let nothing = HeldUnread::default();
        self.enter(&mut self.ledger.lock(), owner_of(ctx), None, nothing)
    }

    /// Room for an answer that refers to objects of so many bytes.
    ///
    /// # Errors
    /// [`RegistryError::TooManyRequests`] where the owner's share is spent.
    pub(crate) fn admit(
        self: &Arc<Self>,
        ctx: &RequestContext,
        bytes: usize,
    ) -> Result<Admitted, RegistryError> {
        self.try_admit(ctx, bytes).ok_or_else(too_many_requests)
    }

    /// The same for an answer that cannot be refused any more, since what it tells of is done: waits for the room.
    ///
    /// # Errors
    /// Those of [`WaitingAnswers::wait`].
    pub(crate) async fn admit_in_turn(
        self: &Arc<Self>,
        ctx: &RequestContext,
        bytes: usize,
    ) -> Result<Admitted, RegistryError> {
        if let Some(admitted) = self.try_admit(ctx, bytes) {
            return Ok(admitted);
        }
        self.waiting.wait(ctx, bytes, self.room(ctx, bytes)).await
    }

    async fn room(self: &Arc<Self>, ctx: &RequestContext, bytes: usize) -> Admitted {
        loop {
            let mut given_back = std::pin::pin!(self.given_back.notified());
            given_back.as_mut().enable();
            if let Some(admitted) = self.try_admit(ctx, bytes) {
                return admitted;
            }
            let _ = self.runtime.timeout(PATIENCE / 10, given_back).await;
        }
    }

    fn try_admit(self: &Arc<Self>, ctx: &RequestContext, bytes: usize) -> Option<Admitted> {
        if bytes < COUNTED_BYTES {
            return Some(Admitted(None));
        }
        // A single answer is never too large: what is stored has bounds of its own.
        let held = HeldUnread {
            encoded: 0,
            referred: bytes.min(REFERRED.of_owner),
        };
        let owner = owner_of(ctx);
        let enter = || {
            let mut ledger = self.ledger.lock();
            let has_room = !ledger.is_full(&owner, held);
            has_room.then(|| {
                let begun = nanos(self.runtime.monotonic());
                let (holding, body) = self.enter(&mut ledger, Arc::clone(&owner), Some(begun), held);
                (holding, body, !std::mem::replace(&mut ledger.is_swept, true))
            })
        };
        let entered = enter().or_else(|| self.relieve(&owner, held).then(enter).flatten());
        let (holding, body, is_to_sweep) = entered?;
        if is_to_sweep {
            self.begin_sweep();
        }
        let pace = AnswerPace::new(bytes, &holding.behind_since, &self.runtime);
        Some(Admitted(Some((holding, body, pace))))
    }

    /// Enters an answer that is behind since it has begun, or a watch, which is not behind.
    fn enter(
        self: &Arc<Self>,
        ledger: &mut Ledger,
        owner: Arc<str>,
        begun: Option<u64>,
        held: HeldUnread,
    ) -> (Holding, Arc<ReadBody>) {
        let body = Arc::new(ReadBody::default());
        let behind_since = Arc::new(AtomicU64::new(begun.unwrap_or(READ)));
        ledger.last += 1;
        let id = ledger.last;
        ledger.held.add(held);
        ledger.answers += usize::from(begun.is_some());
        let own = ledger.owners.entry(Arc::clone(&owner)).or_insert_with(Owner::new);
        own.held.add(held);
        let unread = Unread {
            is_watch: begun.is_none(),
            held,
            behind_since: Arc::clone(&behind_since),
            body: Arc::downgrade(&body),
        };
        own.answers.insert(id, unread);
        let holding = Holding {
            memory: Arc::clone(self),
            frames: Arc::clone(&own.frames),
            owner,
            id,
            held,
            behind_since,
        };
        (holding, body)
    }

    /// Memory that all answers hold, and the number of answers that were ended since they were not read.
    pub fn figures(&self) -> (HeldUnread, usize) {
        (self.ledger.lock().held, self.ended.load(Ordering::Relaxed))
    }

    /// Ends answers that have not been read for long, until there is room for this owner; `false` where there is none.
    fn relieve(&self, owner: &Arc<str>, more: HeldUnread) -> bool {
        loop {
            let mut ledger = self.ledger.lock();
            let Some(spent) = ledger.spent(owner, more) else {
                return true;
            };
            let behind = ledger.behind(&spent, self.runtime.monotonic());
            drop(ledger);
            let mut has_ended = false;
            for body in behind {
                // What is polled just now is read.
                if body.end() {
                    has_ended = true;
                    self.note_end(&spent);
                    if self.ledger.lock().spent(owner, more).as_ref() != Some(&spent) {
                        break;
                    }
                }
            }
            if !has_ended {
                return false;
            }
        }
    }

    fn note_end(&self, owner: &str) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(owner, "an answer is ended, its client does not read");
    }

    /// Looks again when answers have been unread for long, until no share is spent and no answer is left.
    fn sweep(self: &Arc<Self>) {
        if !std::mem::replace(&mut self.ledger.lock().is_swept, true) {
            self.begin_sweep();
        }
    }

    fn begin_sweep(self: &Arc<Self>) {
        let own = Arc::clone(self);
        let sweeping = async move {
            own.runtime.sleep(PATIENCE).await;
            let (owners, expired) = {
                let mut ledger = own.ledger.lock();
                ledger.is_swept = false;
                let owners: Vec<Arc<str>> = ledger.owners.keys().cloned().collect();
                (owners, ledger.expired(own.runtime.monotonic()))
            };
            for body in expired {
                if body.end() {
                    own.note_end("any");
                }
            }
            let nothing = HeldUnread::default();
            let spent = owners.iter().filter(|owner| !own.relieve(owner, nothing)).count();
            if spent > 0 || own.ledger.lock().answers > 0 {
                own.sweep();
            }
        };
        self.runtime.spawn("unread-memory", sweeping).detach();
    }
}

/// The namespace that an ordinary user's request is about, otherwise the account: many accounts in a namespace are one tenant's.
fn owner_of(ctx: &RequestContext) -> Arc<str> {
    match UserClass::of(&ctx.user) {
        UserClass::Ordinary if !ctx.namespace.is_empty() => format!("namespace {}", ctx.namespace).into(),
        _ => format!("account {}", ctx.memory_owner()).into(),
    }
}
