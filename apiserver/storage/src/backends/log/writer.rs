//! Taking up writes: compare, number, encode, queue. Nothing here waits or touches a file.

use super::format::{self, BATCH_HEADER_BYTES, Stored};
use super::past_shares::PastShares;
use super::seal;
use crate::encryption::{Encryption, Seal};
use crate::live::{Recached, Root};
use crate::quota::{Held, Ledger};
use crate::{Claim, Entry, Event, Expect, Key, Op, Quota, StorageError, Usage, Write};
use machinery_meta::Revision;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Accepted and unpublished changes. The one order of changes is made under its lock.
#[derive(Debug)]
pub(super) struct Writer {
    /// The last revision given away.
    last: Revision,
    /// Keys with changes that are queued or being flushed: the newest of each.
    overlay: HashMap<Key, (Revision, Option<Arc<Entry>>)>,
    /// Full batches, the oldest first.
    full: VecDeque<Pending>,
    pending: Pending,
    /// A flush is under way and will look here again.
    pub(super) flushing: bool,
    stopped: Option<StorageError>,
    /// The disk failed; nothing is flushed after that.
    failed: bool,
    encryption: Option<Arc<Encryption>>,
    /// Bytes of what is stored once everything queued is done.
    ledger: Ledger,
    shares: PastShares,
}

/// The batch that the next flush takes.
#[derive(Debug)]
pub(super) struct Pending {
    /// Room for the batch header, then records.
    pub(super) bytes: Vec<u8>,
    pub(super) records: u32,
    pub(super) first_revision: u64,
    pub(super) groups: Vec<Group>,
}

/// The effects of a durable batch: these changes are published, then this caller is answered.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) events: Vec<Arc<Event>>,
    pub(super) floor: Option<Revision>,
    pub(super) done: oneshot::Sender<Result<(), StorageError>>,
    /// Its part of what may be queued; also when the caller has gone away.
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

/// A group that was let in.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) group: Vec<Write>,
    /// Bytes of its records.
    pub(super) bytes: usize,
    pub(super) claim: Claim,
    pub(super) permit: OwnedSemaphorePermit,
}

/// The result of submitting a group.
#[derive(Debug)]
pub(super) enum Submitted {
    /// The answer is known and concerns only durable state.
    Now(Result<Vec<Arc<Event>>, StorageError>),
    /// The answer holds once the receiver says so.
    After(
        oneshot::Receiver<Result<(), StorageError>>,
        Result<Vec<Arc<Event>>, StorageError>,
    ),
}

/// A batch that has reached this size is followed by another; a piece of the reserve holds the largest one.
const BATCH_BYTES: usize = crate::write::MAX_GROUP_BYTES;
/// The buffer of a batch is kept between flushes unless it grew beyond this.
const KEPT_BUFFER_BYTES: usize = 1 << 20;

impl Writer {
    pub(super) fn new(
        last: Revision,
        encryption: Option<Arc<Encryption>>,
        ledger: Ledger,
        shares: PastShares,
    ) -> Self {
        Self {
            shares,
            encryption,
            ledger,
            last,
            overlay: HashMap::new(),
            full: VecDeque::new(),
            pending: Pending::new(last, Vec::new()),
            flushing: false,
            stopped: None,
            failed: false,
        }
    }

    /// Takes a group up, or says why not. `root` is what is published; `now` is in seconds since 1970. The encryption
    /// configuration stays meanwhile ([`Encryption::hold`]): an entry names the key that its record was sealed with.
    pub(super) fn submit(&mut self, root: &Root, admitted: Admitted, now: u64) -> Submitted {
        if let Some(error) = &self.stopped {
            return Submitted::Now(Err(error.clone()));
        }
        let Admitted {
            group,
            bytes,
            claim,
            permit,
        } = admitted;
        let mut newest_seen = Revision::ZERO;
        let mut before = Vec::with_capacity(group.len());
        for (index, write) in group.iter().enumerate() {
            let (queued, current) = self.current(root, &write.key);
            newest_seen = newest_seen.max(queued);
            if !holds(write, current.as_ref()) {
                let key = write.key.clone();
                return self.after_queued(newest_seen, Err(StorageError::Conflict { index, key, current }));
            }
            before.push(current);
        }
        // Checks alone write nothing, but their answer depends on what is queued before them.
        if group.iter().all(|write| matches!(write.op, Op::Check)) {
            return self.after_queued(newest_seen, Ok(Vec::new()));
        }
        if let Err(error) = self.check_seals(&group) {
            return Submitted::Now(Err(error));
        }
        // The ledger comes last, as `admit` counts the group at once: a refusal after it would have to take it
        // back.
        let shares = self.shares.check(&group, &before, claim);
        if let Err(error) = shares.and_then(|()| self.ledger.admit(&group, &before, claim)) {
            return Submitted::Now(Err(error));
        }
        // A group is never split over two batches: a batch is what recovery takes or leaves whole.
        if self.pending.records > 0 && self.pending.bytes.len() + bytes > BATCH_BYTES {
            let next = Pending::new(self.last, Vec::new());
            self.full.push_back(std::mem::replace(&mut self.pending, next));
        }
        let events = self.append(group, before, now);
        let done = self.enqueue(events.clone(), None, Some(permit));
        Submitted::After(done, Ok(events))
    }

