//! Recent changes in memory, and the cursors that wait for them.
//!
//! Each backend feeds it: the log with what it has made durable, where each change has a revision of its own, and etcd's
//! mirror with what its one watch receives, where the changes of a group share a revision. Such a group is published
//! under one lock and handed to a cursor as a whole, so a mark is always a revision and never a place within one.
//!
//! Publishing a change costs a few lookups (its key, each prefix of it, each watched field) plus one step for each
//! cursor that is interested *and idle*. A cursor that has not caught up is not woken again: its mark says where to go on.

use crate::{Entry, Event, Key, Target, WatchFilter};
use futures::task::AtomicWaker;
use machinery_meta::Revision;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

/// The window of changes that is kept in memory.
#[derive(Debug)]
pub(crate) struct Feed {
    ring: VecDeque<Arc<Event>>,
    /// Every change from this revision on is in the ring.
    first: u64,
    current: u64,
    bytes: usize,
    limit: usize,
    compacted: u64,
    closed: bool,
    dispatch: Dispatch,
    registered: u64,
}

/// The mark of a cursor whose history is no more.
const LOST: u64 = u64::MAX;

/// State that one cursor shares with the feed.
#[derive(Debug)]
pub(crate) struct Slot {
    number: u64,
    pub(crate) interests: Box<[WatchFilter]>,
    /// No change of interest before this revision is outstanding; zero when none is.
    /// Invariant: the feed raises it from zero under the write lock, its cursor moves it under the read lock.
    mark: AtomicU64,
    /// Time at which the mark was last raised from zero, in microseconds of the runtime's clock; zero if never.
    raised: AtomicU64,
    waker: AtomicWaker,
}

/// The result of a cursor's scan.
#[derive(Debug)]
pub(crate) enum Scan {
    /// Nothing of interest is outstanding; the waker is registered.
    Idle,
    Found(Vec<Arc<Event>>),
    /// The next change is no longer in memory.
    Behind {
        from: Revision,
        until: Revision,
    },
    Compacted {
        asked: Revision,
        compacted: Revision,
    },
    Closed,
}

impl Feed {
    pub(crate) fn new(current: Revision, compacted: Revision, limit: usize) -> Self {
        Self {
            ring: VecDeque::new(),
            first: current.0 + 1,
            current: current.0,
            bytes: 0,
            limit,
            compacted: compacted.0,
            closed: false,
            dispatch: Dispatch::default(),
            registered: 0,
        }
    }

    pub(crate) fn current(&self) -> Revision {
        Revision(self.current)
    }

    pub(crate) fn compacted(&self) -> Revision {
        Revision(self.compacted)
    }

    /// Adds the next change, and the wakers of cursors that wait for it to `wake`. `now` is by the runtime's clock.
    pub(crate) fn push(&mut self, event: Arc<Event>, now: Duration, wake: &mut Vec<Waker>) {
        debug_assert!(event.revision.0 >= self.current, "changes are in order");
        self.current = event.revision.0;
        self.bytes += footprint(&event);
        let micros = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        self.dispatch.each(&event, |slot| {
            if slot.mark.load(Ordering::Relaxed) == 0 {
                slot.mark.store(event.revision.0, Ordering::Relaxed);
                slot.raised.store(micros, Ordering::Relaxed);
                wake.extend(slot.waker.take());
            }
        });
        self.ring.push_back(event);
        while self.bytes > self.limit && self.pop() {}
    }

    /// Drops the oldest revision: all of its changes.
    fn pop(&mut self) -> bool {
        let Some(revision) = self.ring.front().map(|event| event.revision) else {
            return false;
        };
        // A revision goes whole: a transaction of several changes must not be seen in part.
        while let Some(event) = self.ring.pop_front_if(|event| event.revision == revision) {
            self.bytes -= footprint(&event);
        }
        self.first = revision.0 + 1;
        true
    }

    /// Notes that nothing of interest to any cursor has happened up to here.
    pub(crate) fn advance(&mut self, revision: Revision) {
        self.current = self.current.max(revision.0);
    }

    /// Goes on at a revision whose state was read as a whole: the changes up to it are no longer in memory. A cursor that
    /// had caught up goes on from where it was.
    pub(crate) fn skip_to(&mut self, revision: Revision, wake: &mut Vec<Waker>) {
        let next = self.current + 1;
        if revision.0 < next {
            return;
        }
        self.forget_ring(revision);
        for slot in self.slots() {
            if slot.mark.load(Ordering::Relaxed) == 0 {
                slot.mark.store(next, Ordering::Relaxed);
                wake.extend(slot.waker.take());
            }
        }
    }

