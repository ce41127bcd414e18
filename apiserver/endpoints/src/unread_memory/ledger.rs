//! A ledger of the memory that each owner's answers hold, and of how long each has been unread.

use super::account::{Account, Unread};
use super::{LONGEST_UNREAD, PATIENCE};
use crate::read_body::{ReadBody, nanos};
use apiserver_registry::{RequestContext, UserClass};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// Encoded bytes that wait, of all watches and of one owner's.
const ENCODED: Share = Share::of(128 << 20);
/// Bytes of the objects that answers refer to.
pub(super) const REFERRED: Share = Share::of(1 << 30);
/// Frames of one owner's watches that wait for a thread among the heavy work; the next ones wait for these.
const FRAMES_IN_TURN: usize = 128;
/// Expired answers that are taken at a time: all others wait for the lock.
const EXPIRED_AT_ONCE: usize = 256;

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

    /// Reports whether a holder of something may not hold more.
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

    pub(super) fn subtract(&mut self, less: Self) {
        self.encoded -= less.encoded;
        self.referred -= less.referred;
    }

    pub(super) fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// One that holds answers: an account, within the owner of the share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    /// The namespace that an ordinary user's request is about, otherwise the account: many accounts in a namespace are one
    /// tenant's.
    pub(super) owner: Arc<str>,
    pub(super) account: Arc<str>,
}

