//! Time that a failed pod stays before it is replaced, by set and node: upstream's backoff, from a second to a quarter
//! of an hour. Without it, a set and a kubelet that rejects its pods would fight as fast as both can.

use jiff::{SignedDuration, Timestamp};
use machinery_meta::{ObjectKey, Uid};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

const FIRST: SignedDuration = SignedDuration::from_secs(1);
const LONGEST: SignedDuration = SignedDuration::from_mins(15);
/// An entry that was not touched for so long is forgotten.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_mins(30);

#[derive(Debug, Default)]
pub(super) struct Backoff {
    sets: Mutex<BTreeMap<ObjectKey, OfSet>>,
}

/// The version of a set that backoffs are of; another one starts over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Version {
    pub(super) uid: Uid,
    pub(super) observed_generation: i64,
}

#[derive(Debug, Default)]
struct OfSet {
    version: Version,
    nodes: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    since: Timestamp,
    delay: SignedDuration,
}

impl Entry {
    fn until(&self) -> Timestamp {
        self.since.saturating_add(self.delay).unwrap_or(Timestamp::MAX)
    }
}

impl Backoff {
    /// The nodes whose failed pods stay, and until when.
    pub(super) fn held(
        &self,
        set: &ObjectKey,
        version: &Version,
        now: Timestamp,
    ) -> BTreeMap<String, Timestamp> {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = sets.get_mut(set).filter(|own| own.version == *version) else {
            sets.remove(set);
            return BTreeMap::new();
        };
        own.nodes
            .retain(|_, entry| now.duration_since(entry.since) <= FORGOTTEN_AFTER);
        let held = own.nodes.iter().filter(|(_, entry)| entry.until() > now);
        held.map(|(node, entry)| (node.clone(), entry.until())).collect()
    }

    /// A failed pod of the node is deleted now: the next one stays twice as long.
    pub(super) fn replaced(&self, set: &ObjectKey, version: &Version, node: &str, now: Timestamp) {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let own = sets.entry(set.clone()).or_default();
        if own.version != *version {
            *own = OfSet {
                version: version.clone(),
                ..OfSet::default()
            };
        }
        let before = own.nodes.get(node);
        let delay = before.map_or(FIRST, |entry| (entry.delay * 2).min(LONGEST));
        own.nodes.insert(node.to_owned(), Entry { since: now, delay });
    }

    pub(super) fn forget(&self, set: &ObjectKey) {
        self.sets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_longest_and_begins_anew_with_the_set() {
        let (backoff, key) = (Backoff::default(), ObjectKey::new("n", "a"));
        let version = |observed_generation| Version {
            uid: Uid("u".to_owned()),
            observed_generation,
        };
        let mut now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for expected in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900] {
            assert!(backoff.held(&key, &version(1), now).is_empty());
            backoff.replaced(&key, &version(1), "n1", now);
            let until = backoff.held(&key, &version(1), now)["n1"];
            assert_eq!(until.duration_since(now).as_secs(), expected);
            now = until;
        }
        backoff.replaced(&key, &version(1), "n1", now);
        backoff.replaced(&key, &version(1), "n2", now);
        assert_eq!(backoff.held(&key, &version(1), now).len(), 2);
        let later = now + FORGOTTEN_AFTER + FIRST;
        assert!(backoff.held(&key, &version(1), later).is_empty());
        backoff.replaced(&key, &version(1), "n1", later);
        assert_eq!(backoff.held(&key, &version(1), later)["n1"], later + FIRST);
        assert!(backoff.held(&key, &version(2), later).is_empty());
        assert!(backoff.held(&key, &version(1), later).is_empty());
    }
}
