//! Parts that the back ends of audit share: their modes, events on their way, and the count of those.

use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, oneshot};

/// Strategy of a back end for requests whose events are not written yet, as upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AuditMode {
    /// Requests do not wait for their events.
    Batch,
    /// Requests wait for their events, and go on without those that cannot be written.
    #[default]
    Blocking,
    /// The same, and a request whose first event cannot be written is refused.
    BlockingStrict,
}

/// An event on its way to the back ends, of those whose outcome a request waits for.
#[derive(Debug, Default)]
pub(super) struct Written(Vec<Pending>);

#[derive(Debug)]
struct Pending {
    written: oneshot::Receiver<bool>,
    is_strict: bool,
}

impl Written {
    /// An event of which the other end says whether it is written.
    pub(super) fn pending(written: oneshot::Receiver<bool>, mode: AuditMode) -> Self {
        let is_strict = mode == AuditMode::BlockingStrict;
        Self(vec![Pending { written, is_strict }])
    }

    /// The same event on its way to another back end as well.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Resolves when every back end has the event (`true`), or one does not get it.
    pub(super) async fn done(self) -> bool {
        self.outcome().await.0
    }

    /// Resolves when every back end has the event or does not get it; `false` where the request is to be refused for that.
    pub(super) async fn lets_request_go_on(self) -> bool {
        self.outcome().await.1
    }

    async fn outcome(self) -> (bool, bool) {
        let (mut is_written, mut goes_on) = (true, true);
        for Pending { written, is_strict } in self.0 {
            // A server that has ended writes nothing any more.
            let own = written.await.unwrap_or(false);
            is_written &= own;
            goes_on &= own || !is_strict;
        }
        (is_written, goes_on)
    }
}

/// Events that a back end has taken and not finished.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    events: AtomicUsize,
    bytes: AtomicUsize,
    changed: Notify,
}

impl Backlog {
    pub(super) fn events(&self) -> usize {
        self.events.load(Ordering::Acquire)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Reports whether fewer events and bytes than these are there.
    pub(super) fn has_room(&self, events: usize, bytes: usize) -> bool {
        self.events() < events && self.bytes() < bytes
    }

    pub(super) fn add(&self, bytes: usize) {
        self.events.fetch_add(1, Ordering::AcqRel);
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    pub(super) fn remove(&self, events: usize, bytes: usize) {
        self.events.fetch_sub(events, Ordering::AcqRel);
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// Resolves when there is room for another event within these bounds.
    pub(super) async fn room(&self, events: usize, bytes: usize) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // A change between the look and the wait counts.
            changed.as_mut().enable();
            if self.has_room(events, bytes) {
                return;
            }
            changed.await;
        }
    }

    /// Resolves when nothing is on its way.
    pub(super) async fn emptied(&self) {
        self.room(1, usize::MAX).await;
    }
}
