//! What the collector's queue holds.

use machinery_meta::Uid;
use machinery_reconcile::QueueKey;

/// Work of one turn.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// What is served.
    Discovery,
    /// Whether the stores are filled, so that looks begin.
    Stores,
    /// Whether an object is to be deleted.
    Delete(Object),
    /// Whose dependents are to be set free.
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
