//! The objects of one reflector, with their indexes. Iteration is in key order, so that two runs see the same.

use crate::object::Object;
use crate::projection::{IndexName, Projection};
use machinery_meta::{ObjectHeader, ObjectKey};
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// A key that costs no second copy of namespace and name.
#[derive(Clone)]
struct HeaderKey(Arc<ObjectHeader>);

impl Borrow<ObjectKey> for HeaderKey {
    fn borrow(&self) -> &ObjectKey {
        &self.0.key
    }
}

impl PartialEq for HeaderKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for HeaderKey {}

impl PartialOrd for HeaderKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for HeaderKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.key.cmp(&other.0.key)
    }
}

/// Objects by key and by index value.
pub(crate) struct Store<P: Projection> {
    objects: BTreeMap<HeaderKey, Arc<Object<P>>>,
    /// One map per declared index, in the order of `P::INDEXES`.
    indexes: Vec<BTreeMap<Box<str>, BTreeSet<HeaderKey>>>,
}

impl<P: Projection> fmt::Debug for Store<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("objects", &self.objects.len())
            .finish_non_exhaustive()
    }
}

impl<P: Projection> Store<P> {
    pub(crate) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            indexes: P::INDEXES.iter().map(|_| BTreeMap::new()).collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Arc<Object<P>>> {
        self.objects.get(key)
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = &Arc<Object<P>>> {
        self.objects.values()
    }

    /// Puts an object in place of what was under its key.
    pub(crate) fn put(&mut self, object: Arc<Object<P>>) -> Option<Arc<Object<P>>> {
        let old = self.remove(object.key());
        let key = HeaderKey(object.header.clone());
        for (index, map) in P::INDEXES.iter().zip(&mut self.indexes) {
            (index.values)(&object, &mut |value| {
                map.entry(value.into()).or_default().insert(key.clone());
            });
        }
        self.objects.insert(key, object);
        old
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Object<P>>> {
        let old = self.objects.remove(key)?;
        for (index, map) in P::INDEXES.iter().zip(&mut self.indexes) {
            (index.values)(&old, &mut |value| {
                if let Some(keys) = map.get_mut(value) {
                    keys.remove(key);
                    if keys.is_empty() {
                        map.remove(value);
                    }
                }
            });
        }
        Some(old)
    }

    /// The objects under an index value, in key order; `None` where the index was not declared.
    pub(crate) fn by_index(&self, name: IndexName, value: &str) -> Option<Vec<Arc<Object<P>>>> {
        let at = P::INDEXES.iter().position(|index| index.name == name)?;
        let keys = self.indexes[at].get(value);
        Some(
            keys.into_iter()
                .flatten()
                .filter_map(|key| self.objects.get(key))
                .cloned()
                .collect(),
        )
    }
}
