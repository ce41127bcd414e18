//! Changes as they are delivered.

use crate::{Entry, Key, Prefix, StorageError};
use machinery_meta::Revision;
use std::fmt::Debug;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// One change of one object.
#[derive(Debug, PartialEq, Eq)]
pub struct Event {
    /// The change's place in the order; of a deletion too.
    pub revision: Revision,
    pub key: Key,
    /// The entry after the change; `None` after a deletion.
    pub entry: Option<Arc<Entry>>,
    /// The entry before the change; `None` before a creation.
    pub previous: Option<Arc<Entry>>,
}

/// The keys and selectors of a watch. A change matches if the object matches before or after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchFilter {
    pub target: Target,
    /// A selectable field of the header and the value it must have (`spec.nodeName`, a node). The watch is woken for
    /// changes of such objects only.
    pub field: Option<(Box<str>, Box<str>)>,
}

/// The keys of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Key(Key),
    Prefix(Prefix),
}

/// The start of a watch, and its filter.
#[derive(Debug, Clone)]
pub struct WatchRequest {
    /// At least one. An event that matches several is delivered once.
    pub interests: Vec<WatchFilter>,
    /// Everything later than this is delivered.
    pub after: Revision,
}

/// A place in the order of changes. It has no queue: unread changes cost nothing, and a reader too slow
/// for the history that is kept gets [`StorageError::Compacted`].
pub trait WatchCursor: Send + Debug {
    /// The next changes of interest, in order, at least one, and about `max`: those that share a revision come together.
    /// After an error the cursor is finished.
    ///
    /// Errors: [`StorageError::Compacted`] when the next changes are no longer kept; others when the backend fails.
    fn poll_batch(&mut self, cx: &mut Context<'_>, max: usize)
    -> Poll<Result<Vec<Arc<Event>>, StorageError>>;

    /// Every change of interest up to and including this revision has been returned. Never goes back. A bookmark may
    /// say so to a client that was sent what was returned.
    fn position(&self) -> Revision;

    /// Earliest time, by the runtime's clock, of the first of the changes returned last; `None` where it is not known.
    /// The delay of a reader shows how busy the machine is.
    fn outstanding_since(&self) -> Option<Duration> {
        None
    }
}

impl dyn WatchCursor {
    /// [`WatchCursor::poll_batch`] as a future. Dropping it loses nothing.
    pub async fn next_batch(&mut self, max: usize) -> Result<Vec<Arc<Event>>, StorageError> {
        poll_fn(|cx| self.poll_batch(cx, max)).await
    }
}

impl Event {
    pub fn is_create(&self) -> bool {
        self.entry
            .as_ref()
            .is_some_and(|entry| entry.created == entry.revision)
    }

    pub fn is_delete(&self) -> bool {
        self.entry.is_none()
    }

    /// The object the event is about: as it is, or as it last was.
    pub fn object(&self) -> &Arc<Entry> {
        self.entry
            .as_ref()
            .or(self.previous.as_ref())
            .expect("an event has the object before or after it")
    }
}

impl WatchFilter {
    /// Everything below a prefix.
    pub fn prefix(prefix: Prefix) -> Self {
        Self {
            target: Target::Prefix(prefix),
            field: None,
        }
    }

    /// One object.
    pub fn key(key: Key) -> Self {
        Self {
            target: Target::Key(key),
            field: None,
        }
    }

    /// Narrows it to objects with this value in a selectable field, before or after the change.
    #[must_use]
    pub fn with_field(self, path: &str, value: &str) -> Self {
        Self {
            field: Some((path.into(), value.into())),
            ..self
        }
    }

    /// Reports whether the watch receives the event.
    pub fn matches(&self, event: &Event) -> bool {
        self.target.covers(&event.key)
            && self
                .field
                .as_ref()
                .is_none_or(|(path, value)| event.had_or_has(path, value))
    }
}

impl WatchFilter {
    /// Reports whether the version before a change, or the one after it, is enough to know that the event is to be delivered.
    pub(crate) fn matches_version(&self, key: &Key, version: Option<&Entry>) -> bool {
        self.target.covers(key)
            && self.field.as_ref().is_none_or(|(path, value)| {
                version.is_some_and(|entry| {
                    entry.record.is_sealed() || entry.record.header.field(path) == Some(&**value)
                })
            })
    }
}

impl Target {
    /// Reports whether the target includes the key.
    pub fn covers(&self, key: &Key) -> bool {
        match self {
            Self::Key(own) => own == key,
            Self::Prefix(prefix) => prefix.contains(key),
        }
    }
}

impl Event {
    fn had_or_has(&self, path: &str, value: &str) -> bool {
        self.is_unreadable()
            || self
                .versions()
                .any(|entry| entry.record.header.field(path) == Some(value))
    }

    fn versions(&self) -> impl Iterator<Item = &Arc<Entry>> {
        [&self.entry, &self.previous].into_iter().flatten()
    }

    /// Reports whether it is unknown which fields the object has or had: the change concerns every watch of the key.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.versions().any(|entry| entry.record.is_sealed())
    }
}
