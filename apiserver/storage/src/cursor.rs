//! A watch: a mark in the order of changes.

use crate::feed::{Feed, Scan, Slot};
use crate::{Event, StorageError, WatchCursor, WatchRequest};
use futures::future::BoxFuture;
use machinery_meta::Revision;
use parking_lot::RwLock;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The owner of a feed, which also knows the changes that memory no longer has.
pub(crate) trait Changes: Send + Sync + 'static {
    fn feed(&self) -> &RwLock<Feed>;

    /// The changes from `from` to at most `until` that a cursor wants, about `max`.
    fn past(
        self: Arc<Self>,
        slot: Arc<Slot>,
        from: Revision,
        until: Revision,
        max: usize,
    ) -> BoxFuture<'static, Result<PastEvents, StorageError>>;

    /// The changes as a reader is given them, where they are kept in another form.
    fn readable(&self, events: Vec<Arc<Event>>) -> Result<Vec<Arc<Event>>, StorageError> {
        Ok(events)
    }
}

/// Changes read for one cursor from where they are kept.
#[derive(Debug)]
pub(crate) struct PastEvents {
    pub(crate) events: Vec<Arc<Event>>,
    /// The revision at which the cursor continues.
    pub(crate) next: Revision,
}

/// A cursor on a feed.
pub(crate) struct FeedCursor<C: Changes> {
    changes: Arc<C>,
    slot: Arc<Slot>,
    /// A read of older changes, under way.
    past: Option<BoxFuture<'static, Result<PastEvents, StorageError>>>,
}

impl<C: Changes> FeedCursor<C> {
    pub(crate) fn open(changes: &Arc<C>, request: WatchRequest) -> Result<Self, StorageError> {
        // One lock for check and registration: a change in between would be neither in the past nor marked.
        let mut feed = changes.feed().write();
        let (asked, current, compacted) = (request.after, feed.current(), feed.compacted());
        if request.interests.is_empty() {
            return Err(StorageError::InvalidGroup("a watch needs an interest"));
        }
        if asked > current {
            return Err(StorageError::Future { asked, current });
        }
        if asked < compacted {
            return Err(StorageError::Compacted { asked, compacted });
        }
        let slot = feed.register(request.interests, asked);
        drop(feed);
        Ok(Self {
            changes: Arc::clone(changes),
            slot,
            past: None,
        })
    }

    fn poll_past(&mut self, cx: &mut Context<'_>) -> Option<Poll<Result<Vec<Arc<Event>>, StorageError>>> {
        let read = self.past.as_mut()?;
        let Poll::Ready(result) = read.as_mut().poll(cx) else {
            return Some(Poll::Pending);
        };
        self.past = None;
        match result {
            Err(error) => Some(Poll::Ready(Err(error))),
            Ok(past) => {
                // The mark is changed under the lock, or a change that is pushed meanwhile would set it back to
                // a later one.
                let _feed = self.changes.feed().read();
                self.slot.go_on(past.next);
                // Nothing of interest in what was read: go on.
                (!past.events.is_empty()).then(|| Poll::Ready(self.changes.readable(past.events)))
            }
        }
    }
}

impl<C: Changes> WatchCursor for FeedCursor<C> {
    fn poll_batch(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Vec<Arc<Event>>, StorageError>> {
        let max = max.max(1);
        loop {
            if let Some(answer) = self.poll_past(cx) {
                return answer;
            }
            let scan = self.changes.feed().read().scan(&self.slot, cx.waker(), max);
            match scan {
                Scan::Idle => return Poll::Pending,
                Scan::Found(events) => return Poll::Ready(self.changes.readable(events)),
                Scan::Compacted { asked, compacted } => {
                    return Poll::Ready(Err(StorageError::Compacted { asked, compacted }));
                }
                Scan::Closed => {
                    return Poll::Ready(Err(StorageError::Closed));
                }
                Scan::Behind { from, until } => {
                    let (changes, slot) = (Arc::clone(&self.changes), Arc::clone(&self.slot));
                    self.past = Some(changes.past(slot, from, until, max));
                }
            }
        }
    }

    fn position(&self) -> Revision {
        self.changes.feed().read().position(&self.slot)
    }

    fn outstanding_since(&self) -> Option<Duration> {
        self.slot.raised()
    }
}

impl<C: Changes> Drop for FeedCursor<C> {
    fn drop(&mut self) {
        self.changes.feed().write().unregister(&self.slot);
    }
}

impl<C: Changes> fmt::Debug for FeedCursor<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedCursor")
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}
