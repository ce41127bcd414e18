//! Reads of what is no longer in memory: older changes for a slow watch, older states for a list.

use super::engine::Engine;
use super::format::Stored;
use super::past_state::{Built, ListBound, PastState};
use super::previous::{Change, Changes};
use crate::cursor::PastEvents;
use crate::feed::Slot;
use crate::live::Live;
use crate::{Entry, Key, Prefix, StorageError};
use machinery_meta::Revision;
use machinery_runtime::TaskEnded;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// One read for a cursor looks at no more bytes of records than this.
const READ_BYTES: usize = 4 << 20;
/// Nor at more changes.
const READ_CHANGES: u64 = 20_000;
/// Changes looked at under one hold of the feed.
const UNDO_STEP: usize = 256;
/// Nor does it look for the previous versions of more changes at once.
const LOOK_UPS: usize = 2_000;

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
        self.in_the_past(&self.past_reads, move || {
            let read = own.read_past(&slot, from, until, max);
            own.unless_compacted(from, read)
        })
        .await
    }

    /// The entries below a prefix as they were, in the order of keys; `None` where they are more than the bound.
    pub(super) async fn past_range(
        self: &Arc<Self>,
        prefix: Prefix,
        at: Revision,
        bound: ListBound,
    ) -> Result<Option<Built>, StorageError> {
        let (own, below) = (Arc::clone(self), prefix.clone());
        let undo = move || Ok(own.undo(&below, at, bound));
        if let Some(built) = self.in_the_past(&self.undone, undo).await? {
            return Ok(built);
        }
        let own = Arc::clone(self);
        self.in_the_past(&self.past_reads, move || {
            let read = own.rebuild(&prefix, at, bound);
            own.unless_compacted(at.next(), read)
        })
        .await
    }

    fn now(&self) -> Live {
        self.live.read().clone()
    }

    /// Reads when it is the read's turn. The turn lasts as long as the work does, also where the caller has left.
    async fn in_the_past<T: Send + 'static>(
        &self,
        turns: &Arc<Semaphore>,
        read: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        let stopped = |ended| {
            if let TaskEnded::Panicked(message) = &ended {
                self.panicked("a reader", message);
            }
            StorageError::Unavailable("storage stopped".to_owned())
        };
        let turn = Arc::clone(turns)
            .acquire_owned()
            .await
            .map_err(|_| StorageError::Unavailable("storage stopped".to_owned()))?;
        let read = move || {
            let _turn = turn;
            read()
        };
        self.runtime.blocking(read).await.map_err(stopped)?
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
        let (changes, last) = self.changes_for(slot, from, until, max)?;
        let mut events = Vec::new();
        let goes_on_at = |events, next| Ok(PastEvents { events, next });
        for part in changes.chunks(LOOK_UPS) {
            let versions = self.versions(slot, part)?;
            for change in part {
                if versions.is_too_much(change) {
                    if change.revision > from {
                        return goes_on_at(events, change.revision);
                    }
                    let alone = self.versions(slot, std::slice::from_ref(change))?;
                    return goes_on_at(vec![Arc::new(alone.event(change))], from.next());
                }
                let event = versions.event(change);
                if !slot.wants(&event) {
                    continue;
                }
                if events.len() == max {
                    return goes_on_at(events, event.revision);
                }
                events.push(Arc::new(event));
            }
        }
        goes_on_at(events, last.next())
    }

    /// The changes from `from` on that a cursor may want, and the last one that was looked at. So many as bounds allow, and
    /// no more than hold `max` that it wants whatever they changed.
    fn changes_for(
        &self,
        slot: &Slot,
        from: Revision,
        until: Revision,
        max: usize,
    ) -> Result<(Vec<Change>, Revision), StorageError> {
        let encryption = self.options.encryption.as_deref();
        let mut last = Revision(from.0.saturating_sub(1));
        let (mut bytes, mut wanted) = (0, 0);
        let mut changes = Changes::default();
        self.each_change(from, until, |stored| {
            last = stored.revision().unwrap_or(last);
            if let Stored::Put { entry, .. } = &stored {
                bytes += entry.footprint();
            }
            if slot.may_match(stored.key()) {
                let change = changes.add(stored, encryption);
                wanted += usize::from(slot.wants_version(&change.key, change.entry.as_deref()));
            }
            wanted < max && bytes < READ_BYTES && last.0 - from.0 < READ_CHANGES
        })?;
        Ok((changes.all, last))
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

    /// The state below a prefix at a revision: the last checkpoint before it and the log behind that.
    fn rebuild(
        &self,
        prefix: &Prefix,
        at: Revision,
        bound: ListBound,
    ) -> Result<Option<Built>, StorageError> {
        let now = self.now();
        let mut state = PastState::new(&now.root, bound);
        let checkpoints = self.files.checkpoints();
        let base = checkpoints
            .iter()
            .rev()
            .find(|checkpoint| checkpoint.revision() <= at);
        let start = base.map_or(Revision::ZERO, |checkpoint| checkpoint.revision());
        if let Some(checkpoint) = base {
            checkpoint.below(prefix, |entry| state.put(entry))?;
        }
        if start < at && state.is_within() {
            self.each_change(start.next(), at, |stored| {
                match stored {
                    Stored::Put { entry, .. } if prefix.contains(&entry.key) => return state.put(entry),
                    Stored::Delete { key, .. } => state.remove(&key),
                    Stored::Put { .. } | Stored::Compact { .. } => {}
                }
                true
            })?;
        }
        Ok(state.built(now.left))
    }

    /// The state below a prefix at a revision, from what is there now and the changes since, when memory has those.
    /// A writer waits for few of them at a time.
    fn undo(&self, prefix: &Prefix, at: Revision, bound: ListBound) -> Option<Option<Built>> {
        let now = self.now();
        let mut before: BTreeMap<Key, Option<Arc<Entry>>> = BTreeMap::new();
        let mut undone = at;
        while undone < now.revision {
            let feed = self.feed.read();
            let mut behind = feed.after(undone)?.take(UNDO_STEP).peekable();
            // Memory has all up to the revision of the tree; where it had not, this would never end.
            behind.peek()?;
            for event in behind {
                undone = event.revision;
                if prefix.contains(&event.key) {
                    before
                        .entry(event.key.clone())
                        .or_insert_with(|| event.previous.clone());
                }
            }
        }
        let mut state = PastState::new(&now.root, bound);
        let kept = now.root.below(prefix, None);
        let kept = kept.filter(|entry| !before.contains_key(&entry.key));
        let mut all = before.values().flatten().chain(kept);
        all.all(|entry| state.put(Arc::clone(entry)));
        Some(state.built(now.left))
    }
}

