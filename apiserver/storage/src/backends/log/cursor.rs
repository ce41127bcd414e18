//! A watch: a mark in the order of changes.

use super::engine::Engine;
use super::feed::{Scan, Slot};
use super::past::PastEvents;
use super::seal;
use crate::{Event, StorageError, WatchCursor, WatchRequest};
use futures::future::BoxFuture;
use machinery_meta::Revision;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A cursor of the segment log.
pub(super) struct LogCursor {
    engine: Arc<Engine>,
    slot: Arc<Slot>,
    /// A read of older changes from the log, under way.
    past: Option<BoxFuture<'static, Result<PastEvents, StorageError>>>,
}

impl LogCursor {
    pub(super) fn open(engine: &Arc<Engine>, request: WatchRequest) -> Result<Self, StorageError> {
        let mut feed = engine.feed.write();
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
        Ok(Self {
            engine: Arc::clone(engine),
            slot,
            past: None,
        })
    }

    fn readable(&self, events: Vec<Arc<Event>>) -> Result<Vec<Arc<Event>>, StorageError> {
        seal::readable(self.engine.options.encryption.as_deref(), events)
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
                let _feed = self.engine.feed.read();
                self.slot.set_mark(past.next);
                // Nothing of interest in what was read: go on.
                (!past.events.is_empty()).then(|| Poll::Ready(self.readable(past.events)))
            }
        }
    }
}

impl WatchCursor for LogCursor {
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
            let scan = self.engine.feed.read().scan(&self.slot, cx.waker(), max);
            match scan {
                Scan::Idle => return Poll::Pending,
                Scan::Found(events) => return Poll::Ready(self.readable(events)),
                Scan::Compacted { asked, compacted } => {
                    return Poll::Ready(Err(StorageError::Compacted { asked, compacted }));
                }
                Scan::Closed => {
                    return Poll::Ready(Err(StorageError::Closed));
                }
                Scan::Behind { from, until } => {
                    let (engine, slot) = (Arc::clone(&self.engine), Arc::clone(&self.slot));
                    self.past = Some(Box::pin(async move {
                        engine.past_events(slot, from, until, max).await
                    }));
                }
            }
        }
    }

    fn position(&self) -> Revision {
        self.engine.feed.read().position(&self.slot)
    }

    fn outstanding_since(&self) -> Option<Duration> {
        self.slot.raised()
    }
}

impl Drop for LogCursor {
    fn drop(&mut self) {
        self.engine.feed.write().unregister(&self.slot);
    }
}

impl fmt::Debug for LogCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogCursor")
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}
