//! State of now, and what is kept of former ones.

pub(crate) use crate::root::Root;
use crate::{Entry, Event, Prefix, RangeOptions};
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
    /// Bytes of memory of all entries that have ever left the tree, which former states may hold still.
    pub(crate) left: u64,
}

impl Live {
    /// The state as it is now.
    pub(crate) fn pin(&self) -> Pin {
        Pin {
            revision: self.revision,
            root: self.root.clone(),
            left: self.left,
        }
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        if let Some(previous) = &event.previous {
            // Saturating: a record converted in memory only may have another size.
            self.bytes = self.bytes.saturating_sub(previous.record.len() as u64);
            self.left += previous.footprint() as u64;
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

    /// Puts another form of an entry in the place of the one that is still at its revision; see
    /// [`Storage::recache`](crate::Storage::recache).
    pub(crate) fn replace(&mut self, new: Arc<Entry>) -> Option<Recached> {
        let old = self.root.get(new.key.as_str())?;
        let old = (old.revision == new.revision).then(|| Arc::clone(old))?;
        self.left += old.footprint() as u64;
        self.root.insert(new.key.clone(), Arc::clone(&new));
        Some(Recached { old, new })
    }
}

/// An entry in another form, and what stood in its place.
#[derive(Debug)]
pub(crate) struct Recached {
    pub(crate) old: Arc<Entry>,
    pub(crate) new: Arc<Entry>,
}

/// A page of a root, and how many entries follow it.
pub(crate) fn page(root: &Root, prefix: &Prefix, options: &RangeOptions) -> (Vec<Arc<Entry>>, u64) {
    let entries = root.below(prefix, options.start_after.as_ref());
    let page: Vec<Arc<Entry>> = entries.take(options.most()).cloned().collect();
    // Counted only for a full page: the count walks the tree.
    if page.len() < options.most() {
        return (page, 0);
    }
    let last = page.last().map(|entry| entry.key.clone());
    let remaining = root.count_below(prefix, last.as_ref().or(options.start_after.as_ref()));
    (page, remaining)
}

/// A state kept for a list that is read page by page.
#[derive(Debug, Clone)]
pub(crate) struct Pin {
    pub(crate) revision: Revision,
    pub(crate) root: Root,
    /// [`Live::left`] at that revision: what has left the tree since is held by the pin.
    pub(crate) left: u64,
}

/// States kept for lists that are read page by page, each the least recently used last.
#[derive(Debug)]
pub(crate) struct Pins {
    roots: VecDeque<Pin>,
    /// Lists that were assembled from the history.
    lists: VecDeque<KeptList>,
    /// Bytes that the pins may hold beside the state of now, and the lists.
    limit: u64,
    /// No state before this revision is kept: one that was held too much.
    floor: Revision,
}

/// The entries below a prefix as they were, in the order of keys.
pub(crate) type PastList = Arc<[Arc<Entry>]>;

#[derive(Debug)]
struct KeptList {
    revision: Revision,
    prefix: Prefix,
    list: PastList,
    /// Bytes of it that the tree did not hold when it was made.
    held: u64,
    /// [`Live::left`] then: what has left the tree since may be held by the list.
    left: u64,
}

/// Bytes that former states may hold, where the options name no other number.
pub(crate) const PINNED_BYTES: u64 = 128 << 20;
/// Number of lists that can be paged through at once without going to the history.
const MAX_PINS: usize = 32;
/// Each may hold entries that nothing else does.
const MAX_PAST_LISTS: usize = 4;

impl Pins {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            roots: VecDeque::new(),
            lists: VecDeque::new(),
            limit,
            floor: Revision::ZERO,
        }
    }

    pub(crate) fn pin(&mut self, pin: Pin) {
        if self.get(pin.revision).is_some() {
            return;
        }
        // The least recently used one goes: pages of a list that is still read move their state to the front.
        self.roots.truncate(MAX_PINS - 1);
        self.roots.push_front(pin);
    }

    pub(crate) fn get(&mut self, revision: Revision) -> Option<Pin> {
        let at = self.roots.iter().position(|pin| pin.revision == revision)?;
        let pin = self.roots.remove(at)?;
        self.roots.push_front(pin.clone());
        Some(pin)
    }

    /// The revision behind the last one whose state held too much; lists before it are over.
    pub(crate) fn floor(&self) -> Revision {
        self.floor
    }

    /// Ends the pins and lists that hold too much now that so many bytes have left the tree, so that the caller can drop them
    /// without holding a lock. The oldest pin holds as much as all of them together.
    pub(crate) fn end_large(&mut self, left: u64) -> (Vec<Pin>, Vec<PastList>) {
        (self.end_large_pins(left), self.end_large_lists(left))
    }

