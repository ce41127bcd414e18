//! Reads of what is no longer in memory: older changes for a slow watch, older states for a list.

use super::engine::Engine;
use super::format::Stored;
use super::seal;
use crate::cursor::PastEvents;
use crate::feed::Slot;
use crate::live::{Root, below};
use crate::{Entry, Event, Key, Prefix, StorageError};
use machinery_meta::Revision;
use machinery_runtime::TaskEnded;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// One read for a cursor looks at no more bytes of records than this.
const READ_BYTES: usize = 4 << 20;
/// Nor at more changes.
const READ_CHANGES: u64 = 20_000;

impl Engine {
    /// The changes from `from` to at most `until` that a cursor wants, at most `max`.
    pub(super) async fn past_events(
        self: Arc<Self>,
        slot: Arc<Slot>,
        from: Revision,
        until: Revision,
        max: usize,
    ) -> Result<PastEvents, StorageError> {
        let own = Arc::clone(&self);
        self.in_the_past(move || {
            let read = own.read_past(&slot, from, until, max);
            own.unless_compacted(from, read)
        })
        .await
    }

    /// The entries below a prefix as they were, in the order of keys.
    pub(super) async fn past_range(
        self: &Arc<Self>,
        prefix: Prefix,
        at: Revision,
    ) -> Result<Vec<Arc<Entry>>, StorageError> {
        let own = Arc::clone(self);
        self.in_the_past(move || {
            let read = own.rebuild(&prefix, at);
            own.unless_compacted(at.next(), read)
        })
        .await
    }

