//! Bytes that each node has added to what is stored.
//!
//! A node writes statuses, mirror pods, leases and requests for certificates, in all namespaces and in none. Within the
//! bounds of namespaces and of the system alone, the holder of one node's key could use them up, so that each node has a
//! bound of its own; so have bearers of bootstrap tokens, and each user in what certificates he requests ([`accounts`]). An account has what the node's own writes added to each object; its writes that shrink an object give
//! back, as does a deletion by any user. Objects with a time to live have bounds of their own.
//!
//! Much of what a node writes tenants decide: a status repeats images and paths of its pod. So what a node adds to an
//! object of another counts only as far as it exceeds the rest of the object, and a full account refuses first
//! where most is: namespaces that have little in it go on, in all as much again as the bound.
//!
//! Accounts are of this process: one begins with what the stored objects show ([`past`]), and each of several
//! servers has its own.

mod accounts;
mod past;

use super::Store;
use crate::engine::admission::{Admitted, Operation};
use crate::engine::context::RequestContext;
use crate::engine::error::RegistryError;
use apiserver_storage::{Entry, Event, Expect, Key, Op, Quota, ReadAt, Write};
use machinery_meta::Revision;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// Part of the store that a node may have added: a quarter of what the system's changes have of the reserve.
const STORE_PART: u64 = 64;
/// Part of a namespace's share that a node may have added.
const NAMESPACE_PART: u64 = 16;
/// Part of a node's bound below which a namespace goes on when the account is full.
const ASSURED_PART: u64 = 16;
/// Bytes that any node may have added: a hundred pods with statuses of some kilobytes.
const LEAST_BYTES: u64 = 1 << 20;
/// A full account is compared with what is stored at most this often: an attempt is a look at each of its objects.
const COMPARED_EVERY: Duration = Duration::from_secs(10);

/// Each write compares so many objects of its node's account, in turn. It adds one, so that those that others have deleted become
/// fewer, whatever names the next ones have.
const COMPARED_IN_TURN: usize = 4;

/// The accounts of all nodes.
#[derive(Debug)]
pub(crate) struct NodeGrowth {
    limit: u64,
    accounts: Mutex<HashMap<Box<str>, Account>>,
    /// Accounts that have what was stored before the start.
    known: Mutex<HashSet<Box<str>>>,
    /// Requests for certificates from before the start are in the accounts of their users.
    requests: OnceCell<()>,
}

/// Growth of the store that one node caused.
#[derive(Debug, Default)]
struct Account {
    objects: BTreeMap<Key, Added>,
    /// The object that was compared last in turn.
    turn: Option<Key>,
    /// Of all objects.
    bytes: u64,
    /// Invariant: none of them is 0.
    by_namespace: HashMap<Box<str>, u64>,
    /// Of writes that are under way.
    reserved: u64,
    compared: Option<Duration>,
}

/// Bytes of one object that a node added.
#[derive(Debug, Clone)]
struct Added {
    namespace: Box<str>,
    /// Distinguishes the object from a later one of its name.
    created: Revision,
    bytes: u64,
    /// All that the object takes.
    size: u64,
}

impl Added {
    /// Charged bytes: all of an object that the node made, and nothing of a status that is no larger than its pod.
    fn charge(&self) -> u64 {
        self.bytes.saturating_sub(self.size - self.bytes)
    }
}

/// A write that lasts, as it is counted before it is made.
#[derive(Debug)]
struct Growth {
    key: Key,
    namespace: Box<str>,
    is_new: bool,
    bytes: u64,
    /// All that the object takes with it.
    size: u64,
}

/// Room of one write, given back with it.
#[derive(Debug)]
pub(super) struct NodeRoom {
    growth: Arc<NodeGrowth>,
    node: Box<str>,
    bytes: u64,
}

/// Bytes that a node would add, has added already, and may.
#[derive(Debug, Clone, Copy)]
struct Exceeded {
    requested: u64,
    used: u64,
    limited: u64,
}

impl NodeGrowth {
    pub(crate) fn new(quota: &Quota) -> Self {
        let parts = [
            (quota.store_bytes, STORE_PART),
            (quota.namespace_bytes, NAMESPACE_PART),
        ];
        let set = parts.iter().filter(|(bytes, _)| *bytes > 0);
        let least = set.map(|(bytes, part)| (bytes / part).max(LEAST_BYTES)).min();
        Self {
            limit: least.unwrap_or(u64::MAX),
            accounts: Mutex::default(),
            known: Mutex::default(),
            requests: OnceCell::new(),
        }
    }

