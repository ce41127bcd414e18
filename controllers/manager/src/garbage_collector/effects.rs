//! Effects of changes of the graph, which the dispatcher carries out.

use super::keys::Key;
use super::node::Node;
use machinery_meta::Uid;

/// Effects of a change of one object on others.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Objects to be checked.
    pub(super) looks: Vec<Key>,
    /// References into another namespace, to be reported.
    pub(super) foreign: Vec<ForeignOwner>,
    /// An object that is gone and that others go on claiming as their owner.
    pub(super) gone: Option<Node>,
}

/// A reference to an object of another namespace.
#[derive(Debug)]
pub(super) struct ForeignOwner {
    pub(super) dependent: Node,
    pub(super) owner: Uid,
}
