//! The state of etcd below our prefix, in memory: the live tree, the feed that watches follow, and the revision of
//! both.
//!
//! [`follower`](super::follower) alone changes it, with whole revisions. Reads wait until it has reached the revision
//! that they must see.

use super::account::{Account, Reservation};
use super::past::Past;
use super::remote::Remote;
use crate::cursor::{Changes, PastEvents};
use crate::encryption::Seal;
use crate::feed::{Feed, Slot};
use crate::live::{Live, Pin, Pins};
use crate::{Claim, Entry, EtcdOptions, Event, Key, Prefix, Record, StorageError, Usage, Write};
use futures::future::BoxFuture;
use machinery_meta::Revision;
use machinery_runtime::Runtime;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::sync::Notify;

/// See the module. Lock order: feed, state, account, pins.
#[derive(Debug)]
pub(super) struct Mirror {
    pub(super) runtime: Runtime,
    pub(super) prefix: Prefix,
    /// Id of the etcd cluster that it mirrors.
    pub(super) cluster: AtomicU64,
    feed: RwLock<Feed>,
    state: RwLock<State>,
    account: Mutex<Account>,
    pub(super) pins: Mutex<Pins>,
    /// The revision has moved, or the state was read again.
    moved: Notify,
    /// A reader waits for a revision that no change has shown yet: etcd is to say how far the watch is.
    pub(super) wanted: Notify,
    /// Something says that this is not what etcd holds: start over.
    pub(super) doubted: Notify,
    past: Past,
}

#[derive(Debug, Default)]
struct State {
    live: Live,
    /// Keys whose values cannot be decoded here, and the revisions of the values. Reads of them go to etcd, and say why.
    unread: BTreeMap<Key, Revision>,
    /// The state was read once.
    listed: bool,
}

/// A change as the watch delivers it.
#[derive(Debug)]
pub(super) enum WatchedChange {
    Put(Arc<Entry>),
    /// The value cannot be read.
    Unread(Key, Revision),
    Delete(Key, Revision),
}

/// Everything below the prefix at one revision.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) live: Live,
    pub(super) unread: BTreeMap<Key, Revision>,
    /// Unreadable keys whose values no key decrypts.
    pub(super) sealed: Vec<Key>,
}

/// Changes dropped under one lock.
const TRIM_STEP: usize = 256;

impl Mirror {
    pub(super) fn new(runtime: Runtime, prefix: Prefix, options: &EtcdOptions, remote: Remote) -> Self {
        Self {
            runtime,
            past: Past::new(remote),
            prefix,
            cluster: AtomicU64::new(0),
            feed: RwLock::new(Feed::new(Revision::ZERO, Revision::ZERO, options.history_bytes)),
            state: RwLock::default(),
            account: Mutex::new(Account::new(options.quota.clone())),
            pins: Mutex::new(Pins::new(options.pinned_bytes)),
            moved: Notify::new(),
            wanted: Notify::new(),
            doubted: Notify::new(),
        }
    }

    /// The revision that it has reached; `None` before the state was read once.
    pub(super) fn revision(&self) -> Option<Revision> {
        let state = self.state.read();
        state.listed.then_some(state.live.revision)
    }

    /// The state as it is now.
    pub(super) fn now(&self) -> Option<Pin> {
        let state = self.state.read();
        state.listed.then(|| state.live.pin())
    }

    /// The entries below a prefix, and sealed ones in the place of values that cannot be read.
    pub(super) fn entries_below(&self, prefix: &Prefix) -> Option<(Vec<Arc<Entry>>, Revision)> {
        let state = self.state.read();
        let from = (Bound::Included(prefix.as_str()), Bound::Unbounded);
        let unread = state.unread.range::<str, _>(from);
        let unread: Vec<_> = unread
            .take_while(|(key, _)| prefix.contains(key))
            .map(|(key, revision)| Arc::new(unreadable(key, *revision)))
            .collect();
        let (root, revision) = (state.live.root.clone(), state.live.revision);
        let is_listed = state.listed;
        drop(state);
        is_listed.then(|| {
            let readable = root.below(prefix, None).cloned();
            (readable.chain(unread).collect(), revision)
        })
    }

    pub(super) fn is_unread(&self, key: &Key) -> bool {
        let state = self.state.read();
        !state.unread.is_empty() && state.unread.contains_key(key)
    }