    /// Reports whether quota and shares have room for a group now, after the queued ones.
    pub(super) fn has_room_for(
        &mut self,
        root: &Root,
        group: &[Write],
        claim: Claim,
    ) -> Result<(), StorageError> {
        let before: Vec<_> = group
            .iter()
            .map(|write| self.current(root, &write.key).1)
            .collect();
        self.shares.check(group, &before, claim)?;
        self.ledger.admit(group, &before, claim)?;
        self.ledger.take_back(group, &before);
        Ok(())
    }

    pub(super) fn usage(&self) -> Usage {
        self.ledger.usage()
    }

    /// Counts changes up to a revision as no longer kept.
    pub(super) fn compacted(&mut self, floor: Revision) {
        self.shares.compacted(floor);
    }

    /// Groups refused as their namespace had written its share of what is kept.
    pub(super) fn refused_for_past(&self) -> u64 {
        self.shares.refused()
    }

    pub(super) fn is_over_quota(&self) -> bool {
        self.ledger.is_full()
    }

    /// Counts an entry in another form, which took the place of one with no change queued.
    pub(super) fn recached(&mut self, recached: &Recached) {
        let Recached { old, new } = recached;
        self.ledger.change(Some(Held::of(old)), Some(Held::of(new)));
    }

    /// Reports whether a change of a key is queued or being flushed.
    pub(super) fn is_queued(&self, key: &Key) -> bool {
        self.overlay.contains_key(key)
    }

    /// Differences of the account from what is there once everything queued is done.
    pub(super) fn miscounted(&self, root: &Root) -> Vec<String> {
        let published = root.values().filter(|entry| !self.is_queued(&entry.key));
        let queued = self.overlay.values().filter_map(|(_, entry)| entry.as_ref());
        let counted = Ledger::of(Quota::default(), published.chain(queued));
        self.ledger.differences(&counted)
    }

    /// Takes up a raise of the floor.
    pub(super) fn submit_floor(
        &mut self,
        floor: Revision,
    ) -> Result<oneshot::Receiver<Result<(), StorageError>>, StorageError> {
        if let Some(error) = &self.stopped {
            return Err(error.clone());
        }
        format::put_stored(&mut self.pending.bytes, &Stored::Compact { floor }, true);
        self.pending.records += 1;
        Ok(self.enqueue(Vec::new(), Some(floor), None))
    }

    /// Refuses everything from now on. The receiver resolves when what was taken up is done.
    pub(super) fn stop(&mut self, why: StorageError) -> oneshot::Receiver<Result<(), StorageError>> {
        self.stopped.get_or_insert(why);
        if self.failed {
            // No flush comes any more; the receiver finds its sender gone.
            return oneshot::channel().1;
        }
        self.enqueue(Vec::new(), None, None)
    }

    /// Fails a batch, everything that is queued, and everything to come.
    pub(super) fn fail(&mut self, batch: Vec<Group>, why: &StorageError) -> Vec<Group> {
        self.stopped = Some(why.clone());
        self.failed = true;
        self.take_back(batch, self.last)
    }

    /// Takes back the batch that was refused and everything that is queued: the order goes on behind `last`, the last
    /// revision that is published.
    pub(super) fn take_back(&mut self, batch: Vec<Group>, last: Revision) -> Vec<Group> {
        // Everything queued was checked against changes that did not happen.
        self.last = last;
        self.overlay.clear();
        let pending = std::mem::replace(&mut self.pending, Pending::new(last, Vec::new()));
        let queued = self.full.drain(..).chain([pending]);
        let mut all = batch;
        all.extend(queued.flat_map(|pending| pending.groups));
        let events = all.iter().flat_map(|group| &group.events);
        // The newest first: what a change replaced is counted again before it is taken back itself.
        for event in events.rev() {
            let held = |entry| Option::map(entry, |entry: &Arc<Entry>| Held::of(entry));
            self.ledger
                .change(held(event.entry.as_ref()), held(event.previous.as_ref()));
        }
        all
    }

    /// Entries that are not published yet.
    pub(super) fn queued(&self) -> Vec<Arc<Entry>> {
        self.overlay
            .values()
            .filter_map(|(_, entry)| entry.clone())
            .collect()
    }

    /// The entry of the key once everything queued is done, and the queued revision that made it (zero: none).
    fn current(&self, root: &Root, key: &Key) -> (Revision, Option<Arc<Entry>>) {
        match self.overlay.get(key) {
            Some((revision, entry)) => (*revision, entry.clone()),
            None => (Revision::ZERO, root.get(key.as_str()).cloned()),
        }
    }

