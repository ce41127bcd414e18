//! Objects that were converted lately: watchers and lists of one version show the same ones.

use apiserver_storage::{Entry, Key};
use machinery_meta::Revision;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Bytes of the objects that are kept, of one definition.
const MAX_BYTES: usize = 16 << 20;

/// A state of an object in a version, by the fingerprint of the version's form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Converted {
    pub(crate) key: Key,
    pub(crate) revision: Revision,
    pub(crate) form: u64,
}

impl Converted {
    /// An entry's state, in a form.
    pub(crate) fn of(entry: &Entry, form: u64) -> Self {
        Self {
            key: entry.key.clone(),
            revision: entry.revision,
            form,
        }
    }
}

/// The oldest goes first.
#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Converted, Arc<Entry>>,
    order: VecDeque<Converted>,
    bytes: usize,
}

impl Cache {
    pub(crate) fn get(&self, of: &Converted) -> Option<Arc<Entry>> {
        self.0.lock().entries.get(of).map(Arc::clone)
    }

    pub(crate) fn keep(&self, of: Converted, entry: &Arc<Entry>) {
        let mut state = self.0.lock();
        if state.entries.insert(of.clone(), Arc::clone(entry)).is_some() {
            return;
        }
        state.bytes += entry.record.len();
        state.order.push_back(of);
        while state.bytes > MAX_BYTES
            && let Some(oldest) = state.order.pop_front()
        {
            if let Some(entry) = state.entries.remove(&oldest) {
                state.bytes -= entry.record.len();
            }
        }
    }
}
