//! Keys of the collector's queue.

use machinery_meta::Uid;
use machinery_reconcile::QueueKey;

/// Work of one turn.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// Reads discovery.
    Discovery,
    /// Checks whether the stores are filled, so that attempts begin.
    Stores,
    /// Decides whether an object is deleted.
    Delete(Object),
    /// Orphans the dependents of an object.
    Orphan(Object),
}

/// An object of the graph.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Object {
    pub(super) namespace: String,
    pub(super) uid: Uid,
}

impl QueueKey for Key {
    fn namespace(&self) -> &str {
        match self {
            Self::Discovery | Self::Stores => "",
            Self::Delete(object) | Self::Orphan(object) => &object.namespace,
        }
    }
}
