//! The watchers of one member: those in step with the changes, those behind, and those with a message that could not be sent.
//!
//! As in etcd, a change is offered to watchers that are in step; one whose queue is full is a victim and gets the same
//! again later, then catches up from its own revision in batches of whole revisions. Only those in step are notified of
//! progress, and only a watcher that is behind can be too late for what a compaction left.

use crate::messages::{Event, WatchCreate};
use crate::store::Store;
use std::collections::BTreeMap;
use tokio::sync::mpsc::Sender;

#[derive(Debug, Default)]
pub(crate) struct Watchers {
    next: u64,
    watchers: BTreeMap<u64, Watcher>,
}

#[derive(Debug)]
struct Watcher {
    asked: WatchCreate,
    /// The first revision it has not been offered.
    min_revision: i64,
    state: State,
    queue: Sender<Message>,
}

#[derive(Debug)]
enum State {
    InStep,
    Behind,
    Victim(Message),
}

/// A message to a stream.
#[derive(Debug, Clone)]
pub(crate) enum Message {
    /// Changes of whole revisions, in order, and the revision that the header names.
    Changes(Vec<Event>, i64),
    /// Everything up to here was sent.
    Progress(i64),
    /// The watcher began before this and is no more.
    Compacted(i64),
}

impl Watchers {
    pub(crate) fn add(&mut self, asked: WatchCreate, store: &Store, queue: Sender<Message>) -> u64 {
        let start = asked.start_revision;
        let in_step = start == 0 || start > store.revision();
        let watcher = Watcher {
            min_revision: if in_step {
                start.max(store.revision() + 1)
            } else {
                start
            },
            state: if in_step { State::InStep } else { State::Behind },
            asked,
            queue,
        };
        self.next += 1;
        self.watchers.insert(self.next, watcher);
        self.next
    }

    pub(crate) fn len(&self) -> usize {
        self.watchers.len()
    }

    pub(crate) fn remove(&mut self, id: u64) {
        self.watchers.remove(&id);
    }

    /// A revision has just happened.
    pub(crate) fn notify(&mut self, revision: i64, events: &[Event]) {
        for watcher in self.watchers.values_mut() {
            if !matches!(watcher.state, State::InStep) || revision < watcher.min_revision {
                continue;
            }
            let wanted = watcher.wanted(events);
            if !wanted.is_empty() {
                watcher.min_revision = revision + 1;
                watcher.offer(Message::Changes(wanted, revision));
            }
        }
    }

    /// One round for watchers that are not in step, at most so many revisions to each.
    pub(crate) fn catch_up(&mut self, store: &Store, batch_revisions: usize) {
        self.watchers
            .retain(|_, watcher| watcher.catch_up(store, batch_revisions));
    }

    /// Sends progress to every watcher in step that requested it.
    pub(crate) fn progress(&mut self, store: &Store) {
        for watcher in self.watchers.values_mut() {
            if watcher.asked.progress_notify && matches!(watcher.state, State::InStep) {
                // Left out when the queue is full, as etcd does.
                drop(watcher.queue.try_send(Message::Progress(store.revision())));
            }
        }
    }

    /// One that asks learns how far it is when it is in step, and nothing otherwise.
    pub(crate) fn progress_of(&mut self, id: u64, store: &Store) {
        let Some(watcher) = self.watchers.get_mut(&id) else {
            return;
        };
        if matches!(watcher.state, State::InStep) {
            drop(watcher.queue.try_send(Message::Progress(store.revision())));
        }
    }

    /// Restores the watchers from a snapshot of the leader: none is in step any more.
    pub(crate) fn restore(&mut self, store: &Store) {
        for watcher in self.watchers.values_mut() {
            if matches!(watcher.state, State::InStep) && watcher.min_revision <= store.revision() {
                watcher.state = State::Behind;
            }
        }
    }
}

impl Watcher {
    fn wanted(&self, events: &[Event]) -> Vec<Event> {
        let (key, end) = (&self.asked.key[..], &self.asked.range_end[..]);
        let wants = |other: &[u8]| match end {
            [] => other == key,
            [0] => other >= key,
            end => other >= key && other < end,
        };
        let of_interest = events
            .iter()
            .filter(|event| event.kv.as_ref().is_some_and(|kv| wants(&kv.key)));
        of_interest.cloned().collect()
    }

    /// A watcher in step stays so when there is room, and becomes a victim when there is none.
    fn offer(&mut self, message: Message) -> bool {
        match self.queue.try_send(message) {
            Ok(()) => true,
            Err(refused) => {
                self.state = State::Victim(refused.into_inner());
                false
            }
        }
    }

    /// Sends a watcher what it has missed; returns whether the watcher goes on.
    fn catch_up(&mut self, store: &Store, batch_revisions: usize) -> bool {
        match std::mem::replace(&mut self.state, State::InStep) {
            State::InStep => true,
            State::Victim(message) => {
                if self.offer(message) && self.min_revision <= store.revision() {
                    self.state = State::Behind;
                }
                true
            }
            State::Behind => self.read_on(store, batch_revisions),
        }
    }

    fn read_on(&mut self, store: &Store, batch_revisions: usize) -> bool {
        if self.min_revision < store.compacted() {
            let too_late = Message::Compacted(store.compacted());
            self.state = State::Behind;
            return self.queue.try_send(too_late).is_err();
        }
        let (mut batch, mut revisions, mut more) = (Vec::new(), 0, None);
        for (revision, events) in store.changes_from(self.min_revision) {
            let wanted = self.wanted(events);
            if wanted.is_empty() {
                continue;
            }
            if revisions == batch_revisions {
                more = Some(revision);
                break;
            }
            revisions += 1;
            batch.extend(wanted);
        }
        self.min_revision = more.unwrap_or(store.revision() + 1);
        self.state = if more.is_some() {
            State::Behind
        } else {
            State::InStep
        };
        if !batch.is_empty() {
            // The header names the store's revision also when there is more to come: it is no mark of progress.
            self.offer(Message::Changes(batch, store.revision()));
        }
        true
    }
}
