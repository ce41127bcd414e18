//! State of now, and what is kept of former ones.

pub(crate) use crate::root::Root;
use crate::{Entry, Event, Key, Prefix, RangeOptions, Record};
use machinery_meta::Revision;
use std::collections::VecDeque;
use std::sync::Arc;

/// The state after one revision.
#[derive(Debug, Clone, Default)]
pub(crate) struct Live {
    pub(crate) root: Root,
    pub(crate) revision: Revision,
    /// The last batch that the state holds.
    pub(crate) batch: u64,
    /// Bytes of all records.
    pub(crate) bytes: u64,
}

impl Live {
    pub(crate) fn apply(&mut self, event: &Event) {
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

    /// Puts another form of a record in the place of one that is still at `revision`; see
    /// [`Storage::recache`](crate::Storage::recache).
    pub(crate) fn recache(&mut self, key: &Key, revision: Revision, record: Record) -> bool {
        let known = self.root.get(key.as_str());
        let Some(entry) = known.filter(|entry| entry.revision == revision) else {
            return false;
        };
        let (created, expires, seal) = (entry.created, entry.expires, entry.seal);
        let entry = Entry {
            seal,
            key: key.clone(),
            revision,
            created,
            expires,
            record,
        };
        self.root.insert(key.clone(), Arc::new(entry));
        true
    }
}

/// A page of a root, and how many entries follow it.
pub(crate) fn page(root: &Root, prefix: &Prefix, options: &RangeOptions) -> (Vec<Arc<Entry>>, u64) {
    let entries = root.below(prefix, options.start_after.as_ref());
    let page: Vec<Arc<Entry>> = entries.take(options.most()).cloned().collect();
    if page.len() < options.most() {
        return (page, 0);
    }
    let last = page.last().map(|entry| entry.key.clone());
    let remaining = root.count_below(prefix, last.as_ref().or(options.start_after.as_ref()));
    (page, remaining)
}

/// States kept for lists that are read page by page, each the least recently used last.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    roots: VecDeque<(Revision, Root)>,
    /// What had to be put together from the history.
    lists: VecDeque<(Revision, Prefix, PastList)>,
}

/// The entries below a prefix as they were, in the order of keys.
pub(crate) type PastList = Arc<[Arc<Entry>]>;

/// So many lists can be paged through at once without going to the history.
const MAX_PINS: usize = 32;
/// Each may hold entries that nobody else does.
const MAX_PAST_LISTS: usize = 4;

impl Pins {
    pub(crate) fn pin(&mut self, revision: Revision, root: &Root) {
        if self.get(revision).is_some() {
            return;
        }
        self.roots.truncate(MAX_PINS - 1);
        self.roots.push_front((revision, root.clone()));
    }

    pub(crate) fn get(&mut self, revision: Revision) -> Option<Root> {
        let at = self.roots.iter().position(|(pinned, _)| *pinned == revision)?;
        let pin = self.roots.remove(at)?;
        let root = pin.1.clone();
        self.roots.push_front(pin);
        Some(root)
    }

    pub(crate) fn keep_list(&mut self, revision: Revision, prefix: &Prefix, list: &PastList) {
        self.lists.truncate(MAX_PAST_LISTS - 1);
        self.lists
            .push_front((revision, prefix.clone(), Arc::clone(list)));
    }

    pub(crate) fn list(&mut self, revision: Revision, prefix: &Prefix) -> Option<PastList> {
        let is_it = |(kept, of, _): &(Revision, Prefix, PastList)| *kept == revision && of == prefix;
        let at = self.lists.iter().position(is_it)?;
        let kept = self.lists.remove(at)?;
        let list = Arc::clone(&kept.2);
        self.lists.push_front(kept);
        Some(list)
    }

    /// Takes out what is older than a floor, so that the caller can drop it without holding a lock.
    pub(crate) fn release(&mut self, floor: Revision) -> (Vec<Root>, Vec<PastList>) {
        let (old, kept): (Vec<_>, Vec<_>) = self.roots.drain(..).partition(|(revision, _)| *revision < floor);
        self.roots = kept.into();
        let (lists, kept): (Vec<_>, Vec<_>) = self
            .lists
            .drain(..)
            .partition(|(revision, _, _)| *revision < floor);
        self.lists = kept.into();
        let roots = old.into_iter().map(|(_, root)| root).collect();
        (roots, lists.into_iter().map(|(_, _, list)| list).collect())
    }
}
