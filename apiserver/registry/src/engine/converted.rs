//! Objects of older schemas in the form of now, where storage keeps them as they were written.
//!
//! Each is converted once for all its readers while it stays here. The memory is bounded as a whole and by namespace. A list
//! that is larger than its namespace's part finds as much of itself as the part holds: what was read lately stays, and
//! the new one is not kept.

use crate::engine::version_webhook::Converted;
use apiserver_storage::Entry;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Bytes of all that is kept.
const MAX_BYTES: usize = 64 << 20;
/// Bytes of what is kept of one namespace, or of the cluster's own objects.
const MAX_NAMESPACE_BYTES: usize = MAX_BYTES / 4;
/// Refusals for each object of a namespace, after which an unread entry goes: a list that is so many times as long
/// as the part that is kept of it leaves that in its place.
const PATIENCE: u64 = 16;
/// Bytes beside an entry's record and header: its keys, and its places in a shelf.
const ENTRY_BYTES: usize = 384;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ConvertedObjects(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By namespace; none is empty.
    shelves: HashMap<Box<str>, Shelf>,
    bytes: usize,
}

/// Objects of a namespace.
#[derive(Debug, Default)]
struct Shelf {
    kept: HashMap<Converted, Kept>,
    /// The next one to go or to stay is in front.
    order: VecDeque<Converted>,
    bytes: usize,
    /// Times that there was no room.
    refused: u64,
}

#[derive(Debug)]
struct Kept {
    entry: Arc<Entry>,
    /// Number of the shelf's refusals when it came, or was read last.
    used_at: u64,
}

impl ConvertedObjects {
    /// A stored entry in this form, where it is kept.
    pub(crate) fn get(&self, stored: &Entry, form: u64) -> Option<Arc<Entry>> {
        let mut state = self.0.lock();
        let shelf = state.shelves.get_mut(&*stored.record.header.key.namespace)?;
        let kept = shelf.kept.get_mut(&Converted::of(stored, form))?;
        // The same state may be stored with another key meanwhile.
        if kept.entry.seal != stored.seal {
            return None;
        }
        kept.used_at = shelf.refused;
        Some(Arc::clone(&kept.entry))
    }

    /// Keeps an entry in the form that it is in now.
    pub(crate) fn keep(&self, entry: &Arc<Entry>) {
        let bytes = weight(entry);
        if bytes > MAX_NAMESPACE_BYTES {
            return;
        }
        let namespace = &*entry.record.header.key.namespace;
        let state = &mut *self.0.lock();
        let most = state.most(namespace, bytes);
        let shelf = state.shelves.entry(namespace.into()).or_default();
        let before = shelf.bytes;
        let of = Converted::of(entry, entry.record.fingerprint);
        if !shelf.kept.contains_key(&of) && shelf.make_room(bytes, most) {
            shelf.put(of, entry, bytes);
        }
        state.bytes = state.bytes - before + shelf.bytes;
        while state.bytes > MAX_BYTES && state.shrink() {}
    }
}

impl State {
    /// Bytes that a namespace may have as so many come: once all is full, none grows that has as much as any other.
    fn most(&self, namespace: &str, bytes: usize) -> usize {
        let own = self.shelves.get(namespace).map_or(0, |shelf| shelf.bytes);
        let room = MAX_BYTES.saturating_sub(self.bytes);
        if bytes <= room || self.shelves.values().any(|shelf| shelf.bytes > own + bytes) {
            return MAX_NAMESPACE_BYTES;
        }
        MAX_NAMESPACE_BYTES.min(own + room)
    }

    /// Takes one object from the namespace that has most; says whether there was one.
    fn shrink(&mut self) -> bool {
        let largest = self.shelves.iter_mut().max_by_key(|(_, shelf)| shelf.bytes);
        let Some((namespace, shelf)) = largest else {
            return false;
        };
        let before = shelf.bytes;
        let went = shelf.remove_first();
        self.bytes = self.bytes - before + shelf.bytes;
        if shelf.kept.is_empty() {
            let namespace = namespace.clone();
            self.shelves.remove(&namespace);
        }
        went
    }
}

impl Shelf {
    fn put(&mut self, of: Converted, entry: &Arc<Entry>, bytes: usize) {
        let entry = Arc::clone(entry);
        let used_at = self.refused;
        self.kept.insert(of.clone(), Kept { entry, used_at });
        self.order.push_back(of);
        self.bytes += bytes;
    }

