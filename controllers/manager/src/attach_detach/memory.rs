//! State beside the caches: notes on attachments, those that were made and not seen yet, and nodes that went.
//!
//! All of it may be lost: after a restart the attachments that are there are found in the cache.

use super::plan::Notes;
use crate::views::NodeView;
use machinery_client::Object;
use machinery_meta::Revision;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An attachment that this process may have made, and that the cache does not show yet.
#[derive(Debug)]
pub(super) struct Unseen {
    pub(super) driver: Box<str>,
    pub(super) handle: Box<str>,
    pub(super) node: Box<str>,
    /// `None` while it is not known whether it was made.
    made: Option<Revision>,
}

/// Memory of the controller.
#[derive(Debug, Default)]
pub(super) struct Memory {
    notes: BTreeMap<Box<str>, Notes>,
    unseen: BTreeMap<String, Unseen>,
}

/// Nodes that went while volumes were attached to them, as they last were: their pods may still run. It has a lock of its own
/// that is held beside no other, since handlers of the cache take it.
#[derive(Debug, Default)]
pub(super) struct Departures(Mutex<BTreeMap<Box<str>, Arc<Object<NodeView>>>>);

impl Departures {
    /// A node went.
    pub(super) fn add(&self, node: &Arc<Object<NodeView>>) {
        self.0.lock().insert(node.name().into(), node.clone());
    }

    /// The node as it last was, where it went.
    pub(super) fn get(&self, node: &str) -> Option<Arc<Object<NodeView>>> {
        self.0.lock().get(node).cloned()
    }

    /// The node is back, or nothing is attached to it any more.
    pub(super) fn forget(&self, node: &str) {
        self.0.lock().remove(node);
    }
}

impl Memory {
    /// Takes a node's notes, which one look at a time changes.
    pub(super) fn take_notes(&mut self, node: &str) -> Notes {
        self.notes.remove(node).unwrap_or_default()
    }

    /// Puts them back.
    pub(super) fn put_notes(&mut self, node: &str, notes: Notes) {
        if !notes.is_empty() {
            self.notes.insert(node.into(), notes);
        }
    }

    /// Attachments that are in the cache by now need no place here. The caller holds the lock while it reads the cache.
    pub(super) fn seen_until(&mut self, position: Revision) {
        self.unseen
            .retain(|_, own| own.made.is_none_or(|made| made > position));
    }

    /// Reports whether the attachment may be there although the cache does not show it.
    pub(super) fn is_unseen(&self, name: &str) -> bool {
        self.unseen.contains_key(name)
    }

    /// Other nodes that may have the volume although the cache does not show it.
    pub(super) fn unseen_holders(&self, (driver, handle): (&str, &str), node: &str) -> Vec<Box<str>> {
        let own = self.unseen.values();
        let own = own.filter(|own| *own.driver == *driver && *own.handle == *handle && *own.node != *node);
        own.map(|own| own.node.clone()).collect()
    }

    /// An attachment is about to be made.
    pub(super) fn reserve(&mut self, name: &str, (driver, handle): (&str, &str), node: &str) {
        let unseen = Unseen {
            driver: driver.into(),
            handle: handle.into(),
            node: node.into(),
            made: None,
        };
        self.unseen.insert(name.to_owned(), unseen);
    }

    /// Records the revision at which an attachment was there.
    pub(super) fn made(&mut self, name: &str, revision: Revision) {
        if let Some(own) = self.unseen.get_mut(name) {
            own.made = Some(revision);
        }
    }

    /// Forgets an attachment that is not there.
    pub(super) fn release(&mut self, name: &str) -> Option<Unseen> {
        self.unseen.remove(name)
    }

    /// Attachments of a node of which it is not known whether they were made.
    pub(super) fn unsettled(&self, node: &str) -> Vec<String> {
        let own = self.unseen.iter();
        let own = own.filter(|(_, own)| *own.node == *node && own.made.is_none());
        own.map(|(name, _)| name.clone()).collect()
    }

    /// Reports whether the cache may come to show an attachment of the node.
    pub(super) fn expects(&self, node: &str) -> bool {
        self.unseen.values().any(|own| *own.node == *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachment_holds_its_volume_until_the_cache_shows_it() {
        let (mut memory, volume) = (Memory::default(), ("d", "h"));
        memory.reserve("a", volume, "n1");
        memory.seen_until(Revision(9));
        assert_eq!(memory.unseen_holders(volume, "n2"), ["n1".into()]);
        assert!(memory.unseen_holders(volume, "n1").is_empty());
        assert!(memory.unseen_holders(("d", "other"), "n2").is_empty());
        assert_eq!(memory.unsettled("n1"), ["a"]);
        memory.made("a", Revision(12));
        assert!(memory.unsettled("n1").is_empty());
        memory.seen_until(Revision(11));
        assert!(memory.is_unseen("a"));
        memory.seen_until(Revision(12));
        assert!(!memory.is_unseen("a"));
    }
}