#[cfg(test)]
mod tests {
    use super::ListBound;
    use crate::{LogOptions, LogStorage, Prefix};
    use machinery_meta::Revision;
    use machinery_runtime::{MemDisk, Runtime, Simulation};
    use std::sync::{Arc, mpsc};

    async fn opened(runtime: &Runtime) -> LogStorage {
        let options = LogOptions::new("/data");
        LogStorage::open(runtime, options).await.unwrap().0
    }

    #[tokio::test]
    async fn past_read_keeps_its_turn_after_its_client_has_left() {
        let runtime = Runtime::real().with_disk(Arc::new(MemDisk::new()));
        let engine = Arc::clone(&opened(&runtime).await.engine);
        let turns = engine.past_reads.available_permits();
        let (begun, begins) = tokio::sync::oneshot::channel();
        let (end, ended) = mpsc::channel::<()>();
        let read = engine.in_the_past(&engine.past_reads, move || {
            begun.send(()).unwrap();
            ended.recv().unwrap();
            Ok(())
        });
        tokio::select! {
            biased;
            _ = read => panic!("nobody has ended it"),
            begun = begins => begun.unwrap(),
        }
        assert_eq!(engine.past_reads.available_permits(), turns - 1);
        end.send(()).unwrap();
        drop(
            engine
                .past_reads
                .acquire_many(turns.try_into().unwrap())
                .await
                .unwrap(),
        );
    }

    #[test]
    fn past_that_memory_has_waits_for_no_read_of_the_log() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime().with_disk(Arc::new(MemDisk::new()));
        simulation.run(async move {
            let engine = Arc::clone(&opened(&runtime).await.engine);
            let turns = u32::try_from(engine.past_reads.available_permits()).unwrap();
            let _all = engine.past_reads.acquire_many(turns).await.unwrap();
            let prefix = Prefix::parse("/registry/pods/").unwrap();
            let built = engine.past_range(prefix, Revision::ZERO, ListBound::Held(0));
            assert_eq!(built.await.unwrap().unwrap().entries, []);
        });
    }
}