    /// The least recently used list first: a page of it puts it together again, where it is within the bound.
    fn end_large_lists(&mut self, left: u64) -> Vec<PastList> {
        let mut ended = Vec::new();
        while let Some(last) = self.lists.back() {
            let since = self.lists.iter().map(|kept| left.saturating_sub(kept.left)).max();
            let held: u64 = self.lists.iter().map(|kept| kept.held).sum();
            if held + since.unwrap_or(0) <= self.limit {
                break;
            }
            ended.push(Arc::clone(&last.list));
            self.lists.pop_back();
        }
        ended
    }

    fn end_large_pins(&mut self, left: u64) -> Vec<Pin> {
        let too_much = |pin: &Pin| left.saturating_sub(pin.left) > self.limit;
        if !self.roots.iter().any(too_much) {
            return Vec::new();
        }
        let (large, kept): (Vec<_>, Vec<_>) = self.roots.drain(..).partition(too_much);
        self.roots = kept.into();
        let floor = large.iter().map(|pin| pin.revision.next()).max();
        self.floor = self.floor.max(floor.unwrap_or_default());
        large
    }

    /// Keeps a list, and of the others the newest, as far as they have room. `held` bytes of it were not in the tree when
    /// [`Live::left`] was `left`.
    pub(crate) fn keep_list(
        &mut self,
        revision: Revision,
        prefix: &Prefix,
        list: &PastList,
        (held, left): (u64, u64),
    ) {
        self.lists.truncate(MAX_PAST_LISTS - 1);
        self.lists.push_front(KeptList {
            revision,
            prefix: prefix.clone(),
            list: Arc::clone(list),
            held,
            left,
        });
        drop(self.end_large_lists(left));
    }

    pub(crate) fn list(&mut self, revision: Revision, prefix: &Prefix) -> Option<PastList> {
        let is_it = |kept: &KeptList| kept.revision == revision && kept.prefix == *prefix;
        let at = self.lists.iter().position(is_it)?;
        let kept = self.lists.remove(at)?;
        let list = Arc::clone(&kept.list);
        self.lists.push_front(kept);
        Some(list)
    }

    /// Takes out what is older than a floor, so that the caller can drop it without holding a lock.
    pub(crate) fn release(&mut self, floor: Revision) -> (Vec<Pin>, Vec<PastList>) {
        let (old, kept): (Vec<_>, Vec<_>) = self.roots.drain(..).partition(|pin| pin.revision < floor);
        self.roots = kept.into();
        let (lists, kept): (Vec<_>, Vec<_>) = self.lists.drain(..).partition(|kept| kept.revision < floor);
        self.lists = kept.into();
        (old, lists.into_iter().map(|kept| kept.list).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(revision: u64, left: u64) -> Pin {
        Pin {
            revision: Revision(revision),
            root: Root::default(),
            left,
        }
    }

    #[test]
    fn pins_end_with_the_one_that_holds_most() {
        let mut pins = Pins::new(100);
        for (revision, left) in [(1, 0), (5, 40), (7, 90)] {
            pins.pin(pin(revision, left));
        }
        assert!(pins.end_large(100).0.is_empty());
        assert_eq!(pins.floor(), Revision::ZERO);
        // The first is used again and still the one that holds most.
        assert!(pins.get(Revision(1)).is_some());
        let ended: Vec<Revision> = pins.end_large(120).0.iter().map(|pin| pin.revision).collect();
        assert_eq!(ended, [Revision(1)]);
        assert_eq!(pins.floor(), Revision(2));
        assert!(pins.get(Revision(1)).is_none() && pins.get(Revision(5)).is_some());
        assert_eq!(pins.end_large(1_000).0.len(), 2);
        assert_eq!(pins.floor(), Revision(8));
    }

    #[test]
    fn past_lists_are_kept_as_far_as_they_have_room() {
        let prefix = Prefix::parse("/registry/pods/").unwrap();
        let list: PastList = Arc::new([]);
        let mut pins = Pins::new(100);
        let is_kept = |pins: &mut Pins, own: &u64| pins.list(Revision(*own), &prefix).is_some();
        let mut keep = |revision, held| {
            pins.keep_list(Revision(revision), &prefix, &list, held);
            (1..=revision)
                .filter(|own| is_kept(&mut pins, own))
                .collect::<Vec<u64>>()
        };
        assert_eq!(keep(1, (50, 0)), [1]);
        assert_eq!(keep(2, (50, 0)), [1, 2]);
        assert_eq!(keep(3, (50, 0)), [2, 3]);
        // What has left the tree since may be held by the older ones.
        assert_eq!(keep(4, (0, 40)), [3, 4]);
        assert_eq!(pins.end_large(110).1.len(), 1);
        assert!(is_kept(&mut pins, &4));
        assert_eq!(pins.end_large(161).1.len(), 1);
        assert!(!is_kept(&mut pins, &4));
    }
}
