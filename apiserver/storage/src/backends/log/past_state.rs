//! A state of the past below a prefix, as it is put together from the history.
//!
//! Entries that the tree still holds are referred to, whatever they take. Others are memory of the list alone, so
//! that has a bound, and a list is not built beyond it.

use crate::live::Root;
use crate::{Entry, Key};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bounds of a list that is put together.
#[derive(Debug, Clone, Copy)]
pub(super) enum ListBound {
    /// Bytes of memory that the tree no longer holds.
    Held(u64),
    /// Also where the tree holds all of it: entries, and their bytes.
    Short(usize, u64),
}

/// Entries below a prefix, in the order of keys.
#[derive(Debug)]
pub(super) struct PastState<'r> {
    root: &'r Root,
    bound: ListBound,
    entries: BTreeMap<Key, Arc<Entry>>,
    /// Bytes of all of them, and of those that the tree does not hold.
    bytes: u64,
    held: u64,
}

/// A list of the past, and the bytes of it that the tree did not hold when it was made.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) entries: Vec<Arc<Entry>>,
    pub(super) held: u64,
    /// [`Live::left`](crate::live::Live) of that tree.
    pub(super) left: u64,
}

impl<'r> PastState<'r> {
    pub(super) fn new(root: &'r Root, bound: ListBound) -> Self {
        Self {
            root,
            bound,
            entries: BTreeMap::new(),
            bytes: 0,
            held: 0,
        }
    }

    /// Puts an entry in the place of another one of its key; `false` when that is more than the bound.
    pub(super) fn put(&mut self, entry: Arc<Entry>) -> bool {
        let shared = self.shared(&entry).cloned();
        let (is_shared, entry) = (shared.is_some(), shared.unwrap_or(entry));
        let bytes = entry.footprint() as u64;
        self.bytes += bytes;
        self.held += if is_shared { 0 } else { bytes };
        let old = self.entries.insert(entry.key.clone(), entry);
        self.forget(old);
        self.is_within()
    }

    pub(super) fn remove(&mut self, key: &Key) {
        let old = self.entries.remove(key);
        self.forget(old);
    }

    fn forget(&mut self, old: Option<Arc<Entry>>) {
        let Some(old) = old else { return };
        let bytes = old.footprint() as u64;
        self.bytes -= bytes;
        self.held -= if self.shared(&old).is_some() { 0 } else { bytes };
    }

    /// The same version as the tree has it.
    fn shared(&self, entry: &Entry) -> Option<&'r Arc<Entry>> {
        let own = self.root.get(entry.key.as_str());
        own.filter(|own| own.revision == entry.revision)
    }

    pub(super) fn is_within(&self) -> bool {
        match self.bound {
            ListBound::Held(most) => self.held <= most,
            ListBound::Short(entries, bytes) => self.entries.len() <= entries && self.bytes <= bytes,
        }
    }

    /// The list, where it is within the bound.
    pub(super) fn built(self, left: u64) -> Option<Built> {
        self.is_within().then(|| Built {
            entries: self.entries.into_values().collect(),
            held: self.held,
            left,
        })
    }
}
