//! The live objects by key: a persistent ordered tree, and how many of them there are below a prefix without a walk.
//!
//! The tree itself does not know how many entries lie between two keys, and every page of a list says how many follow it.
//! So the keys are counted in blocks of neighbours, in a second tree that is as persistent as the first: a count adds up
//! blocks and walks at most two of them. Cloning the root pins the whole state.

use crate::{Entry, Key, Prefix, Sample};
use imbl::OrdMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// A block that has grown beyond this is split into halves.
const MAX_BLOCK: usize = 256;

/// Entries in the order of their keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Root {
    entries: OrdMap<Key, Arc<Entry>>,
    /// Returns the number of entries from a key on up to the key of the next block.
    /// Invariant: no block is empty, none is larger than [`MAX_BLOCK`], and no entry lies before the first.
    blocks: OrdMap<Key, usize>,
}

impl Root {
    pub(crate) fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.entries.get(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The last key.
    pub(crate) fn last(&self) -> Option<&Key> {
        self.entries.get_max().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.values()
    }

    pub(crate) fn range(&self, range: impl RangeBounds<str>) -> impl Iterator<Item = (&Key, &Arc<Entry>)> {
        self.entries.range::<_, str>(range)
    }

    pub(crate) fn insert(&mut self, key: Key, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let previous = self.entries.insert(key.clone(), entry);
        if previous.is_none() {
            self.count_in(key);
        }
        previous
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Arc<Entry>> {
        let removed = self.entries.remove(key)?;
        let (first, count) = self.blocks.get_prev_mut(key).expect("every entry is in a block");
        *count -= 1;
        if *count == 0 {
            let first = first.clone();
            self.blocks.remove(&first);
        }
        Some(removed)
    }

    fn count_in(&mut self, key: Key) {
        let Some((first, count)) = self.blocks.get_prev_mut(key.as_str()) else {
            // The new first key of all: the first block begins with it.
            let first = self.blocks.get_min().map(|(first, _)| first.clone());
            let count = first.and_then(|first| self.blocks.remove(&first));
            self.put_block(key, count.unwrap_or(0) + 1);
            return;
        };
        *count += 1;
        if *count > MAX_BLOCK {
            let (first, count) = (first.clone(), *count);
            self.put_block(first, count);
        }
    }

    /// A block, as two where it is too large.
    fn put_block(&mut self, first: Key, count: usize) {
        if count <= MAX_BLOCK {
            self.blocks.insert(first, count);
            return;
        }
        let half = count / 2;
        let middle = self.range((Bound::Included(first.as_str()), Bound::Unbounded));
        let middle = middle.map(|(key, _)| key.clone()).nth(half);
        let middle = middle.expect("a block has as many entries as it counts");
        self.blocks.insert(first, half);
        self.blocks.insert(middle, count - half);
    }

    /// Entries below a prefix, behind a key.
    pub(crate) fn below<'a>(
        &'a self,
        prefix: &'a Prefix,
        start_after: Option<&'a Key>,
    ) -> impl Iterator<Item = &'a Arc<Entry>> {
        self.range((start(prefix, start_after), Bound::Unbounded))
            .map(|(_, entry)| entry)
            .take_while(move |entry| prefix.contains(&entry.key))
    }

    /// Number of these.
    pub(crate) fn count_below(&self, prefix: &Prefix, start_after: Option<&Key>) -> u64 {
        let start = start(prefix, start_after);
        let (Bound::Included(from) | Bound::Excluded(from)) = start else {
            unreachable!("a start is a key or a prefix");
        };
        let behind = (Bound::Excluded(from), Bound::Unbounded);
        let mut blocks = self.blocks.range::<_, str>(behind);
        let mut next = || blocks.next().filter(|(first, _)| prefix.contains(first));
        let Some((mut first, mut size)) = next() else {
            return self.below(prefix, start_after).count() as u64;
        };
        // Both ends are below the prefix, so is what lies between them.
        let mut count = self.range((start, Bound::Excluded(first.as_str()))).count();
        while let Some(following) = next() {
            count += size;
            (first, size) = (following.0, following.1);
        }
        let last = self.range((Bound::Included(first.as_str()), Bound::Unbounded));
        count += last.take_while(|(key, _)| prefix.contains(key)).count();
        count as u64
    }

