//! Early expiry: a namespace that holds too many objects of a kind with a time to live (events) loses its own oldest ones.
//!
//! A user who may create events could otherwise fill the memory of the server within their time to live. No client sees
//! an error, and no other namespace loses anything. The oldest is the one whose last write is the longest ago, which would
//! expire first anyway. Where a namespace has too many bytes its large objects go before the ordinary ones, so that a few of
//! megabytes do not drive out thousands. All namespaces together have a part of the store ([`STORE_PART`]); where they have
//! more, those lose that have most, down to what leaves the others theirs.
//!
//! One task follows the changes of the kind with a cursor, counts by namespace, and deletes with the revision that it
//! counted; an object that was written again meanwhile stays. Objects that cannot be read are counted and deleted as others.

mod ages;

use super::Store;
use crate::engine::registry::Registry;
use ages::Ages;
use apiserver_storage::{Prefix, StorageError, WatchFilter, WatchRequest, Write};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Objects of one namespace and kind, at most; without a bound at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiryBounds {
    pub objects: u64,
    /// Bytes of memory (`Entry::footprint`).
    pub bytes: u64,
}

impl Default for ExpiryBounds {
    /// An event of a kilobyte takes two, so that there is room for the events of some 6,000 pods: five of each.
    fn default() -> Self {
        Self {
            objects: 65_536,
            bytes: 64 << 20,
        }
    }
}

/// Objects with a time to live have this part of the store's bytes at most: a user with events in many namespaces, as
/// each node may, could otherwise fill it.
const STORE_PART: u64 = 8;

/// Called for each object that has expired early.
pub type OnExpired = Arc<dyn Fn() + Send + Sync>;

/// Changes taken at a time.
const BATCH: usize = 256;
/// Deletions under way at a time.
const AT_ONCE: usize = 128;
/// The first pause after a failure, doubled with each further one: what follows a pause reads all objects of the kind.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Bounds the objects of every kind with a time to live, in tasks of their own.
pub fn start(registry: &Registry, bounds: ExpiryBounds, expired: &OnExpired) {
    let in_all = registry.storage().usage().quota.store_bytes / STORE_PART;
    if bounds.objects == 0 && bounds.bytes == 0 && in_all == 0 {
        return;
    }
    let limits = Limits { bounds, in_all };
    let mut prefixes = BTreeSet::new();
    let rows: Vec<_> = registry.rows().all().cloned().collect();
    for row in rows {
        let bounded = row.namespaced && row.has_store && row.strategy.ttl().is_some();
        if !bounded || !prefixes.insert(row.stored.prefix.clone()) {
            continue;
        }
        let store = Store::new(row, registry);
        let expired = Arc::clone(expired);
        let begin = move || keep(store.clone(), limits, Arc::clone(&expired));
        registry.runtime().keep("early expiry", begin).detach();
    }
}

/// Bounds of a namespace, and bytes of all of them; without a bound at 0.
#[derive(Debug, Clone, Copy)]
struct Limits {
    bounds: ExpiryBounds,
    in_all: u64,
}

async fn keep(store: Store, limits: Limits, expired: OnExpired) {
    let mut pause = FIRST_PAUSE;
    loop {
        match store.expire_early(limits, &expired, &mut pause).await {
            Err(StorageError::Closed) => return,
            Err(error) => tracing::debug!(%error, "early expiry begins again"),
            Ok(()) => {}
        }
        store.registry.runtime().sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl Store {
    /// Follows the kind until something fails, or the changes were too many to follow. The pause is the first one again as
    /// soon as all that was too much is deleted.
    async fn expire_early(
        &self,
        limits: Limits,
        expired: &OnExpired,
        pause: &mut Duration,
    ) -> Result<(), StorageError> {
        let prefix = Prefix::parse(&self.row.collection(""))?;
        let mut ages = Ages::new(prefix.clone());
        let after = {
            let none = || StorageError::Unavailable("no state is in memory yet".to_owned());
            let (entries, revision) = self.storage().entries_in_memory(&prefix).ok_or_else(none)?;
            entries.iter().for_each(|entry| ages.add(entry));
            revision
        };
        let request = WatchRequest {
            interests: vec![WatchFilter::prefix(prefix)],
            after,
        };
        let mut cursor = self.storage().watch(request).await?;
        loop {
            self.delete_excess(&mut ages, limits, expired).await?;
            *pause = FIRST_PAUSE;
            // Fails where a change is of an object that cannot be read: it is counted when all are read again.
            for event in cursor.next_batch(BATCH).await? {
                ages.apply(&event);
            }
        }
    }

    async fn delete_excess(
        &self,
        ages: &mut Ages,
        limits: Limits,
        expired: &OnExpired,
    ) -> Result<(), StorageError> {
        let excess = ages.take_excess(limits);
        for some in excess.chunks(AT_ONCE) {
            let deletions = some.iter().map(|(key, revision)| {
                let write = Write::delete(key.clone(), *revision);
                self.storage().commit(vec![write])
            });
            for deleted in futures::future::join_all(deletions).await {
                match deleted {
                    Ok(_) => expired(),
                    // It was written again, or deleted, and the cursor says so.
                    Err(StorageError::Conflict { .. }) => {}
                    Err(error) if error.is_unreadable() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}
