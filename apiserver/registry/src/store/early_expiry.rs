//! Early expiry: a namespace that holds too many objects of a kind with a time to live (events) loses its own oldest ones.
//!
//! Anybody who may create events could otherwise fill the memory of the server within their time to live. No client sees
//! an error, and no other namespace loses anything. The oldest is the one whose last write is the longest ago, which would
//! expire first anyway. Where a namespace has too many bytes its large objects go before the ordinary ones, so that a few of
//! megabytes do not drive out thousands.
//!
//! One task follows the changes of the kind with a cursor, counts by namespace, and deletes with the revision that it
//! counted; an object that was written again meanwhile stays. Objects that nobody can read are counted and deleted as others.

use super::Store;
use crate::registry::Registry;
use apiserver_storage::{Entry, Event, Interest, Key, Prefix, StorageError, WatchRequest, Write};
use machinery_meta::Revision;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Objects of one namespace and kind, at most; without a bound at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiryBounds {
    pub objects: u64,
    /// Bytes of memory ([`Entry::footprint`]).
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

/// Called for each object that has expired early.
pub type OnExpired = Arc<dyn Fn() + Send + Sync>;

/// Changes taken at a time.
const BATCH: usize = 256;
/// Deletions under way at a time.
const AT_ONCE: usize = 128;
/// A namespace above its bound goes down to this part less, so that deletions come together.
const SLACK: u64 = 64;
/// The first pause after a failure, doubled with each further one: what follows a pause reads all objects of the kind.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Larger objects are large, and go first where there are too many bytes. An event with a message of a kilobyte, upstream's
/// limit in `events.k8s.io/v1`, is smaller.
const ORDINARY_BYTES: u32 = 4 << 10;

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
    let mut pause = FIRST_PAUSE;
    loop {
        match store.expire_early(bounds, &expired, &mut pause).await {
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
        bounds: ExpiryBounds,
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
            interests: vec![Interest::prefix(prefix)],
            after,
        };
        let mut cursor = self.storage().watch(request).await?;
        loop {
            self.delete_excess(&mut ages, bounds, expired).await?;
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
        bounds: ExpiryBounds,
        expired: &OnExpired,
    ) -> Result<(), StorageError> {
        let excess = ages.take_excess(bounds);
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
    /// The large ones among them, the largest first and of like sizes the oldest.
    large: BTreeSet<(Reverse<u32>, Revision, Key)>,
}

/// The power of two below the size of a large object, in which it stands among others; `None` of an ordinary one.
fn class(size: u32) -> Option<Reverse<u32>> {
    (size > ORDINARY_BYTES).then(|| Reverse(size.ilog2()))
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

    /// Takes what is too much out of the namespaces above their bounds.
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
        let size = u32::try_from(entry.footprint()).unwrap_or(u32::MAX);
        self.remove(&entry.key, entry.revision);
        self.by_age.insert((entry.revision, entry.key.clone()), size);
        if let Some(class) = class(size) {
            self.large.insert((class, entry.revision, entry.key.clone()));
        }
        self.bytes += u64::from(size);
    }

    /// Absent where it was taken out to be deleted.
    fn remove(&mut self, key: &Key, revision: Revision) {
        let Some(size) = self.by_age.remove(&(revision, key.clone())) else {
            return;
        };
        if let Some(class) = class(size) {
            self.large.remove(&(class, revision, key.clone()));
        }
        self.bytes -= u64::from(size);
    }

    fn is_above(&self, bounds: ExpiryBounds) -> bool {
        self.has_too_many_bytes(bounds) || above(self.by_age.len() as u64, bounds.objects)
    }

    fn has_too_many_bytes(&self, bounds: ExpiryBounds) -> bool {
        above(self.bytes, bounds.bytes)
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
        while let Some((revision, key)) = self.next_to_go(lower) {
            self.remove(&key, revision);
            taken.push((key, revision));
        }
    }

    /// The oldest object, and one of the largest where there are too many bytes; `None` within the bounds.
    fn next_to_go(&self, bounds: ExpiryBounds) -> Option<(Revision, Key)> {
        if !self.is_above(bounds) {
            return None;
        }
        let too_large = self.large.first().filter(|_| self.has_too_many_bytes(bounds));
        let large = too_large.map(|(_, revision, key)| (*revision, key.clone()));
        large.or_else(|| self.by_age.keys().next().cloned())
    }
}

fn above(value: u64, bound: u64) -> bool {
    bound > 0 && value > bound
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

    /// Smaller the larger it is.
    fn class_of(entry: &Entry) -> Reverse<u32> {
        let size = u32::try_from(entry.footprint()).unwrap();
        class(size).unwrap_or(Reverse(0))
    }

    fn bounds(objects: u64, bytes: u64) -> ExpiryBounds {
        ExpiryBounds { objects, bytes }
    }

    /// Objects of a few namespaces come, change and go; what is kept is never above the bounds, nothing goes of a namespace
    /// within them, and what goes is older than what stays, or larger where there are too many bytes.
    #[test]
    fn excess_of_any_history_is_the_largest_or_oldest_of_its_namespace() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let all = [bounds(10, 0), bounds(0, 60_000), bounds(20, 90_000), bounds(0, 0)];
            let bounds = all[random.below(all.len())];
            let mut ages = Ages::new(Prefix::parse("/registry/events/").unwrap());
            let mut model: BTreeMap<Key, Arc<Entry>> = BTreeMap::new();
            for revision in 1..3_000 {
                let name = format!("{}/{}", random.below(3), random.below(60));
                let sizes = [300, 300, 300, 6_000, 20_000];
                let most = sizes[random.below(sizes.len())];
                let own = entry(&name, revision, random.below(most));
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
                    let is_larger = |other: &Entry| bounds.bytes > 0 && class_of(&gone) < class_of(other);
                    let stays = |other: &Arc<Entry>| other.revision > revision || is_larger(other);
                    assert!(model.values().filter(same).all(stays), "seed {seed}");
                }
                for namespace in ["0", "1", "2"] {
                    let own = model.values().filter(|own| ages.namespace(&own.key) == namespace);
                    let (count, bytes) = own.fold((0, 0), |(count, bytes), own| {
                        (count + 1, bytes + own.footprint() as u64)
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

    #[test]
    fn excess_of_bytes_is_the_large_and_of_objects_the_oldest() {
        let ages = || {
            let mut ages = Ages::new(Prefix::parse("/registry/events/").unwrap());
            for at in 0..100 {
                ages.add(&entry(&format!("a/{at:03}"), at, 1_000));
            }
            for at in 100..122 {
                ages.add(&entry(&format!("a/{at:03}"), at, 3 << 20));
            }
            ages
        };
        let revisions = |taken: Vec<(Key, Revision)>| -> Vec<u64> {
            taken.into_iter().map(|(_, revision)| revision.0).collect()
        };
        // Room for 20 of the large ones, with all that is small.
        let taken = ages().take_excess(bounds(65_536, 64 << 20));
        assert_eq!(revisions(taken), [100, 101]);
        let taken = ages().take_excess(bounds(121, 0));
        assert_eq!(revisions(taken), [0, 1]);
    }
}