    /// Number of entries below a prefix, and the mean size of the first so many.
    pub(crate) fn sample(&self, prefix: &Prefix, most: usize) -> Sample {
        let (mut seen, mut bytes) = (0, 0);
        for entry in self.below(prefix, None).take(most) {
            seen += 1;
            bytes += entry.record.len() as u64;
        }
        Sample {
            count: self.count_below(prefix, None),
            average_bytes: bytes.checked_div(seen).unwrap_or(0),
        }
    }
}

/// A key before the prefix must not widen the range.
fn start<'a>(prefix: &'a Prefix, start_after: Option<&'a Key>) -> Bound<&'a str> {
    match start_after {
        Some(key) if key.as_str() > prefix.as_str() => Bound::Excluded(key.as_str()),
        _ => Bound::Included(prefix.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ObjectHeader, Record, Revision};
    use bytes::Bytes;
    use machinery_fuzz::Random;
    use std::collections::BTreeSet;

    fn entry(key: &Key) -> Arc<Entry> {
        let record = Record {
            parts: [Bytes::new(), Bytes::new(), Bytes::new()],
            fingerprint: 0,
            header: Arc::new(ObjectHeader::default()),
        };
        Arc::new(Entry {
            seal: Default::default(),
            key: key.clone(),
            revision: Revision(1),
            created: Revision(1),
            expires: None,
            record,
        })
    }

    fn key(text: &str) -> Key {
        Key::parse(text).unwrap()
    }

    /// Asserts what the type's comment says of blocks.
    fn check_blocks(root: &Root) {
        assert_eq!(root.blocks.values().sum::<usize>(), root.len());
        let firsts: Vec<&Key> = root.blocks.keys().collect();
        for (at, (first, size)) in root.blocks.iter().enumerate() {
            let end = firsts
                .get(at + 1)
                .map_or(Bound::Unbounded, |next| Bound::Excluded(next.as_str()));
            let within = root.range((Bound::Included(first.as_str()), end));
            assert_eq!(within.count(), *size, "{first}");
            assert!((1..=MAX_BLOCK).contains(size), "{size}");
        }
    }

    /// A count as that of a set of keys that is walked each time.
    #[test]
    fn count_of_any_keys_is_that_of_a_walk() {
        for seed in 0..12 {
            let mut random = Random::new(seed);
            let names = [9, 300, 5_000][random.below(3)];
            let (mut root, mut model) = (Root::default(), BTreeSet::new());
            for step in 0..6_000 {
                let namespace = random.below(4);
                let own = key(&format!("/registry/pods/{namespace}/{}", random.below(names)));
                // Now a time in which the store grows, now one in which it shrinks.
                if random.below(10) < [8, 2][step / 1_000 % 2] {
                    root.insert(own.clone(), entry(&own));
                    model.insert(own);
                } else {
                    assert_eq!(root.remove(own.as_str()).is_some(), model.remove(&own));
                }
                if step % 50 > 0 {
                    continue;
                }
                let prefix = random.pick(&["/", "/registry/pods/", "/registry/pods/2/", "/registry/none/"]);
                let prefix = Prefix::parse(prefix).unwrap();
                let after = key(&format!(
                    "/registry/pods/{}/{}",
                    random.below(5),
                    random.below(names)
                ));
                for after in [None, Some(&after), Some(&key("/a")), Some(&key("/z"))] {
                    let is_in = |own: &&Key| prefix.contains(own) && after.is_none_or(|after| *own > after);
                    let expected = model.iter().filter(is_in).count() as u64;
                    assert_eq!(root.count_below(&prefix, after), expected, "seed {seed}");
                    assert_eq!(root.below(&prefix, after).count() as u64, expected);
                }
            }
            check_blocks(&root);
            let before = root.clone();
            for own in &model {
                root.remove(own.as_str());
            }
            assert_eq!((root.len(), root.blocks.len()), (0, 0));
            check_blocks(&before);
        }
    }

    #[test]
    fn count_of_a_large_prefix_walks_two_blocks_at_most() {
        let mut root = Root::default();
        for name in 0..20_000 {
            let own = key(&format!("/registry/pods/a/{name:05}"));
            root.insert(own.clone(), entry(&own));
        }
        check_blocks(&root);
        let most = 2 * 20_000 / MAX_BLOCK + 1;
        assert!(root.blocks.len() <= most, "{} blocks", root.blocks.len());
    }
}
