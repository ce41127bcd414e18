//! The account of what is stored.

use super::{Claim, NamespaceUsage, OWN_SHARE, Quota, Tier, Usage, share_bytes};
use crate::{Entry, Key, Op, Record, StorageError, Write};
use machinery_meta::ObjectHeader;
use std::collections::HashMap;
use std::sync::Arc;

/// Keys of Namespaces.
const NAMESPACES: &str = "/registry/namespaces/";
/// Namespaces that [`Usage`] names.
const LARGEST: usize = 10;
/// Namespaces with a share of their own that it names.
const SHOWN_SHARES: usize = 1_000;
/// The log says again that the store is full when this part of it was free in between, however often a user fills it.
const FREE_PART: u64 = 64;

/// Bytes by namespace.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    quota: Quota,
    total: u64,
    /// Invariant: none of them is empty.
    accounts: HashMap<Box<str>, Account>,
    /// Bytes that Namespaces set for their objects.
    own_shares: HashMap<Box<str>, u64>,
    /// Bytes in all below which the last write that the store refused has room; the store is full until then.
    full_above: Option<u64>,
    /// The log says that the store is full.
    is_reported: bool,
    refused_by_store: u64,
    refused_by_namespace: u64,
}

/// Bytes of one namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Account {
    lasting: u64,
    expiring: u64,
}

/// An object as it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held<'a> {
    namespace: &'a str,
    expires: bool,
    bytes: u64,
    share: Option<OwnShare<'a>>,
}

/// A Namespace and the share that it sets for its objects, if it sets one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OwnShare<'a> {
    of: &'a str,
    bytes: Option<u64>,
}

/// Room of writes that are under way: the growth of each account.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reserved(Vec<(Box<str>, Account)>);

impl<'a> Held<'a> {
    pub(crate) fn of(entry: &'a Entry) -> Self {
        Self {
            namespace: &entry.record.header.key.namespace,
            expires: entry.expires.is_some(),
            bytes: entry.footprint() as u64,
            share: OwnShare::of(&entry.key, &entry.record.header),
        }
    }

    fn of_put(key: &'a Key, record: &'a Record, expires: bool) -> Self {
        Self {
            namespace: &record.header.key.namespace,
            expires,
            bytes: record.footprint(key) as u64,
            share: OwnShare::of(key, &record.header),
        }
    }

    /// Bytes that the account gains when `old` goes.
    fn growth(&self, old: Option<&Self>) -> u64 {
        let own = old.filter(|old| (old.namespace, old.expires) == (self.namespace, self.expires));
        self.bytes.saturating_sub(own.map_or(0, |old| old.bytes))
    }
}

impl<'a> OwnShare<'a> {
    /// The share of the Namespace at this key; none for other objects.
    fn of(key: &'a Key, header: &ObjectHeader) -> Option<Self> {
        let of = key.as_str().strip_prefix(NAMESPACES)?;
        let bytes = header.label(OWN_SHARE).and_then(share_bytes);
        Some(Self { of, bytes })
    }
}

impl Account {
    fn of(expires: bool, bytes: u64) -> Self {
        let mut account = Self::default();
        *account.part(expires) = bytes;
        account
    }

    fn part(&mut self, expires: bool) -> &mut u64 {
        if expires {
            &mut self.expiring
        } else {
            &mut self.lasting
        }
    }

    fn sum(self) -> u64 {
        self.lasting + self.expiring
    }
}