    pub(super) fn has_unread_below(&self, prefix: &Prefix) -> bool {
        let state = self.state.read();
        let from = (Bound::Included(prefix.as_str()), Bound::Unbounded);
        let first = state.unread.range::<str, _>(from).next();
        first.is_some_and(|(key, _)| prefix.contains(key))
    }

    /// Keys whose values cannot be decoded here.
    pub(super) fn unread(&self) -> Vec<Key> {
        self.state.read().unread.keys().cloned().collect()
    }

    /// Takes a value in that could not be read before, unless it has changed since.
    pub(super) fn now_read(&self, entry: &Arc<Entry>) {
        let mut state = self.state.write();
        if state.unread.get(entry.key.as_str()) != Some(&entry.revision) {
            return;
        }
        state.unread.remove(entry.key.as_str());
        state.live.bytes += entry.record.len() as u64;
        let old = state.live.root.insert(entry.key.clone(), Arc::clone(entry));
        self.account.lock().change(old.as_deref(), Some(entry));
        drop(state);
        // They are of a revision that lacks it.
        let released = self.pins.lock().release(Revision(u64::MAX));
        drop(released);
    }

    pub(super) fn compacted(&self) -> Revision {
        self.feed.read().compacted()
    }

    /// The newest change in memory that left something there, to see whether etcd still knows of it.
    pub(super) fn witness(&self) -> Option<Arc<Entry>> {
        self.feed.read().last_entry().cloned()
    }

    /// Resolves when the state is of this revision or a later one. The caller bounds the wait.
    pub(super) async fn reached(&self, revision: Revision) {
        loop {
            // Before the look, so that no change in between is missed.
            let moved = self.moved.notified();
            if self.revision().is_some_and(|own| own >= revision) {
                return;
            }
            self.wanted.notify_one();
            moved.await;
        }
    }

    /// Makes changes visible, in order and whole revisions at a time; everything up to `until` is among them.
    pub(super) fn apply(&self, changes: Vec<WatchedChange>, until: Revision) {
        let (mut wake, now) = (Vec::new(), self.runtime.monotonic());
        let left = {
            let mut feed = self.feed.write();
            let mut state = self.state.write();
            let mut account = self.account.lock();
            for watched in changes {
                if let Some(event) = state.take(watched, &mut account) {
                    feed.push(event, now, &mut wake);
                }
            }
            feed.advance(until);
            state.live.revision = state.live.revision.max(until);
            account.reached(state.live.revision);
            state.live.left
        };
        self.moved.notify_waiters();
        wake.into_iter().for_each(std::task::Waker::wake);
        let ended = self.pins.lock().end_large(left);
        drop(ended);
    }

    /// Goes on from a state that was read as a whole, later than what was there. Cursors that are not there yet read
    /// etcd's history, and are too late where that is compacted.
    pub(super) fn replace(&self, listed: Listed) {
        let revision = listed.live.revision;
        self.put_in_place(listed, |feed, wake| feed.skip_to(revision, wake));
    }

    /// Goes on in another history than the one that was followed: every cursor is too late.
    pub(super) fn start_over(&self, listed: Listed) {
        let revision = listed.live.revision;
        let old = self.pins.lock().release(Revision(u64::MAX));
        self.put_in_place(listed, |feed, wake| feed.start_over(revision, revision, wake));
        drop(old);
    }

    fn put_in_place(&self, listed: Listed, go_on: impl FnOnce(&mut Feed, &mut Vec<std::task::Waker>)) {
        let mut wake = Vec::new();
        let old = {
            let mut feed = self.feed.write();
            let mut state = self.state.write();
            go_on(&mut feed, &mut wake);
            let mut next = State {
                live: listed.live,
                unread: listed.unread,
                listed: true,
            };
            // Pins of the former state count on from what they knew; all of it may be theirs alone now.
            next.live.left = state.live.left + self.account.lock().replaced(&state.live, &next.live);
            std::mem::replace(&mut *state, next)
        };
        drop(old);
        self.moved.notify_waiters();
        wake.into_iter().for_each(std::task::Waker::wake);
    }

    /// etcd has compacted everything older than a revision.
    pub(super) fn compact(&self, floor: Revision) {
        self.feed.write().compact(floor);
        while self.feed.write().trim(TRIM_STEP) {}
        // Dropped without the lock: a former state may hold many entries.
        let released = self.pins.lock().release(floor);
        drop(released);
    }

