//! Early expiry: a namespace that holds too many objects of a kind with a time to live (events) loses its own oldest ones.
//!
//! Anybody who may create events could otherwise fill the memory of the server within their time to live. No client sees
//! an error, and no other namespace loses anything. The oldest is the one whose last write is the longest ago, which would
//! expire first anyway.
//!
//! One task follows the changes of the kind with a cursor, counts by namespace, and deletes with the revision that it
//! counted; an object that was written again meanwhile stays.

use super::Store;
use crate::registry::Registry;
use apiserver_storage::{
    Entry, Event, Interest, Key, Prefix, RangeOptions, StorageError, WatchRequest, Write,
};
use machinery_meta::Revision;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Objects of one namespace and kind, at most; without a bound at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiryBounds {
    pub objects: u64,
    /// Bytes as they are stored.
    pub bytes: u64,
}

impl Default for ExpiryBounds {
    /// Room for the events of 10,000 pods: five of each, a kilobyte each.
    fn default() -> Self {
        Self {
            objects: 65_536,
            bytes: 64 << 20,
        }
    }
}

/// Called for each object that has expired early.
pub type OnExpired = Arc<dyn Fn() + Send + Sync>;

/// Changes taken at a time.
const BATCH: usize = 256;
/// Deletions under way at a time.
const AT_ONCE: usize = 128;
/// A namespace above its bound goes down to this part less, so that deletions come together.
const SLACK: u64 = 64;
const RETRY: Duration = Duration::from_secs(1);

/// Bounds the objects of every kind with a time to live, in tasks of their own.
pub fn start(registry: &Registry, bounds: ExpiryBounds, expired: &OnExpired) {
    if bounds.objects == 0 && bounds.bytes == 0 {
        return;
    }
    let mut prefixes = BTreeSet::new();
    let rows: Vec<_> = registry.rows().all().cloned().collect();
    for row in rows {
        let bounded = row.namespaced && !row.virtual_kind && row.strategy.ttl().is_some();
        if !bounded || !prefixes.insert(row.stored.prefix.clone()) {
            continue;
        }
        let store = Store {
            row,
            registry: registry.clone(),
        };
        let expired = Arc::clone(expired);
        let begin = move || keep(store.clone(), bounds, Arc::clone(&expired));
        registry.runtime().keep("early expiry", begin).detach();
    }
}

async fn keep(store: Store, bounds: ExpiryBounds, expired: OnExpired) {
    loop {
        match store.expire_early(bounds, &expired).await {
            Err(StorageError::Closed) => return,
            Err(error) => tracing::debug!(%error, "early expiry begins again"),
            Ok(()) => {}
        }
        store.registry.runtime().sleep(RETRY).await;
    }
}

impl Store {
    /// Follows the kind until something fails, or the changes were too many to follow.
    async fn expire_early(&self, bounds: ExpiryBounds, expired: &OnExpired) -> Result<(), StorageError> {
        let prefix = Prefix::parse(&self.row.collection(""))?;
        let mut ages = Ages::new(prefix.clone());
        let page = self.storage().range(&prefix, &RangeOptions::default()).await?;
        for entry in &page.entries {
            ages.add(entry);
        }
        let request = WatchRequest {
            interests: vec![Interest::prefix(prefix)],
            after: page.revision,
        };
        drop(page.entries);
        let mut cursor = self.storage().watch(request).await?;
        loop {
            self.delete_oldest(&mut ages, bounds, expired).await?;
            for event in cursor.next_batch(BATCH).await? {
                ages.apply(&event);
            }
        }
    }