impl Ledger {
    /// The account of everything there is.
    pub(crate) fn of<'e>(quota: Quota, entries: impl Iterator<Item = &'e Arc<Entry>>) -> Self {
        let mut ledger = Self {
            quota,
            ..Self::default()
        };
        entries.for_each(|entry| ledger.change(None, Some(Held::of(entry))));
        ledger
    }

    /// Counts a group as written, or nothing of it. `before` has what is at the key of each write.
    ///
    /// Errors: [`StorageError::NamespaceQuotaExceeded`], [`StorageError::StoreQuotaExceeded`].
    pub(crate) fn admit(
        &mut self,
        group: &[Write],
        before: &[Option<Arc<Entry>>],
        claim: Claim,
    ) -> Result<(), StorageError> {
        let deletes = deletes(group);
        for (at, (write, old)) in group.iter().zip(before).enumerate() {
            let (old, new) = (old.as_deref(), put_by(write));
            let bounded = new.filter(|new| !goes_along(new, deletes));
            if let Err(error) = self.check(write, old, bounded, claim) {
                self.take_back(&group[..at], before);
                return Err(error);
            }
            if !matches!(write.op, Op::Check) {
                self.change(old.map(Held::of), new);
            }
        }
        Ok(())
    }

    /// Counts writes as not written that were.
    pub(crate) fn take_back(&mut self, group: &[Write], before: &[Option<Arc<Entry>>]) {
        for (write, old) in group.iter().zip(before) {
            if !matches!(write.op, Op::Check) {
                self.change(put_by(write), old.as_deref().map(Held::of));
            }
        }
    }

    /// Reserves room for a group that is about to be sent, or none.
    ///
    /// Errors: as [`Ledger::admit`].
    pub(crate) fn reserve(
        &mut self,
        group: &[Write],
        before: &[Option<Arc<Entry>>],
        claim: Claim,
    ) -> Result<Reserved, StorageError> {
        let deletes = deletes(group);
        let mut reserved = Reserved::default();
        for (write, old) in group.iter().zip(before) {
            let (old, new) = (old.as_deref(), put_by(write));
            let bounded = new.filter(|new| !goes_along(new, deletes));
            if let Err(error) = self.check(write, old, bounded, claim) {
                self.release(&reserved);
                return Err(error);
            }
            let Some(new) = new else { continue };
            let more = Account::of(new.expires, new.growth(old.map(Held::of).as_ref()));
            self.add(new.namespace, more);
            reserved.0.push((new.namespace.into(), more));
        }
        Ok(reserved)
    }

    /// Gives a reservation back.
    pub(crate) fn release(&mut self, reserved: &Reserved) {
        for (namespace, account) in &reserved.0 {
            for (expires, bytes) in [(false, account.lasting), (true, account.expiring)] {
                let held = Held {
                    namespace,
                    expires,
                    bytes,
                    share: None,
                };
                self.take(&held);
            }
        }
    }

    /// One object takes another's place.
    pub(crate) fn change(&mut self, old: Option<Held<'_>>, new: Option<Held<'_>>) {
        if let Some(new) = &new {
            self.add(new.namespace, Account::of(new.expires, new.bytes));
        }
        if let Some(old) = &old {
            self.take(old);
        }
        let own = new.and_then(|new| new.share);
        match (
            own.and_then(|own| Some((own.of, own.bytes?))),
            own.or(old.and_then(|old| old.share)),
        ) {
            (Some((namespace, bytes)), _) => drop(self.own_shares.insert(namespace.into(), bytes)),
            (None, Some(former)) => drop(self.own_shares.remove(former.of)),
            (None, None) => {}
        }
    }

    fn add(&mut self, namespace: &str, more: Account) {
        if more == Account::default() {
            return;
        }
        self.total += more.sum();
        match self.accounts.get_mut(namespace) {
            Some(account) => {
                account.lasting += more.lasting;
                account.expiring += more.expiring;
            }
            None => drop(self.accounts.insert(namespace.into(), more)),
        }
    }

    fn take(&mut self, old: &Held<'_>) {
        if old.bytes == 0 {
            return;
        }
        let Some(account) = self.accounts.get_mut(old.namespace) else {
            debug_assert!(false, "{old:?} was never counted");
            return;
        };
        let part = account.part(old.expires);
        debug_assert!(
            *part >= old.bytes && self.total >= old.bytes,
            "{old:?} was never counted"
        );
        // Saturating: a fault here must not lock a namespace out for ever.
        *part = part.saturating_sub(old.bytes);
        let is_empty = *account == Account::default();
        self.total = self.total.saturating_sub(old.bytes);
        if is_empty {
            self.accounts.remove(old.namespace);
        }
        self.full_above = self.full_above.filter(|bytes| self.total > *bytes);
        if self.is_reported && self.total < self.report_bytes() {
            self.is_reported = false;
            tracing::info!(bytes = self.total, "the store has room again");
        }
    }

    /// Refuses a put that grows beyond what its tier may have.
    fn check(
        &mut self,
        write: &Write,
        old: Option<&Entry>,
        new: Option<Held<'_>>,
        claim: Claim,
    ) -> Result<(), StorageError> {
        let (Op::Put { record, .. }, Some(new)) = (&write.op, new) else {
            return Ok(());
        };
        let requested = new.growth(old.map(Held::of).as_ref());
        if requested == 0 || marks_deletion(old, record) {
            return Ok(());
        }
        let tier = self
            .quota
            .tier(new.namespace, is_spare(old, record, claim), claim);
        let mut account = self.accounts.get(new.namespace).copied().unwrap_or_default();
        let own = self.own_shares.get(new.namespace).copied();
        let (used, limited) = (*account.part(new.expires), self.quota.namespace_limit(tier, own));
        if used.saturating_add(requested) > limited {
            self.refused_by_namespace += 1;
            return Err(StorageError::NamespaceQuotaExceeded {
                namespace: new.namespace.to_owned(),
                requested,
                used,
                limited,
            });
        }
        let limit = self.quota.store_limit(tier);
        if self.total.saturating_add(requested) > limit {
            self.refused_by_store += 1;
            self.full_above = Some(limit.saturating_sub(requested));
            self.report();
            return Err(StorageError::StoreQuotaExceeded);
        }
        Ok(())
    }

    fn report_bytes(&self) -> u64 {
        let users = self.quota.store_limit(Tier::Share);
        users - users / FREE_PART
    }

    /// Once, where the store is about full: a single large write that has no room is not worth a line.
    fn report(&mut self) {
        if !self.is_reported && self.total >= self.report_bytes() {
            self.is_reported = true;
            tracing::error!(
                bytes = self.total,
                quota = self.quota.store_bytes,
                "the store is full: accepting deletions, and the system's writes into its reserve"
            );
        }
    }

    /// Reports whether the last write that the bound of the store refused would be refused again.
    pub(crate) fn is_full(&self) -> bool {
        self.full_above.is_some()
    }

    pub(crate) fn usage<'s>(&'s self) -> Usage {
        let accounts = self.accounts.iter();
        let mut accounts: Vec<(&str, &Account)> =
            accounts.map(|(name, account)| (&**name, account)).collect();
        let order = |(name, account): &(&'s str, &Account)| (std::cmp::Reverse(account.sum()), *name);
        // Writes wait meanwhile: all are looked at once, and few are sorted.
        if accounts.len() > LARGEST {
            accounts.select_nth_unstable_by_key(LARGEST, order);
            accounts.truncate(LARGEST);
        }
        accounts.sort_unstable_by_key(order);
        let largest = accounts.into_iter().map(|(namespace, account)| NamespaceUsage {
            namespace: namespace.to_string(),
            lasting_bytes: account.lasting,
            expiring_bytes: account.expiring,
        });
        let own_shares = self.own_shares.iter();
        let mut own_shares: Vec<(&str, u64)> = own_shares.map(|(name, bytes)| (&**name, *bytes)).collect();
        own_shares.sort_unstable();
        own_shares.truncate(SHOWN_SHARES);
        let own_shares = own_shares
            .into_iter()
            .map(|(name, bytes)| (name.to_owned(), bytes));
        Usage {
            own_shares: own_shares.collect(),
            quota: self.quota.clone(),
            bytes: self.total,
            largest: largest.collect(),
            is_full: self.is_full(),
            refused_by_store: self.refused_by_store,
            refused_by_namespace: self.refused_by_namespace,
        }
    }

    /// Differences from another account, one line each.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.total != other.total {
            found.push(format!("{} bytes in all, there are {}", self.total, other.total));
        }
        let names = self.accounts.keys().chain(other.accounts.keys());
        for namespace in names.collect::<std::collections::BTreeSet<_>>() {
            let (own, is) = (self.accounts.get(namespace), other.accounts.get(namespace));
            if own != is {
                found.push(format!("{own:?} in namespace {namespace:?}, there are {is:?}"));
            }
        }
        found
    }
}

