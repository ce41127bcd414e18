//! What is there now: a persistent ordered tree. Cloning the root pins the whole state.

use crate::{Entry, Event, Key, Prefix};
use imbl::OrdMap;
use machinery_meta::Revision;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

/// The live objects by key.
pub(super) type Root = OrdMap<Key, Arc<Entry>>;

/// The state after one revision.
#[derive(Debug, Clone, Default)]
pub(super) struct Live {
    pub(super) root: Root,
    pub(super) revision: Revision,
    /// The last batch that the state holds.
    pub(super) batch: u64,
    /// Bytes of all records.
    pub(super) bytes: u64,
}

impl Live {
    pub(super) fn apply(&mut self, event: &Event) {
        if let Some(previous) = &event.previous {
            // Saturating: a record converted in memory only may have another size.
            self.bytes = self.bytes.saturating_sub(previous.record.len() as u64);
        }
        match &event.entry {
            Some(entry) => {
                self.bytes += entry.record.len() as u64;
                self.root.insert(event.key.clone(), Arc::clone(entry));
            }
            None => {
                self.root.remove(event.key.as_str());
            }
        }
        self.revision = event.revision;
    }
}

/// Entries of a root below a prefix, behind a key.
pub(super) fn below<'a>(
    root: &'a Root,
    prefix: &'a Prefix,
    start_after: Option<&'a Key>,
) -> impl Iterator<Item = &'a Arc<Entry>> {
    // A key before the prefix must not widen the range.
    let start = match start_after {
        Some(key) if key.as_str() > prefix.as_str() => Bound::Excluded(key.as_str()),
        _ => Bound::Included(prefix.as_str()),
    };
    root.range::<_, str>((start, Bound::Unbounded))
        .map(|(_, entry)| entry)
        .take_while(move |entry| prefix.contains(&entry.key))
}

/// Roots kept for lists that are read page by page.
#[derive(Debug, Default)]
pub(super) struct Pins(VecDeque<(Revision, Root)>);

/// So many lists can be paged through at once without going to the history.
const MAX_PINS: usize = 32;

impl Pins {
    pub(super) fn pin(&mut self, revision: Revision, root: &Root) {
        if self.0.iter().any(|(pinned, _)| *pinned == revision) {
            return;
        }
        if self.0.len() == MAX_PINS {
            self.0.pop_front();
        }
        self.0.push_back((revision, root.clone()));
    }

    pub(super) fn get(&self, revision: Revision) -> Option<Root> {
        self.0
            .iter()
            .find(|(pinned, _)| *pinned == revision)
            .map(|(_, root)| root.clone())
    }

    /// Takes out what is older than a floor, so that the caller can drop it without holding a lock.
    pub(super) fn release(&mut self, floor: Revision) -> Vec<Root> {
        let (old, kept): (Vec<_>, Vec<_>) = self.0.drain(..).partition(|(revision, _)| *revision < floor);
        self.0 = kept.into();
        old.into_iter().map(|(_, root)| root).collect()
    }
}