    /// An answer that rests on a queued change is given when that change is durable.
    fn after_queued(&mut self, queued: Revision, answer: Result<Vec<Arc<Event>>, StorageError>) -> Submitted {
        if queued == Revision::ZERO {
            return Submitted::Now(answer);
        }
        Submitted::After(self.enqueue(Vec::new(), None, None), answer)
    }

    fn append(&mut self, group: Vec<Write>, before: Vec<Option<Arc<Entry>>>, now: u64) -> Vec<Arc<Event>> {
        let changes = group
            .iter()
            .filter(|write| !matches!(write.op, Op::Check))
            .count();
        let mut events = Vec::with_capacity(changes);
        for (write, previous) in group.into_iter().zip(before) {
            let revision = self.last.next();
            self.shares.add(&write, previous.as_deref(), revision);
            let entry = match write.op {
                Op::Check => continue,
                Op::Delete => None,
                Op::Put { record, ttl } => Some(Arc::new(Entry {
                    key: write.key.clone(),
                    revision,
                    created: previous.as_ref().map_or(revision, |previous| previous.created),
                    expires: ttl.map(|ttl| now.saturating_add(ttl.as_secs().max(1))),
                    record,
                    seal: self.current_seal(&write.key),
                })),
            };
            self.last = revision;
            let event = Arc::new(Event {
                revision,
                key: write.key,
                entry,
                previous,
            });
            let encryption = self.encryption.as_deref();
            self.pending.put(&event, events.len() + 1 == changes, encryption);
            self.overlay
                .insert(event.key.clone(), (revision, event.entry.clone()));
            events.push(event);
        }
        events
    }

    /// Refuses a group of which something cannot be encrypted now.
    fn check_seals(&self, group: &[Write]) -> Result<(), StorageError> {
        let Some(encryption) = &self.encryption else {
            return Ok(());
        };
        let mut puts = group.iter().filter(|write| matches!(write.op, Op::Put { .. }));
        let checked = puts.try_for_each(|write| encryption.check_write(&write.key));
        checked.map_err(|cause| StorageError::NotSealed { cause })
    }

    fn current_seal(&self, key: &Key) -> Seal {
        let encryption = self.encryption.as_ref();
        encryption.map_or(Seal::default(), |encryption| encryption.current_seal(key))
    }

    fn enqueue(
        &mut self,
        events: Vec<Arc<Event>>,
        floor: Option<Revision>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> oneshot::Receiver<Result<(), StorageError>> {
        let (done, receiver) = oneshot::channel();
        self.pending.groups.push(Group {
            events,
            floor,
            done,
            permit,
        });
        receiver
    }

    /// The batch to flush next, if there is one; `buffer` is the memory of an earlier one.
    pub(super) fn take(&mut self, buffer: Vec<u8>) -> Option<Pending> {
        if let Some(full) = self.full.pop_front() {
            return Some(full);
        }
        if self.pending.groups.is_empty() {
            self.flushing = false;
            return None;
        }
        Some(std::mem::replace(
            &mut self.pending,
            Pending::new(self.last, buffer),
        ))
    }

    /// Forgets queued changes that are now published.
    pub(super) fn published(&mut self, groups: &[Group]) {
        for event in groups.iter().flat_map(|group| &group.events) {
            if self
                .overlay
                .get(&event.key)
                // A newer change of the same key may be queued behind this batch, and stays in the overlay.
                .is_some_and(|(revision, _)| *revision == event.revision)
            {
                self.overlay.remove(&event.key);
            }
        }
    }
}

impl Pending {
    fn new(last: Revision, mut bytes: Vec<u8>) -> Self {
        // One large batch must not hold its memory for ever.
        if bytes.capacity() > KEPT_BUFFER_BYTES {
            bytes = Vec::new();
        }
        bytes.clear();
        bytes.resize(BATCH_HEADER_BYTES, 0);
        Self {
            bytes,
            records: 0,
            first_revision: last.0 + 1,
            groups: Vec::new(),
        }
    }

    fn put(&mut self, event: &Event, commits: bool, encryption: Option<&Encryption>) {
        let previous = event
            .previous
            .as_ref()
            .map_or(Revision::ZERO, |previous| previous.revision);
        let stored = match &event.entry {
            Some(entry) => Stored::Put {
                entry: seal::sealed(encryption, entry)
                    .expect("its key was there when the group was taken up"),
                previous,
            },
            None => Stored::Delete {
                key: event.key.clone(),
                revision: event.revision,
                previous,
            },
        };
        format::put_stored(&mut self.bytes, &stored, commits);
        self.records += 1;
    }
}

fn holds(write: &Write, current: Option<&Arc<Entry>>) -> bool {
    let expected = match write.expect {
        Expect::Any => true,
        Expect::Absent => current.is_none(),
        Expect::Present => current.is_some(),
        Expect::At(revision) => current.is_some_and(|entry| entry.revision == revision),
    };
    // A deletion of what is not there is a conflict whatever was expected: it would be a change without a
    // previous entry.
    expected && (current.is_some() || !matches!(write.op, Op::Delete))
}
