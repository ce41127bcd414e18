//! Events of a watch that a client in the server's own process receives as they are stored: shared bytes and the header that
//! the storage parsed once.
//!
//! The client sends [`SharedEvents`] among the extensions of its HTTP request. The watch puts events there, and an empty piece
//! of the answer's body says that there are some: the answer passes all filters, bounds and faults as any other, and no event
//! is delivered that its body does not announce. Nothing from a network can have such an extension.

use crate::{ObjectHeader, Revision};
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An object as it is stored.
#[derive(Debug, Clone)]
pub struct SharedObject {
    /// The stored header.
    pub header: Arc<ObjectHeader>,
    /// The revision of the change, of a removed object that of its removal.
    pub revision: Revision,
    /// Slices that joined are the object in JSON.
    pub json: [Bytes; 4],
}

/// An event of a watch.
#[derive(Debug, Clone)]
pub enum SharedEvent {
    /// An object was added or changed.
    Set(SharedObject),
    /// An object is gone; this is how it last was.
    Gone(SharedObject),
    /// Everything up to this revision has been delivered (a bookmark).
    Reached {
        revision: Revision,
        /// True if that is all of the initial state.
        ends_initial_events: bool,
    },
    /// Any other event, as it is sent to clients in other processes: a line of JSON.
    Line(Bytes),
}

/// Events that were announced and not yet taken, of one watch. Clones are the same events.
#[derive(Clone, Default)]
pub struct SharedEvents(Arc<Mutex<VecDeque<SharedEvent>>>);

impl fmt::Debug for SharedEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedEvents").field(&self.lock().len()).finish()
    }
}

impl SharedEvents {
    /// Puts an event behind the others.
    pub fn push(&self, event: SharedEvent) {
        self.lock().push_back(event);
    }

    /// Takes all events.
    pub fn take(&self) -> VecDeque<SharedEvent> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<SharedEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
