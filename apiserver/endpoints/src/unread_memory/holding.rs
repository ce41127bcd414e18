//! Memory that one answer holds.

use super::ledger::Holder;
use super::{HeldUnread, UnreadMemory};
use crate::body::Body;
use crate::read_body::{AnswerPace, READ, ReadBody, nanos};
use http::Response;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Semaphore;

/// Room for an answer; it is free again when the answer has been handed out or given up.
#[derive(Debug)]
pub(crate) struct Admitted(pub(super) Option<(Holding, Arc<ReadBody>, AnswerPace)>);

impl Admitted {
    pub(crate) fn with(self, answer: Response<Body>) -> Response<Body> {
        match self.0 {
            Some((holding, rest, pace)) => answer.map(|body| rest.begin(body.holding(holding), Some(pace))),
            None => answer,
        }
    }
}

/// Memory of one answer; dropped, it is given back.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(super) memory: Arc<UnreadMemory>,
    pub(super) holder: Holder,
    pub(super) id: u64,
    pub(super) held: HeldUnread,
    pub(super) behind_since: Arc<AtomicU64>,
    /// Places of the owner's frames among the heavy work.
    pub(crate) frames: Arc<Semaphore>,
}

impl Holding {
    /// The client has been handed a piece, and so much is left.
    pub(crate) fn left(&mut self, held: HeldUnread) {
        // Most watches hold nothing between two changes.
        if !(held.is_nothing() && self.held.is_nothing()) {
            let now = nanos(self.memory.runtime.monotonic());
            let since = match self.behind_since.load(Ordering::Relaxed) {
                _ if held.is_nothing() => READ,
                READ => now,
                since => since,
            };
            self.behind_since.store(since, Ordering::Relaxed);
            self.set(held);
            if !held.is_nothing() && !self.memory.relieve(&self.holder, HeldUnread::default()) {
                self.memory.sweep();
            }
        }
    }

    /// Takes room for what is to be encoded, as soon as there is some.
    pub(crate) async fn take(&mut self, bytes: usize) {
        let more = HeldUnread {
            encoded: bytes,
            referred: 0,
        };
        let (memory, holder) = (Arc::clone(&self.memory), self.holder.clone());
        let take = || {
            let has_taken = self.try_take(more) || (memory.relieve(&holder, more) && self.try_take(more));
            has_taken.then_some(())
        };
        memory.once_given_back(&holder, more, take).await;
    }

    fn try_take(&mut self, more: HeldUnread) -> bool {
        let mut ledger = self.memory.ledger.lock();
        let has_room = !ledger.is_full(&self.holder.owner, more);
        if has_room {
            self.held.add(more);
            ledger.set(&self.holder, self.id, self.held);
        }
        has_room
    }

    fn set(&mut self, held: HeldUnread) {
        let before = std::mem::replace(&mut self.held, held);
        let given_back = self.memory.ledger.lock().set(&self.holder, self.id, held);
        let is_less = held.encoded < before.encoded || (held.is_nothing() && before != held);
        if let Some(own) = given_back.filter(|_| is_less) {
            self.memory.give_back(&own);
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let given_back = self.memory.ledger.lock().remove(&self.holder, self.id);
        if let Some(own) = given_back.filter(|_| !self.held.is_nothing()) {
            self.memory.give_back(&own);
        }
    }
}
