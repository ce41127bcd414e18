//! Objects of a kind with a time to live by age, and which of them are too many.

use super::{ExpiryBounds, Limits};
use apiserver_storage::{Entry, Event, Key, Prefix};
use machinery_meta::Revision;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A namespace above its bound goes down to this part less, so that deletions come together.
const SLACK: u64 = 64;
/// Larger objects are large, and go first where there are too many bytes. An event with a message of a kilobyte, upstream's
/// limit in `events.k8s.io/v1`, is smaller.
const ORDINARY_BYTES: u32 = 4 << 10;

/// Objects of one kind by age, in each namespace.
#[derive(Debug)]
pub(super) struct Ages {
    prefix: Prefix,
    namespaces: HashMap<Box<str>, Held>,
    /// Of all namespaces.
    bytes: u64,
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
    pub(super) fn new(prefix: Prefix) -> Self {
        Self {
            prefix,
            namespaces: HashMap::new(),
            bytes: 0,
            grown: BTreeSet::new(),
        }
    }

    /// An object without a namespace is in none, and is counted all the same.
    fn namespace<'k>(&self, key: &'k Key) -> &'k str {
        let below = key.below(&self.prefix).unwrap_or_default();
        below.rsplit_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub(super) fn add(&mut self, entry: &Entry) {
        let namespace = self.namespace(&entry.key);
        if !self.namespaces.contains_key(namespace) {
            self.namespaces.insert(namespace.into(), Held::default());
        }
        if let Some(held) = self.namespaces.get_mut(namespace) {
            let before = held.bytes;
            held.add(entry);
            self.bytes = self.bytes - before + held.bytes;
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
        let before = held.bytes;
        held.remove(key, revision);
        self.bytes = self.bytes - before + held.bytes;
        if held.by_age.is_empty() {
            self.namespaces.remove(namespace);
        }
    }

    pub(super) fn apply(&mut self, event: &Event) {
        if let Some(previous) = &event.previous {
            self.remove(&event.key, previous.revision);
        }
        if let Some(entry) = &event.entry {
            self.add(entry);
        }
    }

    /// Takes what is too much out of the namespaces above their bounds, and out of the largest where all have too much.
    pub(super) fn take_excess(&mut self, limits: Limits) -> Vec<(Key, Revision)> {
        let mut taken = Vec::new();
        for namespace in std::mem::take(&mut self.grown) {
            self.take_excess_of(&namespace, limits.bounds, &mut taken);
        }
        if above(self.bytes, limits.in_all) {
            let bytes = self.level(limits.in_all);
            let bounds = ExpiryBounds { objects: 0, bytes };
            let larger = self.namespaces.iter().filter(|(_, held)| held.bytes > bytes);
            let larger: Vec<Box<str>> = larger.map(|(namespace, _)| namespace.clone()).collect();
            for namespace in larger {
                self.take_excess_of(&namespace, bounds, &mut taken);
            }
        }
        taken
    }

    fn take_excess_of(&mut self, namespace: &str, bounds: ExpiryBounds, taken: &mut Vec<(Key, Revision)>) {
        let Some(held) = self.namespaces.get_mut(namespace) else {
            return;
        };
        let before = held.bytes;
        held.take_excess(bounds, taken);
        self.bytes = self.bytes - before + held.bytes;
        if held.by_age.is_empty() {
            self.namespaces.remove(namespace);
        }
    }

    /// The bytes that each namespace may hold so that all together hold no more than `in_all`: small ones keep all of
    /// theirs.
    fn level(&self, in_all: u64) -> u64 {
        let mut sizes: Vec<u64> = self.namespaces.values().map(|held| held.bytes).collect();
        sizes.sort_unstable();
        let (mut left, mut namespaces) = (in_all, sizes.len() as u64);
        for size in sizes {
            if size > left / namespaces {
                break;
            }
            left -= size;
            namespaces -= 1;
        }
        (left / namespaces.max(1)).max(1)
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
    use std::sync::Arc;

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

    fn limits(objects: u64, bytes: u64) -> Limits {
        let bounds = ExpiryBounds { objects, bytes };
        Limits { bounds, in_all: 0 }
    }

    /// Objects of a few namespaces come, change and go; what is kept is never above the bounds, nothing goes of a namespace
    /// within them, and what goes is older than what stays, or larger where there are too many bytes.
    #[test]
    fn excess_of_any_history_is_the_largest_or_oldest_of_its_namespace() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let all = [limits(10, 0), limits(0, 60_000), limits(20, 90_000), limits(0, 0)];
            let limits = all[random.below(all.len())];
            let bounds = limits.bounds;
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
                for (key, revision) in ages.take_excess(limits) {
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
                let in_all: usize = model.values().map(|own| own.footprint()).sum();
                assert_eq!(ages.bytes, in_all as u64, "seed {seed}");
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
        let taken = ages.take_excess(limits(20, 0));
        let revisions: Vec<u64> = taken.iter().map(|(_, revision)| revision.0).collect();
        assert_eq!(revisions, (100..110).collect::<Vec<_>>());
        assert!(ages.take_excess(limits(20, 0)).is_empty());
    }

    #[test]
    fn excess_of_all_namespaces_together_is_of_those_that_have_most() {
        let mut ages = Ages::new(Prefix::parse("/registry/events/").unwrap());
        for (namespace, events) in [("quiet", 10), ("usual", 100), ("loud", 900), ("louder", 1_000)] {
            for at in 0..events {
                ages.add(&entry(&format!("{namespace}/{at}"), at, 1_000));
            }
        }
        let in_all = ages.bytes / 2;
        let all = Limits {
            in_all,
            ..limits(0, 0)
        };
        assert!(!ages.take_excess(all).is_empty());
        assert!(ages.bytes <= in_all && ages.bytes > in_all - in_all / 32);
        let left = |namespace: &str| ages.namespaces[namespace].by_age.len();
        assert_eq!((left("quiet"), left("usual")), (10, 100));
        assert!(left("loud").abs_diff(left("louder")) <= 1);
        assert!(ages.take_excess(all).is_empty());
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
        let taken = ages().take_excess(limits(65_536, 64 << 20));
        assert_eq!(revisions(taken), [100, 101]);
        let taken = ages().take_excess(limits(121, 0));
        assert_eq!(revisions(taken), [0, 1]);
    }
}