    async fn in_the_past<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        let stopped = |ended| {
            if let TaskEnded::Panicked(message) = &ended {
                self.panicked("a reader", message);
            }
            StorageError::Unavailable("storage stopped".to_owned())
        };
        let permit = self
            .past_reads
            .acquire()
            .await
            .map_err(|_| StorageError::Unavailable("storage stopped".to_owned()))?;
        let result = self.runtime.blocking(read).await.map_err(stopped)?;
        drop(permit);
        result
    }

    /// Files may go while they are read; then the answer is that they are gone.
    fn unless_compacted<T>(&self, from: Revision, read: Result<T, StorageError>) -> Result<T, StorageError> {
        let compacted = self.feed.read().compacted();
        if from <= compacted {
            return Err(StorageError::Compacted {
                asked: Revision(from.0.saturating_sub(1)),
                compacted,
            });
        }
        read
    }

    fn read_past(
        &self,
        slot: &Slot,
        from: Revision,
        until: Revision,
        max: usize,
    ) -> Result<PastEvents, StorageError> {
        let mut raw = Vec::new();
        let mut last = Revision(from.0.saturating_sub(1));
        let mut bytes = 0;
        self.each_change(from, until, |stored| {
            last = stored.revision().unwrap_or(last);
            if let Stored::Put { entry, .. } = &stored {
                bytes += entry.footprint();
            }
            if slot.may_want(stored.key()) {
                raw.push(stored);
            }
            bytes < READ_BYTES && last.0 - from.0 < READ_CHANGES
        })?;
        let mut known: HashMap<Key, Option<Arc<Entry>>> = HashMap::new();
        let mut events = Vec::new();
        for stored in raw {
            let event = self.past_event(stored, &mut known)?;
            if slot.wants(&event) {
                if events.len() == max {
                    last = Revision(event.revision.0 - 1);
                    break;
                }
                events.push(Arc::new(event));
            }
        }
        Ok(PastEvents {
            events,
            next: last.next(),
        })
    }

    /// Calls `each` for the changes from `from` to `until`, in order, until it says `false`.
    fn each_change(
        &self,
        from: Revision,
        until: Revision,
        mut each: impl FnMut(Stored) -> bool,
    ) -> Result<(), StorageError> {
        let mut next = from;
        let mut more = true;
        for segment in self.files.segments_from(from) {
            segment.read_from(next, |stored| {
                let Some(revision) = stored.revision() else {
                    return true;
                };
                if revision != next {
                    // A batch that a later segment repeats.
                    return revision < next;
                }
                if revision > until {
                    more = false;
                    return false;
                }
                next = revision.next();
                more = each(stored);
                more
            })?;
            if !more || next > until {
                return Ok(());
            }
        }
        Err(StorageError::Unavailable(format!(
            "the log does not reach from {next} to {until}"
        )))
    }

    fn past_event(
        &self,
        stored: Stored,
        known: &mut HashMap<Key, Option<Arc<Entry>>>,
    ) -> Result<Event, StorageError> {
        let (revision, key, entry, previous) = match stored {
            Stored::Put { entry, previous } => {
                let entry = seal::opened_if_possible(self.options.encryption.as_deref(), entry);
                (entry.revision, entry.key.clone(), Some(entry), previous)
            }
            Stored::Delete {
                key,
                revision,
                previous,
            } => (revision, key, None, previous),
            Stored::Compact { .. } => unreachable!("only changes are collected"),
        };
        let previous = match known.get(&key) {
            Some(previous) => previous.clone(),
            None if previous == Revision::ZERO => None,
            None => Some(self.version(&key, previous)?),
        };
        known.insert(key.clone(), entry.clone());
        Ok(Event {
            revision,
            key,
            entry,
            previous,
        })
    }

    /// An entry as it was written at a revision: from the log where it reaches that far, otherwise from the checkpoint
    /// the log begins behind.
    fn version(&self, key: &Key, revision: Revision) -> Result<Arc<Entry>, StorageError> {
        let mut found = None;
        let in_log = self
            .files
            .segments()
            .first()
            .is_some_and(|first| first.header.first_revision <= revision.0);
        if in_log {
            self.each_change(revision, revision, |stored| {
                if let Stored::Put { entry, .. } = stored {
                    found = Some(entry);
                }
                false
            })?;
        }
        let candidates = self.files.checkpoints();
        for checkpoint in candidates
            .iter()
            .filter(|checkpoint| checkpoint.revision() >= revision)
        {
            if found.is_some() {
                break;
            }
            found = checkpoint.get(key)?.filter(|entry| entry.revision == revision);
        }
        let found = found.filter(|entry| entry.key == *key).ok_or_else(|| {
            StorageError::Unavailable(format!("{key} at revision {revision} is not in the log"))
        })?;
        Ok(seal::opened_if_possible(
            self.options.encryption.as_deref(),
            found,
        ))
    }

    /// The state below a prefix at a revision: the last checkpoint before it and the log behind that.
    fn rebuild(&self, prefix: &Prefix, at: Revision) -> Result<Vec<Arc<Entry>>, StorageError> {
        let checkpoints = self.files.checkpoints();
        let base = checkpoints
            .iter()
            .rev()
            .find(|checkpoint| checkpoint.revision() <= at);
        let start = base.map_or(Revision::ZERO, |checkpoint| checkpoint.revision());
        let entries = base.map_or(Ok(Vec::new()), |checkpoint| checkpoint.below(prefix))?;
        let mut state: BTreeMap<Key, Arc<Entry>> = entries
            .into_iter()
            .map(|entry| (entry.key.clone(), entry))
            .collect();
        if start < at {
            self.each_change(start.next(), at, |stored| {
                match stored {
                    Stored::Put { entry, .. } if prefix.contains(&entry.key) => {
                        state.insert(entry.key.clone(), entry);
                    }
                    Stored::Delete { key, .. } => {
                        state.remove(&key);
                    }
                    Stored::Put { .. } | Stored::Compact { .. } => {}
                }
                true
            })?;
        }
        Ok(state.into_values().collect())
    }

    /// The state below a prefix at a revision, from what is there now and the changes since, when memory has those.
    pub(super) fn undo(&self, prefix: &Prefix, at: Revision) -> Option<Vec<Arc<Entry>>> {
        let feed = self.feed.read();
        // Published together: while the feed is held, the tree is of the same revision.
        let root: Root = self.live.read().root.clone();
        let mut before: BTreeMap<Key, Option<Arc<Entry>>> = BTreeMap::new();
        for event in feed.after(at)? {
            if prefix.contains(&event.key) {
                before
                    .entry(event.key.clone())
                    .or_insert_with(|| event.previous.clone());
            }
        }
        drop(feed);
        let mut state: BTreeMap<&Key, Arc<Entry>> = BTreeMap::new();
        for entry in below(&root, prefix, None) {
            state.insert(&entry.key, Arc::clone(entry));
        }
        for (key, entry) in &before {
            match entry {
                Some(entry) => state.insert(key, Arc::clone(entry)),
                None => state.remove(key),
            };
        }
        Some(state.into_values().collect())
    }
}