fn deletes(group: &[Write]) -> bool {
    group.iter().any(|write| matches!(write.op, Op::Delete))
}

/// Reports whether a put is unbounded because its group deletes: only a put without a namespace (an allocator's
/// bitmap). Others have their bounds whatever else the group does: a service may grow as it releases its address.
fn goes_along(new: &Held<'_>, deletes: bool) -> bool {
    deletes && new.namespace.is_empty()
}

fn put_by(write: &Write) -> Option<Held<'_>> {
    match &write.op {
        Op::Put { record, ttl } => Some(Held::of_put(&write.key, record, ttl.is_some())),
        Op::Delete | Op::Check => None,
    }
}

/// A graceful deletion is an update first. Only the server sets the time, and once.
pub(crate) fn marks_deletion(old: Option<&Entry>, new: &Record) -> bool {
    let is_live = old.is_some_and(|old| !old.record.header.is_deleting());
    is_live && new.header.is_deleting()
}

/// Finalizers that a delete's propagation policy adds.
const OF_POLICIES: [&str; 2] = ["orphan", "foregroundDeletion"];

/// Reports whether a change may exceed the share: one by the system, and the mark that another delete leaves on a
/// deleted object by its propagation policy. No other change can add a finalizer to such an object, and one that
/// removes a finalizer adds nothing else beyond the share.
fn is_spare(old: Option<&Entry>, new: &Record, claim: Claim) -> bool {
    let Some(old) = old.map(|old| &old.record.header) else {
        return false;
    };
    let has = |header: &ObjectHeader, own: &str| header.finalizers.iter().any(|one| **one == *own);
    let adds = |own: &&str| has(&new.header, own) && !has(old, own);
    claim == Claim::System || old.is_deleting() && OF_POLICIES.iter().any(adds)
}
