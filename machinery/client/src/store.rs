//! The objects of one reflector, with their indexes. Iteration is in key order, so that two runs see the same.

use crate::object::Object;
use crate::projection::{IndexName, Projection};
use machinery_meta::{ObjectHeader, ObjectKey};
use std::borrow::Borrow;
use std::collections::BTreeMap;
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

type Objects<P> = BTreeMap<HeaderKey, Arc<Object<P>>>;

/// Objects by key and by index value.
pub(crate) struct Store<P: Projection> {
    objects: Objects<P>,
    /// One map per declared index, in the order of `P::INDEXES`. The objects themselves are in it, so that reading
    /// many of them does not look each up by its name.
    indexes: Vec<BTreeMap<Box<str>, Objects<P>>>,
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
                let entry = (key.clone(), object.clone());
                match map.get_mut(value) {
                    Some(objects) => drop(objects.insert(entry.0, entry.1)),
                    None => drop(map.insert(value.into(), BTreeMap::from([entry]))),
                }
            });
        }
        self.objects.insert(key, object);
        old
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Object<P>>> {
        let old = self.objects.remove(key)?;
        for (index, map) in P::INDEXES.iter().zip(&mut self.indexes) {
            (index.values)(&old, &mut |value| {
                if let Some(objects) = map.get_mut(value) {
                    objects.remove(key);
                    if objects.is_empty() {
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
        let objects = self.indexes[at].get(value);
        Some(objects.into_iter().flat_map(Objects::values).cloned().collect())
    }
}
