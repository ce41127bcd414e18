//! Figures of what is listed and sent.

use apiserver_registry::row::ResourceRow;
use std::sync::Arc;

/// Takes the size of each event that is sent to a watcher.
pub trait WatchEvents: Send + Sync {
    fn sent(&self, bytes: usize);
}

/// Counts answers to readers.
pub trait Observers: Send + Sync {
    /// Counts events of a kind; called once for each watch.
    fn watch_events(&self, _: &ResourceRow) -> Option<Arc<dyn WatchEvents>> {
        None
    }

    /// Counts a list that is answered: entries that were read for it, and those that are on it.
    fn listed(&self, _: &ResourceRow, _fetched: usize, _returned: usize) {}
}