    async fn delete_oldest(
        &self,
        ages: &mut Ages,
        bounds: ExpiryBounds,
        expired: &OnExpired,
    ) -> Result<(), StorageError> {
        let oldest = ages.take_excess(bounds);
        for some in oldest.chunks(AT_ONCE) {
            let deletions = some.iter().map(|(key, revision)| {
                let write = Write::delete(key.clone(), *revision);
                self.storage().commit(vec![write])
            });
            for deleted in futures::future::join_all(deletions).await {
                match deleted {
                    Ok(_) => expired(),
                    // It was written again, or deleted, and the cursor says so.
                    Err(StorageError::Conflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

/// Objects of one kind by age, in each namespace.
#[derive(Debug)]
struct Ages {
    prefix: Prefix,
    namespaces: HashMap<Box<str>, Held>,
    /// Namespaces that have grown since the last look.
    grown: BTreeSet<Box<str>>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: u64,
    /// By the last write, with their sizes. (Changes of a group share a revision on etcd.)
    by_age: BTreeMap<(Revision, Key), u32>,
}

impl Ages {
    fn new(prefix: Prefix) -> Self {
        Self {
            prefix,
            namespaces: HashMap::new(),
            grown: BTreeSet::new(),
        }
    }

    /// An object without a namespace is in none, and is counted all the same.
    fn namespace<'k>(&self, key: &'k Key) -> &'k str {
        let below = key.below(&self.prefix).unwrap_or_default();
        below.rsplit_once('/').map_or("", |(namespace, _)| namespace)
    }

    fn add(&mut self, entry: &Entry) {
        let namespace = self.namespace(&entry.key);
        if !self.namespaces.contains_key(namespace) {
            self.namespaces.insert(namespace.into(), Held::default());
        }
        if let Some(held) = self.namespaces.get_mut(namespace) {
            held.add(entry);
        }
        if !self.grown.contains(namespace) {
            self.grown.insert(namespace.into());
        }
    }

    fn remove(&mut self, key: &Key, revision: Revision) {
        let namespace = self.namespace(key);
        let Some(held) = self.namespaces.get_mut(namespace) else {
            return;
        };
        held.remove(key, revision);
        if held.by_age.is_empty() {
            self.namespaces.remove(namespace);
        }
    }

    fn apply(&mut self, event: &Event) {
        if let Some(previous) = &event.previous {
            self.remove(&event.key, previous.revision);
        }
        if let Some(entry) = &event.entry {
            self.add(entry);
        }
    }

    /// Takes the oldest objects of namespaces above the bounds out.
    fn take_excess(&mut self, bounds: ExpiryBounds) -> Vec<(Key, Revision)> {
        let mut taken = Vec::new();
        for namespace in std::mem::take(&mut self.grown) {
            if let Some(held) = self.namespaces.get_mut(&namespace) {
                held.take_excess(bounds, &mut taken);
            }
        }
        taken
    }
}

impl Held {
    fn add(&mut self, entry: &Entry) {
        let size = u32::try_from(entry.record.len()).unwrap_or(u32::MAX);
        let before = self.by_age.insert((entry.revision, entry.key.clone()), size);
        self.bytes += u64::from(size);
        self.bytes -= u64::from(before.unwrap_or(0));
    }

    fn remove(&mut self, key: &Key, revision: Revision) {
        // Absent where it was taken out to be deleted.
        let size = self.by_age.remove(&(revision, key.clone()));
        self.bytes -= u64::from(size.unwrap_or(0));
    }

    fn is_above(&self, bounds: ExpiryBounds) -> bool {
        let above = |value: u64, bound: u64| bound > 0 && value > bound;
        above(self.by_age.len() as u64, bounds.objects) || above(self.bytes, bounds.bytes)
    }

    fn take_excess(&mut self, bounds: ExpiryBounds, taken: &mut Vec<(Key, Revision)>) {
        if !self.is_above(bounds) {
            return;
        }
        // A bound of 0 is none, so it stays; any other stays above 0.
        let lower = ExpiryBounds {
            objects: bounds.objects - bounds.objects / SLACK,
            bytes: bounds.bytes - bounds.bytes / SLACK,
        };
        while self.is_above(lower)
            && let Some(((revision, key), size)) = self.by_age.pop_first()
        {
            self.bytes -= u64::from(size);
            taken.push((key, revision));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apiserver_storage::Record;
    use machinery_fuzz::Random;

    fn entry(name: &str, revision: u64, bytes: usize) -> Arc<Entry> {
        let record = Record {
            parts: [vec![b'x'; bytes].into(), Default::default(), Default::default()],
            fingerprint: 0,
            header: Arc::default(),
        };
        Arc::new(Entry {
            key: Key::parse(&format!("/registry/events/{name}")).unwrap(),
            revision: Revision(revision),
            created: Revision(revision),
            expires: None,
            record,
            seal: Default::default(),
        })
    }

    fn bounds(objects: u64, bytes: u64) -> ExpiryBounds {
        ExpiryBounds { objects, bytes }
    }

    /// Objects of a few namespaces come, change and go; what is kept is never above the bounds, nothing goes of a namespace
    /// within them, and what goes is older than what stays.
    #[test]
    fn excess_of_any_history_is_the_oldest_of_its_namespace() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let all = [bounds(10, 0), bounds(0, 2_000), bounds(200, 3_000), bounds(0, 0)];
            let bounds = all[random.below(all.len())];
            let mut ages = Ages::new(Prefix::parse("/registry/events/").unwrap());
            let mut model: BTreeMap<Key, Arc<Entry>> = BTreeMap::new();
            for revision in 1..3_000 {
                let name = format!("{}/{}", random.below(3), random.below(60));
                let own = entry(&name, revision, random.below(300));
                let previous = model.get(&own.key).cloned();
                let now = (random.below(5) > 0).then(|| Arc::clone(&own));
                match &now {
                    Some(own) => model.insert(own.key.clone(), Arc::clone(own)),
                    None => model.remove(&own.key),
                };
                ages.apply(&Event {
                    revision: own.revision,
                    key: own.key.clone(),
                    entry: now,
                    previous,
                });
                for (key, revision) in ages.take_excess(bounds) {
                    let gone = model.remove(&key).expect("it was there");
                    assert_eq!(gone.revision, revision, "seed {seed}");
                    let same = |other: &&Arc<Entry>| ages.namespace(&other.key) == ages.namespace(&key);
                    assert!(model.values().filter(same).all(|other| other.revision > revision));
                }
                for namespace in ["0", "1", "2"] {
                    let own = model.values().filter(|own| ages.namespace(&own.key) == namespace);
                    let (count, bytes) = own.fold((0, 0), |(count, bytes), own| {
                        (count + 1, bytes + own.record.len() as u64)
                    });
                    let held = ages.namespaces.get(namespace);
                    let counted = held.map_or((0, 0), |held| (held.by_age.len() as u64, held.bytes));
                    assert_eq!(counted, (count, bytes), "seed {seed}");
                    assert!(bounds.objects == 0 || count <= bounds.objects);
                    assert!(bounds.bytes == 0 || bytes <= bounds.bytes);
                }
            }
        }
    }

    #[test]
    fn excess_of_one_namespace_leaves_the_others() {
        let mut ages = Ages::new(Prefix::parse("/registry/events/").unwrap());
        for at in 0..10 {
            ages.add(&entry(&format!("quiet/{at}"), at, 1));
        }
        for at in 0..30 {
            ages.add(&entry(&format!("loud/{at}"), 100 + at, 1));
        }
        let taken = ages.take_excess(bounds(20, 0));
        let revisions: Vec<u64> = taken.iter().map(|(_, revision)| revision.0).collect();
        assert_eq!(revisions, (100..110).collect::<Vec<_>>());
        assert!(ages.take_excess(bounds(20, 0)).is_empty());
    }
}
