//! Streams of one connection that have not ended both ways, and what becomes of data on them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::super::unread::UnreadSender;

/// Streams at once on one connection.
pub(super) const STREAMS_MAX: usize = 512;

/// Fate of data that comes on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Dropped: only this side writes there, or has not answered yet (upstream's `spdystream` drops that too).
    Dropped,
    /// Ends the stream: it has no reader yet.
    Refused,
    /// Kept for the reader.
    Kept,
}

/// Treatment of the data of a stream.
#[derive(Debug)]
pub(super) enum Fate {
    Drop,
    Refuse,
    Keep(UnreadSender),
}

/// Reason for which a stream cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The id was used before, or is one of ours.
    Id,
    /// There are [`STREAMS_MAX`].
    Full,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Streams {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    open: HashMap<u32, Entry>,
    /// The highest id of the other side.
    last_id: u32,
    /// The connection has ended.
    is_closed: bool,
}

#[derive(Debug)]
struct Entry {
    /// Destination of data; `None` once the other side has ended.
    incoming: Option<UnreadSender>,
    reading: Reading,
    has_ended_here: bool,
    reset: Arc<Notify>,
}

impl Streams {
    /// Enters a stream of the other side. Upstream's `validateStreamId`: ids grow.
    pub(super) fn accept(
        &self,
        id: u32,
        parity: u32,
        incoming: Option<UnreadSender>,
    ) -> Result<Arc<Notify>, Refusal> {
        let mut inner = self.inner.lock();
        if id <= inner.last_id || id % 2 != parity {
            return Err(Refusal::Id);
        }
        inner.last_id = id;
        if inner.open.len() >= STREAMS_MAX {
            return Err(Refusal::Full);
        }
        Ok(inner.enter(id, incoming, Reading::Dropped))
    }

    /// Enters a stream of ours; `None` if the connection has ended.
    pub(super) fn open(&self, id: u32, incoming: UnreadSender) -> Option<Arc<Notify>> {
        let mut inner = self.inner.lock();
        (!inner.is_closed).then(|| inner.enter(id, Some(incoming), Reading::Kept))
    }

    /// Ends what comes in on all of them, with the connection.
    pub(super) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.is_closed = true;
        inner.open.clear();
    }

    /// Settles what becomes of data from now on.
    pub(super) fn set_reading(&self, id: u32, reading: Reading) {
        if let Some(entry) = self.inner.lock().open.get_mut(&id) {
            entry.reading = reading;
        }
    }

    pub(super) fn fate(&self, id: u32) -> Fate {
        match self.inner.lock().open.get(&id) {
            Some(Entry {
                incoming: Some(incoming),
                reading,
                ..
            }) => match reading {
                Reading::Dropped => Fate::Drop,
                Reading::Refused => Fate::Refuse,
                Reading::Kept => Fate::Keep(incoming.clone()),
            },
            _ => Fate::Drop,
        }
    }

    /// The other side sends no more.
    pub(super) fn ended_there(&self, id: u32) {
        self.inner.lock().end(id, |entry| entry.incoming = None);
    }

    /// The other side has ended the stream both ways. It counts until this side has ended with it too.
    pub(super) fn reset_there(&self, id: u32) {
        self.inner.lock().end(id, |entry| {
            entry.incoming = None;
            entry.reset.notify_one();
        });
    }

    /// This side sends no more.
    pub(super) fn ended_here(&self, id: u32) {
        self.inner.lock().end(id, |entry| entry.has_ended_here = true);
    }

    /// This side ends the stream both ways; false if it had ended before.
    pub(super) fn remove(&self, id: u32) -> bool {
        self.inner.lock().open.remove(&id).is_some()
    }

    /// Removes a stream without a handle; true if the other side should be informed.
    pub(super) fn abandon(&self, id: u32) -> bool {
        let mut inner = self.inner.lock();
        match inner.open.get(&id) {
            // What the other side still sends is dropped, and it ends the stream itself.
            Some(entry) if entry.has_ended_here => false,
            Some(_) => inner.open.remove(&id).is_some(),
            None => false,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.inner.lock().open.len()
    }
}

impl Inner {
    fn enter(&mut self, id: u32, incoming: Option<UnreadSender>, reading: Reading) -> Arc<Notify> {
        let reset = Arc::new(Notify::new());
        let entry = Entry {
            incoming,
            reading,
            has_ended_here: false,
            reset: Arc::clone(&reset),
        };
        self.open.insert(id, entry);
        reset
    }

    fn end(&mut self, id: u32, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.open.get_mut(&id) else {
            return;
        };
        change(entry);
        if entry.has_ended_here && entry.incoming.is_none() {
            self.open.remove(&id);
        }
    }
}