    pub(super) fn recache(&self, key: &Key, revision: Revision, record: Record) -> bool {
        let mut state = self.state.write();
        let known = state.live.root.get(key.as_str());
        let Some(known) = known.filter(|known| known.revision == revision) else {
            return false;
        };
        let renewed = Arc::new(known.with_record(record));
        let replaced = state.live.replace(renewed);
        let mut account = self.account.lock();
        replaced
            .iter()
            .for_each(|both| account.change(Some(&both.old), Some(&both.new)));
        replaced.is_some()
    }

    /// Reserves room for a group that is about to be sent.
    ///
    /// Errors: those of the quota, as [`Storage::commit_for`](crate::Storage::commit_for).
    pub(super) fn reserve(
        self: &Arc<Self>,
        group: &[Write],
        claim: Claim,
    ) -> Result<Reservation, StorageError> {
        let state = self.state.read();
        let before: Vec<_> = group
            .iter()
            .map(|write| state.live.root.get(write.key.as_str()).cloned())
            .collect();
        let reserved = self.account.lock().ledger.reserve(group, &before, claim)?;
        Ok(Reservation::new(Arc::clone(self), reserved))
    }

    pub(super) fn usage(&self) -> Usage {
        self.account.lock().ledger.usage()
    }

    pub(super) fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock()
    }

    /// Differences of the account from what is there, where no write is under way.
    #[cfg(test)]
    pub(super) fn miscounted(&self) -> Vec<String> {
        let state = self.state.read();
        self.account().differences(&state.live)
    }

    /// Ends every watch.
    pub(super) fn close(&self) {
        let wakers = self.feed.write().close();
        wakers.into_iter().for_each(std::task::Waker::wake);
    }
}

impl State {
    /// The event of a change; none where there is nothing that could be shown.
    fn take(&mut self, watched: WatchedChange, account: &mut Account) -> Option<Arc<Event>> {
        let (revision, key, entry) = match watched {
            WatchedChange::Put(entry) => (entry.revision, entry.key.clone(), Some(entry)),
            WatchedChange::Delete(key, revision) => (revision, key, None),
            WatchedChange::Unread(key, revision) => {
                // What was there stays in the tree, as what the next change is seen to replace.
                self.unread.insert(key, revision);
                return None;
            }
        };
        let unread = self.unread.remove(key.as_str());
        let previous = self.live.root.get(key.as_str()).cloned();
        if let (None, None, Some(unread)) = (&entry, &previous, unread) {
            self.live.revision = revision;
            return Some(Arc::new(unread_is_gone(key, unread, revision)));
        }
        if entry.is_none() && previous.is_none() {
            return None;
        }
        let event = Arc::new(Event {
            revision,
            key,
            entry,
            previous,
        });
        self.live.apply(&event);
        account.change(event.previous.as_deref(), event.entry.as_deref());
        Some(event)
    }
}

/// The deletion of a value that could not be read. A client may know the object from before: every watch of it ends here.
fn unread_is_gone(key: Key, unread: Revision, revision: Revision) -> Event {
    Event {
        revision,
        entry: None,
        previous: Some(Arc::new(unreadable(&key, unread))),
        key,
    }
}

/// An entry in the place of one that cannot be read.
fn unreadable(key: &Key, revision: Revision) -> Entry {
    Entry {
        key: key.clone(),
        revision,
        created: revision,
        expires: None,
        record: Record::unreadable(),
        seal: Seal::default(),
    }
}

impl Changes for Mirror {
    fn feed(&self) -> &RwLock<Feed> {
        &self.feed
    }

    fn past(
        self: Arc<Self>,
        slot: Arc<Slot>,
        from: Revision,
        until: Revision,
        max: usize,
    ) -> BoxFuture<'static, Result<PastEvents, StorageError>> {
        Box::pin(async move {
            let read = self.past.events(&self.runtime, &slot, from, until, max).await;
            if let Err(StorageError::Compacted { compacted, .. }) = &read {
                self.compact(*compacted);
            }
            read
        })
    }

    fn readable(&self, events: Vec<Arc<Event>>) -> Result<Vec<Arc<Event>>, StorageError> {
        match events.iter().find(|event| event.is_unreadable()) {
            None => Ok(events),
            Some(event) => Err(StorageError::Sealed {
                key: event.key.clone(),
                cause: "an object that could not be read was deleted".to_owned(),
            }),
        }
    }
}
