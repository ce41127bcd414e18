//! Memory of answers that are not read: what watches have encoded, and the stored objects that watches and other answers refer to.
//!
//! A connection takes a small piece at a time, a copy, so that all else that an answer holds can be dropped at any moment. It is
//! counted by owner: the namespace that an ordinary user reads or writes, otherwise the account. Where an owner's share is spent,
//! answers that have been behind for [`PATIENCE`] end, the longest behind first: those of the account that holds most, or else of the
//! one that needs the room.
//!
//! **Watches.** Bytes that are sent as they are stored cost references; others are counted before they are made. A client that reads
//! a little now and then holds as much as one that reads nothing. A watch that has something to encode waits for that, or until others
//! have read. References may keep objects from being freed, and most of them keep none; their share is larger, and where it is
//! spent watches end in the same way, and no watch waits.
//!
//! **Other answers** are counted as references, with the length of their objects, from [`COUNTED_BYTES`] on and until they have been
//! handed out; an owner whose share is spent gets no further ones: reads are refused, writes are answered once there is room. A
//! client that reads on is not behind. One that has not for [`LONGEST_UNREAD`] loses its answer in any case, whatever else goes on on
//! its connection.

mod account;
mod holding;
mod ledger;

use crate::read_body::{AnswerPace, READ, ReadBody, nanos};
use crate::waiting_answers::WaitingAnswers;
use account::Unread;
use apiserver_registry::{RegistryError, RequestContext};
pub(crate) use holding::{Admitted, Holding};
pub use ledger::HeldUnread;
use ledger::{Holder, Ledger, REFERRED};
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
    /// Room that any owner gives back, for answers that wait since all together hold too much.
    given_back: Arc<Notify>,
    ended: AtomicUsize,
    waiting: Arc<WaitingAnswers>,
    runtime: Runtime,
}

impl UnreadMemory {
    pub(crate) fn new(runtime: Runtime, waiting: Arc<WaitingAnswers>) -> Arc<Self> {
        Arc::new(Self {
            ledger: Mutex::default(),
            given_back: Arc::default(),
            ended: AtomicUsize::new(0),
            waiting,
            runtime,
        })
    }

    /// A watch of this request's, and its body, which [`ReadBody::begin`] is to follow.
    pub(crate) fn join(self: &Arc<Self>, ctx: &RequestContext) -> (Holding, Arc<ReadBody>) {
        let nothing = HeldUnread::default();
        self.enter(&mut self.ledger.lock(), Holder::of(ctx), None, nothing)
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
        self.try_admit(ctx, bytes).ok_or_else(RegistryError::busy)
    }

    /// The same for an answer that cannot be refused any more, since it reports what is done: waits for the room.
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
        let holder = Holder::of(ctx);
        let room = self.once_given_back(&holder, referred(bytes), || self.try_admit(ctx, bytes));
        self.waiting.wait(ctx, bytes, room).await
    }

    /// Returns the result of `attempt`, as soon as the holder has room for so much more.
    async fn once_given_back<T>(
        &self,
        holder: &Holder,
        more: HeldUnread,
        mut attempt: impl FnMut() -> Option<T>,
    ) -> T {
        loop {
            let by_all = &self.given_back;
            let place = self.ledger.lock().given_back(&holder.owner, more, by_all);
            let mut given_back = std::pin::pin!(place.notified());
            given_back.as_mut().enable();
            if let Some(done) = attempt() {
                return done;
            }
            let _ = self.runtime.timeout(PATIENCE / 10, given_back).await;
        }
    }

    /// Wakes answers that wait for this owner's room, and those that wait for any owner's.
    fn give_back(&self, own: &Notify) {
        own.notify_waiters();
        self.given_back.notify_waiters();
    }

    fn try_admit(self: &Arc<Self>, ctx: &RequestContext, bytes: usize) -> Option<Admitted> {
        if bytes < COUNTED_BYTES {
            return Some(Admitted(None));
        }
        let (holder, held) = (Holder::of(ctx), referred(bytes));
        let enter = || {
            let mut ledger = self.ledger.lock();
            let has_room = !ledger.is_full(&holder.owner, held);
            has_room.then(|| {
                let begun = nanos(self.runtime.monotonic());
                let (holding, body) = self.enter(&mut ledger, holder.clone(), Some(begun), held);
                (holding, body, !std::mem::replace(&mut ledger.is_swept, true))
            })
        };
        let entered = enter().or_else(|| self.relieve(&holder, held).then(enter).flatten());
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
        holder: Holder,
        begun: Option<u64>,
        held: HeldUnread,
    ) -> (Holding, Arc<ReadBody>) {
        let body = Arc::new(ReadBody::default());
        let behind_since = Arc::new(AtomicU64::new(begun.unwrap_or(READ)));
        let unread = Unread {
            is_watch: begun.is_none(),
            held,
            behind_since: Arc::clone(&behind_since),
            body: Arc::downgrade(&body),
            noted: None,
        };
        let (id, frames) = ledger.enter(&holder, unread);
        let holding = Holding {
            memory: Arc::clone(self),
            frames,
            holder,
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

    /// Ends answers that have not been read for long, or hold more than others may, until there is room for this holder;
    /// `false` where there is none.
    fn relieve(&self, holder: &Holder, more: HeldUnread) -> bool {
        let now = self.runtime.monotonic();
        loop {
            let mut ledger = self.ledger.lock();
            let Some(spent) = ledger.spent(&holder.owner, more) else {
                return true;
            };
            let Some(body) = ledger.next_to_end(&spent, holder, more, now) else {
                return false;
            };
            drop(ledger);
            // What is polled just now is read.
            if body.end() {
                self.note_end();
            }
        }
    }

    fn note_end(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        tracing::debug!("an answer is ended, its client does not read");
    }

    /// Looks again when answers have been unread for long, until no share is spent and no answer is left.
    fn sweep(self: &Arc<Self>) {
        if !std::mem::replace(&mut self.ledger.lock().is_swept, true) {
            self.begin_sweep();
        }
    }

    fn end_expired(&self) {
        loop {
            let expired = self.ledger.lock().expired(self.runtime.monotonic());
            if expired.is_empty() {
                return;
            }
            for body in expired {
                if body.end() {
                    self.note_end();
                }
            }
        }
    }

    fn begin_sweep(self: &Arc<Self>) {
        let own = Arc::clone(self);
        let sweeping = async move {
            own.runtime.sleep(PATIENCE).await;
            own.ledger.lock().is_swept = false;
            own.end_expired();
            let (nothing, holders) = (HeldUnread::default(), own.ledger.lock().holders());
            let spent = holders
                .iter()
                .filter(|holder| !own.relieve(holder, nothing))
                .count();
            if spent > 0 || own.ledger.lock().answers > 0 {
                own.sweep();
            }
        };
        self.runtime.spawn("unread-memory", sweeping).detach();
    }
}

/// Answers refer to so much, and a single one is never too large: what is stored has bounds of its own.
fn referred(bytes: usize) -> HeldUnread {
    HeldUnread {
        encoded: 0,
        referred: bytes.min(REFERRED.of_owner),
    }
}

#[cfg(test)]
mod tests;