    fn is_bounded(&self) -> bool {
        self.limit < u64::MAX
    }

    /// Reserves room for growth; what does not grow has room always.
    fn reserve(self: &Arc<Self>, node: &str, growth: Option<&Growth>) -> Result<NodeRoom, Exceeded> {
        let mut accounts = self.accounts.lock();
        let account = accounts.entry(node.into()).or_default();
        let bytes = growth.map_or(0, |growth| account.charge_of(growth));
        let used = account.bytes.saturating_add(account.reserved);
        let after = used.saturating_add(bytes);
        let is_little = || {
            let held = growth.and_then(|growth| account.by_namespace.get(&growth.namespace));
            after / 2 <= self.limit && held.copied().unwrap_or(0) + bytes <= self.limit / ASSURED_PART
        };
        if bytes > 0 && after > self.limit && !is_little() {
            let limited = self.limit;
            return Err(Exceeded {
                requested: bytes,
                used,
                limited,
            });
        }
        account.reserved += bytes;
        Ok(NodeRoom {
            growth: Arc::clone(self),
            node: node.into(),
            bytes,
        })
    }

    /// Objects of a full account, where it is time to compare it with what is stored.
    fn to_compare(&self, node: &str, now: Duration) -> Vec<Key> {
        let mut accounts = self.accounts.lock();
        let account = accounts.get_mut(node);
        let is_due =
            |account: &&mut Account| account.compared.is_none_or(|last| last + COMPARED_EVERY <= now);
        let Some(account) = account.filter(is_due) else {
            return Vec::new();
        };
        account.compared = Some(now);
        account.objects.keys().cloned().collect()
    }

    /// The next objects that are to be compared with what is stored: others delete objects without a word, and an account
    /// whose objects count nothing never becomes full.
    fn next_in_turn(&self, node: &str) -> Vec<Key> {
        let mut accounts = self.accounts.lock();
        accounts
            .get_mut(node)
            .map_or_else(Vec::new, Account::next_in_turn)
    }

    /// Takes up what is stored at a key now.
    fn compare(&self, node: &str, key: &Key, stored: Option<&Entry>) {
        if let Some(account) = self.accounts.lock().get_mut(node) {
            account.keep(key, stored, |added| added);
        }
    }
}

impl Account {
    fn next_in_turn(&mut self) -> Vec<Key> {
        let after = self.turn.take().map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.objects.range((after, Bound::Unbounded));
        let next: Vec<Key> = behind
            .map(|(key, _)| key.clone())
            .take(COMPARED_IN_TURN)
            .collect();
        self.turn = next.last().cloned();
        next
    }

    /// Bytes by which a write would increase the account's charge.
    fn charge_of(&self, growth: &Growth) -> u64 {
        let known = self.objects.get(&growth.key).filter(|_| !growth.is_new);
        let added = Added {
            namespace: Box::default(),
            created: Revision::ZERO,
            bytes: (known.map_or(0, |known| known.bytes) + growth.bytes).min(growth.size),
            size: growth.size,
        };
        added.charge().saturating_sub(known.map_or(0, Added::charge))
    }

    /// Counts a change that the node made. Changes of one object may come out of their order: those of one that was before
    /// the one that is counted say nothing.
    fn count(&mut self, event: &Event) {
        let known = self.objects.get(&event.key);
        if known.is_some_and(|known| event.revision < known.created) {
            return;
        }
        let bytes = |entry: &Option<Arc<Entry>>| entry.as_ref().map_or(0, |entry| entry.footprint() as u64);
        let (new, old) = (bytes(&event.entry), bytes(&event.previous));
        let lasting = event.entry.as_deref().filter(|entry| entry.expires.is_none());
        self.keep(&event.key, lasting, |added| {
            added.saturating_add(new).saturating_sub(old)
        });
    }

    /// Changes what is counted at a key: never more than the object takes, and nothing of an earlier one of its name.
    fn keep(&mut self, key: &Key, stored: Option<&Entry>, change: impl Fn(u64) -> u64) {
        let known = self.objects.remove(key);
        if let Some(known) = &known {
            self.take(known);
        }
        let Some(entry) = stored else { return };
        let known = known.filter(|known| known.created == entry.created);
        let size = entry.footprint() as u64;
        let added = Added {
            namespace: (*entry.record.header.key.namespace).into(),
            created: entry.created,
            bytes: change(known.map_or(0, |known| known.bytes)).min(size),
            size,
        };
        if added.bytes > 0 {
            self.put(key, added);
        }
    }