    /// Removes what was not used for long; says whether that was enough. The first one that was used ends it.
    fn make_room(&mut self, bytes: usize, most: usize) -> bool {
        let long = PATIENCE * self.kept.len() as u64;
        while self.bytes + bytes > most {
            let first = self.order.front().and_then(|first| self.kept.get(first));
            if first.is_some_and(|kept| self.refused - kept.used_at <= long) {
                self.refused += 1;
                self.order.rotate_left(1);
                return false;
            }
            if !self.remove_first() {
                return true;
            }
        }
        true
    }

    fn remove_first(&mut self) -> bool {
        let first = self.order.pop_front();
        if let Some(kept) = first.as_ref().and_then(|first| self.kept.remove(first)) {
            self.bytes -= weight(&kept.entry);
        }
        first.is_some()
    }
}

fn weight(entry: &Entry) -> usize {
    entry.record.len() + entry.record.header.footprint() + 2 * entry.key.as_str().len() + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use apiserver_storage::encryption::Seal;
    use apiserver_storage::{Key, Record};
    use bytes::Bytes;
    use machinery_meta::{ObjectHeader, ObjectKey, Revision};

    const FORM: u64 = 7;

    fn entry(namespace: &str, name: usize, bytes: usize) -> Arc<Entry> {
        let name = name.to_string();
        let header = ObjectHeader {
            key: ObjectKey::new(namespace, &name),
            ..ObjectHeader::default()
        };
        Arc::new(Entry {
            key: Key::parse(&format!("/registry/boats/{namespace}/{name}")).unwrap(),
            revision: Revision(1),
            created: Revision(1),
            expires: None,
            record: Record {
                parts: [Bytes::from(vec![b' '; bytes]), Bytes::new(), Bytes::new()],
                fingerprint: FORM,
                header: Arc::new(header),
            },
            seal: Seal::default(),
        })
    }

    /// Looks at so many objects of a namespace, as a list does; the number of those that were there.
    fn looked(at: &ConvertedObjects, namespace: &str, count: usize, bytes: usize) -> usize {
        let entries = (0..count).map(|name| entry(namespace, name, bytes));
        let found = entries.filter(|entry| {
            let found = at.get(entry, FORM).is_some();
            if !found {
                at.keep(entry);
            }
            found
        });
        found.count()
    }

    #[test]
    fn converted_objects_of_a_long_list_are_found_as_far_as_they_fit() {
        let all = ConvertedObjects::default();
        let half = MAX_NAMESPACE_BYTES / (1 << 20) - 1;
        assert_eq!(looked(&all, "blue", 2 * half, 1 << 20), 0);
        for _ in 0..3 {
            assert_eq!(looked(&all, "blue", 2 * half, 1 << 20), half);
        }
        // Others than those that are read no more come in after a turn.
        assert_eq!(looked(&all, "green", 3, 1 << 20), 0);
        assert_eq!(looked(&all, "green", 3, 1 << 20), 3);
    }

    #[test]
    fn converted_objects_that_nobody_reads_go() {
        let all = ConvertedObjects::default();
        let fit = MAX_NAMESPACE_BYTES / (1 << 20) - 1;
        looked(&all, "blue", fit, 1 << 20);
        let new = entry("blue", 1_000, 1 << 20);
        let came = (0..=17 * fit).find(|_| {
            all.keep(&new);
            all.get(&new, FORM).is_some()
        });
        assert!(came.is_some_and(|came| came >= 16 * fit), "{came:?}");
    }

    #[test]
    fn converted_objects_are_bounded_over_all_namespaces() {
        let all = ConvertedObjects::default();
        for namespace in 0..12 {
            looked(&all, &format!("n{namespace}"), 64, 1 << 20);
            let state = all.0.lock();
            assert!(state.bytes <= MAX_BYTES);
            let shelves = state.shelves.values();
            assert_eq!(shelves.clone().map(|own| own.bytes).sum::<usize>(), state.bytes);
            assert!(shelves.clone().all(|own| own.bytes <= MAX_NAMESPACE_BYTES));
        }
        assert!(looked(&all, "n11", 64, 1 << 20) > 0);
    }

    #[test]
    fn converted_object_is_of_its_state_and_form() {
        let all = ConvertedObjects::default();
        let first = entry("blue", 1, 10);
        all.keep(&first);
        assert!(Arc::ptr_eq(&all.get(&first, FORM).unwrap(), &first));
        assert!(all.get(&first, FORM + 1).is_none());
        let mut next = Arc::into_inner(entry("blue", 1, 10)).unwrap();
        next.revision = Revision(2);
        assert!(all.get(&next, FORM).is_none());
    }
}
