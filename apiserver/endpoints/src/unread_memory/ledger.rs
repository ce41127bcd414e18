//! Who holds how much, and who has been behind for how long.

use super::{LONGEST_UNREAD, PATIENCE};
use crate::read_body::{ReadBody, nanos};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;
/// Encoded bytes that wait, of all watches and of one owner's.
const ENCODED: Share = Share::of(128 << 20);
/// Bytes of the objects that answers refer to.
pub(super) const REFERRED: Share = Share::of(1 << 30);
/// Frames of one owner's watches that wait for a thread among the heavy work; the next ones wait for these.
const FRAMES_IN_TURN: usize = 128;

/// Bound of something.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    all: usize,
    pub(super) of_owner: usize,
}

impl Share {
    const fn of(all: usize) -> Self {
        Self {
            all,
            of_owner: all / 4,
        }
    }

    /// Reports whether one who holds something may not hold more.
    fn is_spent(self, own: usize, all: usize, more: usize) -> bool {
        more > 0 && own > 0 && (own + more > self.of_owner || all + more > self.all)
    }
}

/// Bytes that an answer, or an owner's answers, hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeldUnread {
    /// Encoded and not yet sent.
    pub encoded: usize,
    /// Objects that are referred to.
    pub referred: usize,
}

impl HeldUnread {
    pub(super) fn add(&mut self, more: Self) {
        self.encoded += more.encoded;
        self.referred += more.referred;
    }

    fn subtract(&mut self, less: Self) {
        self.encoded -= less.encoded;
        self.referred -= less.referred;
    }

    pub(super) fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) owners: HashMap<Arc<str>, Owner>,
    pub(super) held: HeldUnread,
    pub(super) last: u64,
    /// Answers that are no watches.
    pub(super) answers: usize,
    /// A task looks again once answers have been unread for long.
    pub(super) is_swept: bool,
}

#[derive(Debug)]
pub(super) struct Owner {
    pub(super) held: HeldUnread,
    pub(super) answers: HashMap<u64, Unread>,
    /// None of them has been behind for long before.
    pub(super) quiet_until: Duration,
    pub(super) frames: Arc<Semaphore>,
}

#[derive(Debug)]
pub(super) struct Unread {
    pub(super) is_watch: bool,
    pub(super) held: HeldUnread,
    pub(super) behind_since: Arc<AtomicU64>,
    pub(super) body: Weak<ReadBody>,
}

impl Owner {
    pub(super) fn new() -> Self {
        Self {
            held: HeldUnread::default(),
            answers: HashMap::new(),
            quiet_until: Duration::ZERO,
            frames: Arc::new(Semaphore::new(FRAMES_IN_TURN)),
        }
    }
}

impl Ledger {
    /// Reports whether an owner holds so much that there is no room for more.
    pub(super) fn is_full(&self, owner: &str, more: HeldUnread) -> bool {
        let own = self.owners.get(owner).map(|own| own.held).unwrap_or_default();
        ENCODED.is_spent(own.encoded, self.held.encoded, more.encoded)
            || REFERRED.is_spent(own.referred, self.held.referred, more.referred)
    }

    /// The owner whose answers end first: this one where its share is spent, whoever holds most where all is.
    pub(super) fn spent(&self, owner: &Arc<str>, more: HeldUnread) -> Option<Arc<str>> {
        let own = self.owners.get(owner)?.held;
        if own.encoded + more.encoded > ENCODED.of_owner || own.referred + more.referred > REFERRED.of_owner {
            return Some(Arc::clone(owner));
        }
        let all = self.held;
        let by = |weight: fn(&HeldUnread) -> usize| {
            let most = self.owners.iter().max_by_key(|(_, own)| weight(&own.held));
            most.map(|(name, _)| Arc::clone(name))
        };
        if all.encoded + more.encoded > ENCODED.all {
            return by(|held| held.encoded);
        }
        (all.referred + more.referred > REFERRED.all)
            .then(|| by(|held| held.referred))
            .flatten()
    }

    /// Bodies of the owner's answers that have been behind for long, the longest first.
    pub(super) fn behind(&mut self, owner: &str, now: Duration) -> Vec<Arc<ReadBody>> {
        let own = self.owners.get_mut(owner).filter(|own| own.quiet_until <= now);
        let (Some(own), Some(before)) = (own, now.checked_sub(PATIENCE).map(nanos)) else {
            return Vec::new();
        };
        let (mut behind, mut first) = (Vec::new(), nanos(now));
        for unread in own.answers.values().filter(|unread| !unread.held.is_nothing()) {
            let since = unread.behind_since.load(Ordering::Relaxed);
            first = first.min(since);
            if since <= before {
                behind.push((since, &unread.body));
            }
        }
        // Looking is work in proportion to what is held: not before it can find something.
        own.quiet_until = match behind.is_empty() {
            true => Duration::from_nanos(first) + PATIENCE,
            false => Duration::ZERO,
        };
        behind.sort_by_key(|(since, _)| *since);
        behind
            .into_iter()
            .filter_map(|(_, body)| body.upgrade())
            .collect()
    }

    /// Bodies of answers that no client has read on for so long that they end in any case.
    pub(super) fn expired(&self, now: Duration) -> Vec<Arc<ReadBody>> {
        let Some(before) = now.checked_sub(LONGEST_UNREAD).map(nanos) else {
            return Vec::new();
        };
        let all = self.owners.values().flat_map(|own| own.answers.values());
        let expired =
            all.filter(|unread| !unread.is_watch && unread.behind_since.load(Ordering::Relaxed) <= before);
        expired.filter_map(|unread| unread.body.upgrade()).collect()
    }

    pub(super) fn set(&mut self, owner: &str, id: u64, held: HeldUnread) {
        let Some(owner) = self.owners.get_mut(owner) else {
            return;
        };
        let Some(unread) = owner.answers.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut unread.held, held);
        for sum in [&mut owner.held, &mut self.held] {
            sum.add(held);
            sum.subtract(before);
        }
    }
}
