//! Answers of one account, in the order in which they end.

use super::HeldUnread;
use crate::read_body::{READ, ReadBody};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Answers that are found to have been read on in one look, and put where they belong. The next look goes on from there.
const LOOKS: usize = 64;

#[derive(Debug)]
pub(super) struct Unread {
    pub(super) is_watch: bool,
    pub(super) held: HeldUnread,
    pub(super) behind_since: Arc<AtomicU64>,
    pub(super) body: Weak<ReadBody>,
    /// Place in the order, if any.
    pub(super) noted: Option<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) held: HeldUnread,
    answers: HashMap<u64, Unread>,
    /// Watches, and other answers.
    watches: Order,
    others: Order,
    #[cfg(test)]
    pub(super) looked_at: usize,
}

/// Answers by the time since which each has been behind, as last noted: a client that reads on does not take the lock
/// for it, so that an answer may belong further behind. Those that hold nothing are not there.
type Order = BTreeSet<(u64, u64)>;

impl Account {
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    pub(super) fn insert(&mut self, id: u64, unread: Unread) {
        self.held.add(unread.held);
        self.answers.insert(id, unread);
        self.arrange(id);
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Unread> {
        self.put(id, None);
        let unread = self.answers.remove(&id)?;
        self.held.subtract(unread.held);
        Some(unread)
    }

    /// Notes what an answer holds, and returns what it held before.
    pub(super) fn set(&mut self, id: u64, held: HeldUnread) -> Option<HeldUnread> {
        let unread = self.answers.get_mut(&id)?;
        let before = std::mem::replace(&mut unread.held, held);
        self.held.add(held);
        self.held.subtract(before);
        self.arrange(id);
        Some(before)
    }

    /// Takes the answer, of those that have been behind since before then, that has been for longest. It counts as one that is
    /// behind since `now`: what cannot be ended is polled just now, or waits for work of the server's own.
    pub(super) fn take_behind(&mut self, before: u64, now: u64) -> Option<Weak<ReadBody>> {
        let firsts = [self.first(true), self.first(false)];
        let (since, id) = firsts.into_iter().flatten().min()?;
        self.take(since, id, before, now)
    }

    /// The same of answers that are no watches.
    pub(super) fn take_expired(&mut self, before: u64, now: u64) -> Option<Weak<ReadBody>> {
        let (since, id) = self.first(false)?;
        self.take(since, id, before, now)
    }

    fn take(&mut self, since: u64, id: u64, before: u64, now: u64) -> Option<Weak<ReadBody>> {
        if since >= before {
            return None;
        }
        self.put(id, Some(now));
        self.answers.get(&id).map(|unread| Weak::clone(&unread.body))
    }

    fn first(&mut self, is_watch: bool) -> Option<(u64, u64)> {
        for _ in 0..LOOKS {
            let (noted, id) = *self.order(is_watch).first()?;
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            let since = self.answers.get(&id)?.behind_since.load(Ordering::Relaxed);
            if since <= noted {
                return Some((noted, id));
            }
            self.put(id, (since != READ).then_some(since));
        }
        None
    }

    /// Gives an answer that holds something a place, and takes that of one that holds nothing.
    fn arrange(&mut self, id: u64) {
        let Some(unread) = self.answers.get(&id) else {
            return;
        };
        let since = unread.behind_since.load(Ordering::Relaxed);
        match unread.noted {
            Some(_) if unread.held.is_nothing() => self.put(id, None),
            None if !unread.held.is_nothing() && since != READ => self.put(id, Some(since)),
            _ => {}
        }
    }

    fn put(&mut self, id: u64, noted: Option<u64>) {
        let Some(unread) = self.answers.get_mut(&id) else {
            return;
        };
        let (is_watch, before) = (unread.is_watch, std::mem::replace(&mut unread.noted, noted));
        let order = self.order(is_watch);
        if let Some(before) = before {
            order.remove(&(before, id));
        }
        if let Some(noted) = noted {
            order.insert((noted, id));
        }
    }

    fn order(&mut self, is_watch: bool) -> &mut Order {
        match is_watch {
            true => &mut self.watches,
            false => &mut self.others,
        }
    }
}
