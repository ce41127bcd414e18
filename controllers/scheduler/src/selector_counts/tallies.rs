//! Pods by node, for each of many selectors, and which of these a pod may be selected by.

use super::PodSelector;
use super::index::SelectorIndex;
use crate::object::Metadata;
use crate::sparse_column::SparseColumn;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Key of a count.
pub(super) trait Selecting: Eq + Hash {
    /// A selector that every counted pod meets.
    fn selector(&self) -> &PodSelector;
}

/// Pods of one key by node.
#[derive(Debug)]
pub(super) struct Tally<K, V> {
    pub(super) key: Arc<K>,
    pub(super) by_node: SparseColumn,
    pub(super) value: V,
}

/// Tallies by key and by small numbers.
#[derive(Debug)]
pub(super) struct Tallies<K, V> {
    ids: HashMap<Arc<K>, u32>,
    tallies: Vec<Option<Tally<K, V>>>,
    free: Vec<u32>,
    index: SelectorIndex,
}

impl<K, V> Default for Tallies<K, V> {
    fn default() -> Self {
        Self {
            ids: HashMap::new(),
            tallies: Vec::new(),
            free: Vec::new(),
            index: SelectorIndex::default(),
        }
    }
}

impl<K: Selecting, V> Tallies<K, V> {
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn id(&self, key: &K) -> Option<u32> {
        self.ids.get(key).copied()
    }

    pub(super) fn get(&self, id: u32) -> Option<&Tally<K, V>> {
        self.tallies.get(id as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Tally<K, V>> {
        self.tallies.get_mut(id as usize)?.as_mut()
    }

    /// Adds a tally of a key that has none.
    pub(super) fn insert(&mut self, key: Arc<K>, value: V) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.tallies.push(None);
            u32::try_from(self.tallies.len() - 1).expect("fewer keys than memory has room for")
        });
        self.index.insert(key.selector(), id);
        self.ids.insert(Arc::clone(&key), id);
        self.tallies[id as usize] = Some(Tally {
            key,
            by_node: SparseColumn::default(),
            value,
        });
        id
    }

    pub(super) fn remove(&mut self, id: u32) {
        let Some(tally) = self.tallies.get_mut(id as usize).and_then(Option::take) else {
            return;
        };
        self.index.remove(tally.key.selector(), id);
        self.ids.remove(&tally.key);
        self.free.push(id);
        if self.ids.is_empty() {
            *self = Self::default();
        }
    }

    /// Tallies whose keys may select the pod.
    pub(super) fn candidates(&self, pod: &Metadata) -> impl Iterator<Item = (u32, &Tally<K, V>)> {
        let ids = self.index.candidates(pod);
        ids.filter_map(|id| Some((id, self.get(id)?)))
    }

    /// Number of [`Self::candidates`].
    pub(super) fn candidate_count(&self, pod: &Metadata) -> usize {
        self.index.candidate_count(pod)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Tally<K, V>)> {
        let all = self.ids.values();
        all.filter_map(|id| Some((*id, self.get(*id)?)))
    }
}