    /// Goes on in another history: no cursor of this one can.
    pub(crate) fn start_over(&mut self, revision: Revision, compacted: Revision, wake: &mut Vec<Waker>) {
        self.forget_ring(revision);
        self.compacted = compacted.0;
        for slot in self.slots() {
            slot.mark.store(LOST, Ordering::Relaxed);
            wake.extend(slot.waker.take());
        }
    }

    fn forget_ring(&mut self, revision: Revision) {
        self.ring.clear();
        (self.bytes, self.current, self.first) = (0, revision.0, revision.0 + 1);
    }

    /// Raises the floor.
    pub(crate) fn compact(&mut self, floor: Revision) {
        self.compacted = self.compacted.max(floor.0);
    }

    /// Drops a few compacted changes; `false` when none is left.
    pub(crate) fn trim(&mut self, most: usize) -> bool {
        for _ in 0..most {
            if self.first > self.compacted || !self.pop() {
                return false;
            }
        }
        true
    }

    /// Ends every cursor.
    pub(crate) fn close(&mut self) -> Vec<Waker> {
        self.closed = true;
        self.slots()
            .into_iter()
            .filter_map(|slot| slot.waker.take())
            .collect()
    }

    /// Slots in the order of registration: maps have none, and a simulation must run the same twice.
    fn slots(&self) -> Vec<&Arc<Slot>> {
        let mut slots: Vec<&Arc<Slot>> = self.dispatch.all().collect();
        slots.sort_by_key(|slot| slot.number);
        slots
    }

    /// The changes after a revision, when memory has them all.
    pub(crate) fn after(&self, revision: Revision) -> Option<impl DoubleEndedIterator<Item = &Arc<Event>>> {
        if revision.0 + 1 < self.first {
            return None;
        }
        let skip = self.ring.partition_point(|event| event.revision <= revision);
        Some(self.ring.range(skip..))
    }

    /// The last change in memory that left something there.
    pub(crate) fn last_entry(&self) -> Option<&Arc<Entry>> {
        self.ring.iter().rev().find_map(|event| event.entry.as_ref())
    }

    pub(crate) fn register(&mut self, interests: Vec<WatchFilter>, after: Revision) -> Arc<Slot> {
        let mark = if after.0 < self.current { after.0 + 1 } else { 0 };
        self.registered += 1;
        let slot = Arc::new(Slot {
            number: self.registered,
            interests: interests.into(),
            mark: AtomicU64::new(mark),
            raised: AtomicU64::new(0),
            waker: AtomicWaker::new(),
        });
        self.dispatch.add(&slot);
        slot
    }

    pub(crate) fn unregister(&mut self, slot: &Arc<Slot>) {
        self.dispatch.remove(slot);
    }

    /// Goes on from a cursor's mark.
    pub(crate) fn scan(&self, slot: &Slot, waker: &Waker, max: usize) -> Scan {
        if self.closed {
            return Scan::Closed;
        }
        let mark = slot.mark.load(Ordering::Relaxed);
        if mark == LOST {
            let current = Revision(self.current);
            return Scan::Compacted {
                asked: Revision::ZERO,
                compacted: current,
            };
        }
        if mark != 0 && mark <= self.compacted {
            return Scan::Compacted {
                asked: Revision(mark - 1),
                compacted: Revision(self.compacted),
            };
        }
        if mark != 0 && mark < self.first {
            return Scan::Behind {
                from: Revision(mark),
                until: Revision(self.first - 1),
            };
        }
        let found = if mark == 0 {
            Vec::new()
        } else {
            self.collect(slot, mark, max)
        };
        if found.is_empty() {
            // Under the read lock nothing is published, so no wake-up can be missed between looking and registering.
            slot.waker.register(waker);
            return Scan::Idle;
        }
        Scan::Found(found)
    }

    fn collect(&self, slot: &Slot, mark: u64, max: usize) -> Vec<Arc<Event>> {
        let mut found = Vec::new();
        let start = self.ring.partition_point(|event| event.revision.0 < mark);
        let mut last = Revision::ZERO;
        for event in self.ring.range(start..) {
            if slot.wants(event) {
                // The bound gives way inside of a revision, which is delivered whole.
                if found.len() >= max && event.revision != last {
                    slot.set_mark(event.revision);
                    return found;
                }
                last = event.revision;
                found.push(Arc::clone(event));
            }
        }
        slot.mark.store(0, Ordering::Relaxed);
        found
    }

    /// Revision up to which a cursor has received everything.
    pub(crate) fn position(&self, slot: &Slot) -> Revision {
        match slot.mark.load(Ordering::Relaxed) {
            0 => Revision(self.current),
            LOST => Revision::ZERO,
            mark => Revision(mark - 1),
        }
    }
}

impl Slot {
    pub(crate) fn wants(&self, event: &Event) -> bool {
        self.interests.iter().any(|interest| interest.matches(event))
    }