impl Holder {
    pub(super) fn of(ctx: &RequestContext) -> Self {
        let account = ctx.memory_owner();
        let owner = match UserClass::of(&ctx.user) {
            UserClass::Ordinary if !ctx.namespace.is_empty() => format!("namespace {}", ctx.namespace),
            _ => format!("account {account}"),
        };
        Self {
            owner: owner.into(),
            account,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    owners: HashMap<Arc<str>, Owner>,
    pub(super) held: HeldUnread,
    last: u64,
    /// Answers that are no watches.
    pub(super) answers: usize,
    /// A task looks again once answers have been unread for long.
    pub(super) is_swept: bool,
}

#[derive(Debug)]
struct Owner {
    held: HeldUnread,
    accounts: HashMap<Arc<str>, Account>,
    frames: Arc<Semaphore>,
    given_back: Arc<Notify>,
}

impl Owner {
    fn new() -> Self {
        Self {
            held: HeldUnread::default(),
            accounts: HashMap::new(),
            frames: Arc::new(Semaphore::new(FRAMES_IN_TURN)),
            given_back: Arc::default(),
        }
    }

    fn account_with_most(&self, weight: Weight) -> Option<Arc<str>> {
        let most = self.accounts.iter().max_by_key(|(_, own)| weight(&own.held));
        most.map(|(name, _)| Arc::clone(name))
    }
}

type Weight = fn(&HeldUnread) -> usize;

/// A share without room.
pub(super) struct Spent {
    /// Owner of the answers that end first: the share's owner, or where all together hold too much the one with most.
    owner: Arc<str>,
    weight: Weight,
    is_of_owner: bool,
}

impl Ledger {
    /// Reports whether an owner holds so much that there is no room for more.
    pub(super) fn is_full(&self, owner: &str, more: HeldUnread) -> bool {
        let own = self.owners.get(owner).map(|own| own.held).unwrap_or_default();
        ENCODED.is_spent(own.encoded, self.held.encoded, more.encoded)
            || REFERRED.is_spent(own.referred, self.held.referred, more.referred)
    }

    /// The share in which there is no room for more of this owner's.
    pub(super) fn spent(&self, owner: &Arc<str>, more: HeldUnread) -> Option<Spent> {
        let own = self.owners.get(owner)?.held;
        let kinds: [(Weight, Share); 2] = [(|held| held.encoded, ENCODED), (|held| held.referred, REFERRED)];
        let of_owner = kinds
            .iter()
            .find(|(weight, share)| weight(&own) + weight(&more) > share.of_owner);
        if let Some((weight, _)) = of_owner {
            return Some(Spent {
                owner: Arc::clone(owner),
                weight: *weight,
                is_of_owner: true,
            });
        }
        let is_spent = |(weight, share): &&(Weight, Share)| weight(&self.held) + weight(&more) > share.all;
        let (weight, _) = *kinds.iter().find(is_spent)?;
        let most = self.owners.iter().max_by_key(|(_, own)| weight(&own.held));
        most.map(|(name, _)| Spent {
            owner: Arc::clone(name),
            weight,
            is_of_owner: false,
        })
    }

    /// Returns where to wait for room: for what the owner gives back, or any owner where all together hold too much.
    pub(super) fn given_back(&self, owner: &Arc<str>, more: HeldUnread, by_all: &Arc<Notify>) -> Arc<Notify> {
        let own = self.owners.get(owner).map(|own| Arc::clone(&own.given_back));
        match self.spent(owner, more) {
            Some(spent) if !spent.is_of_owner => Arc::clone(by_all),
            _ => own.unwrap_or_default(),
        }
    }

    /// The next answer to end for room for more of this holder's: of the account that holds most, or else of its own, one
    /// that has been behind for long. The account that holds most gives way to an answer or a watch of one that holds less also
    /// where it reads on, as does the owner with most where all together hold too much.
    pub(super) fn next_to_end(
        &mut self,
        spent: &Spent,
        holder: &Holder,
        more: HeldUnread,
        now: Duration,
    ) -> Option<Arc<ReadBody>> {
        let gives_way = !more.is_nothing() && self.has_more(spent, holder, more);
        let own = self.owners.get_mut(&spent.owner)?;
        let before = now.checked_sub(PATIENCE).map_or(0, |before| nanos(before) + 1);
        let now = nanos(now);
        let most = own.account_with_most(spent.weight)?;
        let before_of_most = if gives_way { now } else { before };
        for (name, before) in [(&most, before_of_most), (&holder.account, before)] {
            let account = own.accounts.get_mut(name);
            let body = account.and_then(|account| account.take_behind(before, now));
            if let Some(body) = body.and_then(|body| body.upgrade()) {
                return Some(body);
            }
        }
        None
    }

    /// Reports whether the one whose answers end first holds more than this one would: of the accounts of an owner, or of the
    /// owners where all together hold too much.
    fn has_more(&self, spent: &Spent, holder: &Holder, more: HeldUnread) -> bool {
        let weight = spent.weight;
        let of_owner = |owner| self.owners.get(owner).map_or(0, |own| weight(&own.held));
        let (most, own) = match self.owners.get(&spent.owner).filter(|_| spent.is_of_owner) {
            Some(owner) => {
                let of = |name: &Arc<str>| owner.accounts.get(name).map_or(0, |own| weight(&own.held));
                let most = owner.account_with_most(weight);
                (most.map_or(0, |name| of(&name)), of(&holder.account))
            }
            None => (of_owner(&spent.owner), of_owner(&holder.owner)),
        };
        most > own + weight(&more)
    }

    /// Answers, some of them, that no client has read on for so long that they end in any case.
    pub(super) fn expired(&mut self, now: Duration) -> Vec<Arc<ReadBody>> {
        let Some(before) = now.checked_sub(LONGEST_UNREAD) else {
            return Vec::new();
        };
        let accounts = self.owners.values_mut().flat_map(|own| own.accounts.values_mut());
        let of_account = |account: &mut Account| {
            let next = || account.take_expired(nanos(before) + 1, nanos(now));
            std::iter::from_fn(next).take(EXPIRED_AT_ONCE).collect::<Vec<_>>()
        };
        let expired = accounts.flat_map(of_account).filter_map(|body| body.upgrade());
        expired.take(EXPIRED_AT_ONCE).collect()
    }

    /// The holders of answers.
    pub(super) fn holders(&self) -> Vec<Holder> {
        let of_owner = |(owner, own): (&Arc<str>, &Owner)| {
            let holder = |account: &Arc<str>| Holder {
                owner: Arc::clone(owner),
                account: Arc::clone(account),
            };
            own.accounts.keys().map(holder).collect::<Vec<_>>()
        };
        self.owners.iter().flat_map(of_owner).collect()
    }

    /// Enters an answer, and returns its number and the places of the owner's frames.
    pub(super) fn enter(&mut self, holder: &Holder, unread: Unread) -> (u64, Arc<Semaphore>) {
        self.last += 1;
        self.held.add(unread.held);
        self.answers += usize::from(!unread.is_watch);
        let own = self
            .owners
            .entry(Arc::clone(&holder.owner))
            .or_insert_with(Owner::new);
        own.held.add(unread.held);
        let account = own.accounts.entry(Arc::clone(&holder.account)).or_default();
        account.insert(self.last, unread);
        (self.last, Arc::clone(&own.frames))
    }

    /// Notes what an answer holds, and returns where its owner's others wait.
    pub(super) fn set(&mut self, holder: &Holder, id: u64, held: HeldUnread) -> Option<Arc<Notify>> {
        let own = self.owners.get_mut(&holder.owner)?;
        let before = own.accounts.get_mut(&holder.account)?.set(id, held)?;
        for sum in [&mut own.held, &mut self.held] {
            sum.add(held);
            sum.subtract(before);
        }
        Some(Arc::clone(&own.given_back))
    }

    /// Removes an answer, and returns where its owner's others wait.
    pub(super) fn remove(&mut self, holder: &Holder, id: u64) -> Option<Arc<Notify>> {
        let own = self.owners.get_mut(&holder.owner)?;
        let account = own.accounts.get_mut(&holder.account)?;
        let unread = account.remove(id)?;
        let given_back = Arc::clone(&own.given_back);
        own.held.subtract(unread.held);
        self.held.subtract(unread.held);
        self.answers -= usize::from(!unread.is_watch);
        if account.is_empty() {
            own.accounts.remove(&holder.account);
        }
        if own.accounts.is_empty() {
            self.owners.remove(&holder.owner);
        }
        Some(given_back)
    }

    /// Answers that were looked at so far.
    #[cfg(test)]
    pub(super) fn looked_at(&self) -> usize {
        let accounts = self.owners.values().flat_map(|own| own.accounts.values());
        accounts.map(|account| account.looked_at).sum()
    }
}