    fn put(&mut self, key: &Key, added: Added) {
        let charge = added.charge();
        self.bytes += charge;
        if charge > 0 {
            *self.by_namespace.entry(added.namespace.clone()).or_default() += charge;
        }
        self.objects.insert(key.clone(), added);
    }

    fn take(&mut self, added: &Added) {
        let charge = added.charge();
        self.bytes -= charge;
        if let Some(held) = self.by_namespace.get_mut(&added.namespace) {
            *held -= charge;
            if *held == 0 {
                self.by_namespace.remove(&added.namespace);
            }
        }
    }
}

impl NodeRoom {
    /// The write is done: what it added is counted.
    pub(super) fn written(self, events: &[Arc<Event>]) {
        if let Some(account) = self.growth.accounts.lock().get_mut(&self.node) {
            events.iter().for_each(|event| account.count(event));
        }
    }
}

impl Drop for NodeRoom {
    fn drop(&mut self) {
        let mut accounts = self.growth.accounts.lock();
        if let Some(account) = accounts.get_mut(&self.node) {
            account.reserved -= self.bytes;
            if account.reserved == 0 && account.objects.is_empty() {
                accounts.remove(&self.node);
            }
        }
    }
}

impl Store {
    /// Room for the writes of a node or of another user with an account; `None` for other users.
    ///
    /// Errors: [`RegistryError::Forbidden`], where it grows beyond the bound of the node. Deletions, and their marks, do
    /// not.
    pub(super) async fn node_room(
        &self,
        ctx: &RequestContext,
        admitted: &Admitted,
        write: &Write,
    ) -> Result<Option<NodeRoom>, RegistryError> {
        let growth = self.registry.node_growth();
        let account = accounts::of(&ctx.user, &self.row.group_resource());
        let Some(node) = account.filter(|_| growth.is_bounded()) else {
            return Ok(None);
        };
        let node = &*node;
        let wanted = match admitted.attributes().operation {
            Operation::Delete => None,
            _ => self.growth_of(write).await?,
        };
        self.recall_growth(ctx, node).await?;
        self.compare_growth(node, growth.next_in_turn(node)).await;
        if let Ok(room) = growth.reserve(node, wanted.as_ref()) {
            return Ok(Some(room));
        }
        self.compare_growth(node, growth.to_compare(node, ctx.runtime.monotonic()))
            .await;
        growth.reserve(node, wanted.as_ref()).map(Some).map_err(|exceeded| {
            let Exceeded {
                requested,
                used,
                limited,
            } = exceeded;
            let detail = format!(
                "exceeded quota: storage, requested: bytes={requested}, used: bytes={used}, limited: bytes={limited}; \
                 delete objects that {who} wrote to make room",
                who = accounts::shown(node),
            );
            RegistryError::forbidden(&self.row.group_resource(), &admitted.attributes().name, detail)
        })
    }

    /// Takes objects that others have deleted out of a node's account.
    async fn compare_growth(&self, node: &str, keys: Vec<Key>) {
        for key in keys {
            // What cannot be read stays counted.
            if let Ok(stored) = self.at_hand(&key, Revision::ZERO).await {
                self.registry.node_growth().compare(node, &key, stored.as_deref());
            }
        }
    }

    /// The lasting growth that a write causes. A write that expects another object than the stored one fails by
    /// itself.
    async fn growth_of(&self, write: &Write) -> Result<Option<Growth>, RegistryError> {
        let Op::Put { record, ttl: None } = &write.op else {
            return Ok(None);
        };
        let stored = match write.expect {
            Expect::Absent => None,
            Expect::At(revision) => self.at_hand(&write.key, revision).await?,
            Expect::Any | Expect::Present => self.at_hand(&write.key, Revision::ZERO).await?,
        };
        let old = stored.as_ref().map_or(0, |entry| entry.footprint());
        let size = record.footprint(&write.key);
        Ok(Some(Growth {
            key: write.key.clone(),
            namespace: (*record.header.key.namespace).into(),
            is_new: stored.is_none(),
            bytes: size.saturating_sub(old) as u64,
            size: size as u64,
        }))
    }

    /// The entry under a key, from memory.
    async fn at_hand(&self, key: &Key, not_before: Revision) -> Result<Option<Arc<Entry>>, RegistryError> {
        let found = self.storage().get(key, ReadAt::NotBefore(not_before)).await;
        Ok(found.map_err(|error| self.storage_error(&error))?.entry)
    }
}

#[cfg(test)]
mod tests;