    /// Reports whether a change of this key may match.
    pub(crate) fn may_match(&self, key: Option<&Key>) -> bool {
        key.is_some_and(|key| self.interests.iter().any(|interest| interest.target.covers(key)))
    }

    /// Reports whether a change of this key is wanted for what it is in one version, whatever the other is.
    pub(crate) fn wants_version(&self, key: &Key, version: Option<&Entry>) -> bool {
        self.interests
            .iter()
            .any(|interest| interest.matches_version(key, version))
    }

    /// Time at which the mark was last raised.
    pub(crate) fn raised(&self) -> Option<Duration> {
        match self.raised.load(Ordering::Relaxed) {
            0 => None,
            micros => Some(Duration::from_micros(micros)),
        }
    }

    /// The cursor goes on from here; for changes that memory did not have.
    pub(crate) fn go_on(&self, next: Revision) {
        if self.mark.load(Ordering::Relaxed) != LOST {
            self.set_mark(next);
        }
    }

    fn set_mark(&self, next: Revision) {
        self.mark.store(next.0, Ordering::Relaxed);
    }
}

/// Bytes that a change in the history keeps in memory at most: its previous entry may have no other reference.
fn footprint(event: &Event) -> usize {
    let both = [&event.entry, &event.previous];
    both.into_iter().flatten().map(|entry| entry.footprint()).sum()
}

/// Cursors by the keys that they follow.
#[derive(Debug, Default)]
struct Dispatch {
    /// By key or prefix.
    targets: HashMap<Box<str>, Vec<Arc<Slot>>>,
    /// By key or prefix, then field, then value.
    fields: HashMap<Box<str>, Vec<FieldIndex>>,
}

#[derive(Debug)]
struct FieldIndex {
    path: Box<str>,
    values: HashMap<Box<str>, Vec<Arc<Slot>>>,
}

impl Target {
    fn text(&self) -> &str {
        match self {
            Self::Key(key) => key.as_str(),
            Self::Prefix(prefix) => prefix.as_str(),
        }
    }
}

impl Dispatch {
    fn each(&self, event: &Event, mut notify: impl FnMut(&Slot)) {
        let key = event.key.as_str();
        let prefixes = key.match_indices('/').map(|(at, _)| &key[..=at]);
        for target in prefixes.chain([key]) {
            for slot in self.targets.get(target).into_iter().flatten() {
                notify(slot);
            }
            for index in self.fields.get(target).into_iter().flatten() {
                index.each(event, &mut notify);
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Slot>> {
        let by_field = self
            .fields
            .values()
            .flatten()
            .flat_map(|index| index.values.values().flatten());
        self.targets.values().flatten().chain(by_field)
    }

    fn add(&mut self, slot: &Arc<Slot>) {
        for interest in &slot.interests {
            self.list(interest).push(Arc::clone(slot));
        }
    }

    fn list(&mut self, interest: &WatchFilter) -> &mut Vec<Arc<Slot>> {
        let target = interest.target.text();
        let Some((path, value)) = &interest.field else {
            return self.targets.entry(target.into()).or_default();
        };
        let indexes = self.fields.entry(target.into()).or_default();
        let at = indexes
            .iter()
            .position(|index| index.path == *path)
            .unwrap_or_else(|| {
                indexes.push(FieldIndex {
                    path: path.clone(),
                    values: HashMap::new(),
                });
                indexes.len() - 1
            });
        indexes[at].values.entry(value.clone()).or_default()
    }

    fn remove(&mut self, slot: &Arc<Slot>) {
        for interest in &slot.interests {
            let list = self.list(interest);
            if let Some(at) = list.iter().position(|other| Arc::ptr_eq(other, slot)) {
                list.swap_remove(at);
            }
            if list.is_empty() {
                self.forget(interest);
            }
        }
    }

    fn forget(&mut self, interest: &WatchFilter) {
        let target = interest.target.text();
        let Some((path, value)) = &interest.field else {
            self.targets.remove(target);
            return;
        };
        let Some(indexes) = self.fields.get_mut(target) else {
            return;
        };
        for index in indexes.iter_mut().filter(|index| index.path == *path) {
            index.values.remove(value);
        }
        indexes.retain(|index| !index.values.is_empty());
        if indexes.is_empty() {
            self.fields.remove(target);
        }
    }
}

impl FieldIndex {
    fn each(&self, event: &Event, notify: &mut impl FnMut(&Slot)) {
        if event.is_unreadable() {
            self.values.values().flatten().for_each(|slot| notify(slot));
            return;
        }
        let value = |entry: &Option<_>| {
            let entry: &Arc<Entry> = entry.as_ref()?;
            self.values.get(entry.record.header.field(&self.path)?)
        };
        let (now, before) = (value(&event.entry), value(&event.previous));
        // A slot marked twice keeps its first mark.
        for slot in now.into_iter().chain(before).flatten() {
            notify(slot);
        }
    }
}
