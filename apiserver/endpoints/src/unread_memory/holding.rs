//! What one answer holds.

use super::{HeldUnread, PATIENCE, UnreadMemory};
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
    pub(super) owner: Arc<str>,
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
            self.set(held);
            let now = nanos(self.memory.runtime.monotonic());
            let since = match self.behind_since.load(Ordering::Relaxed) {
                _ if held.is_nothing() => READ,
                READ => now,
                since => since,
            };
            self.behind_since.store(since, Ordering::Relaxed);
            if !held.is_nothing() && !self.memory.relieve(&self.owner, HeldUnread::default()) {
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
        loop {
            let memory = Arc::clone(&self.memory);
            let mut given_back = std::pin::pin!(memory.given_back.notified());
            given_back.as_mut().enable();
            if self.try_take(more) || (memory.relieve(&self.owner, more) && self.try_take(more)) {
                return;
            }
            let _ = memory.runtime.timeout(PATIENCE / 10, given_back).await;
        }
    }

    fn try_take(&mut self, more: HeldUnread) -> bool {
        let mut ledger = self.memory.ledger.lock();
        let has_room = !ledger.is_full(&self.owner, more);
        if has_room {
            self.held.add(more);
            ledger.set(&self.owner, self.id, self.held);
        }
        has_room
    }

    fn set(&mut self, held: HeldUnread) {
        let before = std::mem::replace(&mut self.held, held);
        if before == held {
            return;
        }
        self.memory.ledger.lock().set(&self.owner, self.id, held);
        if held.encoded < before.encoded || held.is_nothing() {
            self.memory.given_back.notify_waiters();
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.set(HeldUnread::default());
        let mut ledger = self.memory.ledger.lock();
        if let Some(own) = ledger.owners.get_mut(&self.owner) {
            let unread = own.answers.remove(&self.id);
            if own.answers.is_empty() {
                ledger.owners.remove(&self.owner);
            }
            ledger.answers -= usize::from(unread.is_some_and(|unread| !unread.is_watch));
        }
    }
}
