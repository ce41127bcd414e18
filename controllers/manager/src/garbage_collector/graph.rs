//! Who owns whom, by uid. Pure but for its lock; changes answer which objects are to be looked at.

use super::reconcile::Key;
use machinery_client::ApiResource;
use machinery_meta::{ObjectHeader, ObjectKey, OwnerRef, Uid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Waits for the object's dependents to go.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// Waits for the object's dependents to be set free.
pub(super) const ORPHAN: &str = "orphan";

/// The graph.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: Mutex<Nodes>,
}

type Nodes = BTreeMap<Uid, Entry>;

/// What the graph keeps of an object: there may be thousands of dependents, so who asks for the node gets it without.
#[derive(Debug)]
struct Entry {
    node: Node,
    dependents: BTreeSet<Uid>,
}

/// An object, or one that an owner reference claims there is.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Unknown while only a reference spoke of it and discovery does not know its kind.
    pub(super) resource: Option<Arc<ApiResource>>,
    pub(super) key: ObjectKey,
    /// What a reference says of an object that was never seen.
    pub(super) claimed: Option<OwnerRef>,
    /// `None` for one that was never seen.
    pub(super) header: Option<Arc<ObjectHeader>>,
}

impl Node {
    pub(super) fn owners(&self) -> &[OwnerRef] {
        self.header.as_ref().map_or(&[], |header| &header.owners)
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.header.as_ref().is_some_and(|header| header.is_deleting())
    }

    /// It waits for its dependents to go.
    pub(super) fn waits_for_dependents(&self) -> bool {
        self.is_deleting() && self.has_finalizer(FOREGROUND)
    }

    fn waits_for_orphaning(&self) -> bool {
        self.is_deleting() && self.has_finalizer(ORPHAN)
    }

    fn has_finalizer(&self, name: &str) -> bool {
        self.header
            .as_ref()
            .is_some_and(|header| header.finalizers.iter().any(|own| &**own == name))
    }

    /// Whether this object's reference to `owner` makes the owner's foreground deletion wait.
    pub(super) fn blocks(&self, owner: &Uid) -> bool {
        self.owners()
            .iter()
            .any(|own| own.uid == *owner && own.block_owner_deletion)
    }
}

impl Graph {
    fn lock(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, uid: &Uid) -> Option<Node> {
        self.lock().get(uid).map(|entry| entry.node.clone())
    }

    /// The dependents of an object, as they are.
    pub(super) fn dependents(&self, uid: &Uid) -> Vec<(Uid, Node)> {
        let nodes = self.lock();
        let all = nodes.get(uid).into_iter().flat_map(|entry| &entry.dependents);
        all.filter_map(|uid| Some((uid.clone(), nodes.get(uid)?.node.clone())))
            .collect()
    }

    /// An object was seen; answers what is to be looked at. One whose owners are all there and staying is not: that it
    /// is to be will be known from the owner.
    pub(super) fn seen(&self, resource: &Arc<ApiResource>, header: &Arc<ObjectHeader>) -> Vec<Key> {
        let mut nodes = self.lock();
        let mut wake = Vec::new();
        let known = nodes.remove(&header.uid);
        let (before, dependents) = match known {
            Some(entry) => (entry.node.header, entry.dependents),
            None => (None, BTreeSet::new()),
        };
        let old: &[OwnerRef] = before.as_ref().map_or(&[], |before| &before.owners);
        link(&mut nodes, header, old, &mut wake);
        let node = Node {
            resource: Some(resource.clone()),
            key: header.key.clone(),
            claimed: None,
            header: Some(header.clone()),
        };
        let new_owners = before.is_none_or(|before| before.owners != header.owners);
        if node.waits_for_orphaning() {
            wake.push(Key::Orphan(header.uid.clone()));
        } else if node.waits_for_dependents() {
            wake.extend(dependents.iter().cloned().map(Key::Delete));
            wake.push(Key::Delete(header.uid.clone()));
        } else if new_owners && !owners_stay(&nodes, header) {
            wake.push(Key::Delete(header.uid.clone()));
        }
        nodes.insert(header.uid.clone(), Entry { node, dependents });
        wake
    }

    /// An object is gone; its dependents are to be looked at, and owners that waited for it.
    pub(super) fn gone(&self, uid: &Uid) -> Vec<Key> {
        let mut nodes = self.lock();
        let Some(entry) = nodes.remove(uid) else {
            return Vec::new();
        };
        let mut wake: Vec<Key> = entry.dependents.into_iter().map(Key::Delete).collect();
        for owner in entry.node.owners() {
            unlink(&mut nodes, &owner.uid, uid, &mut wake);
        }
        wake
    }

    /// Everything of a resource is gone, because the resource is.
    pub(super) fn resource_gone(&self, resource: &ApiResource) -> Vec<Key> {
        let uids: Vec<Uid> = {
            let nodes = self.lock();
            let of = nodes
                .iter()
                .filter(|(_, entry)| entry.node.resource.as_deref() == Some(resource));
            of.map(|(uid, _)| uid.clone()).collect()
        };
        uids.iter().flat_map(|uid| self.gone(uid)).collect()
    }

    /// How many objects it knows.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }
}

/// Whether every owner is there, is not on its way out and is one this object may have.
fn owners_stay(nodes: &Nodes, header: &ObjectHeader) -> bool {
    header.owners.iter().all(|owner| {
        let node = nodes.get(&owner.uid).map(|entry| &entry.node);
        node.is_some_and(|node| {
            let within_reach = node.key.namespace.is_empty() || node.key.namespace == header.key.namespace;
            within_reach && node.header.is_some() && !node.is_deleting()
        })
    })
}

/// Makes the object a dependent of its owners and of no one else. An owner never seen gets a node that only a
/// reference speaks for, and is to be looked at.
fn link(nodes: &mut Nodes, header: &Arc<ObjectHeader>, old: &[OwnerRef], wake: &mut Vec<Key>) {
    for owner in &header.owners {
        let entry = nodes.entry(owner.uid.clone()).or_insert_with(|| {
            wake.push(Key::Delete(owner.uid.clone()));
            let node = Node {
                resource: None,
                key: ObjectKey::new(&header.key.namespace, &*owner.name),
                claimed: Some(owner.clone()),
                header: None,
            };
            Entry {
                node,
                dependents: BTreeSet::new(),
            }
        });
        entry.dependents.insert(header.uid.clone());
        let unblocked = !owner.block_owner_deletion
            && old
                .iter()
                .any(|old| old.uid == owner.uid && old.block_owner_deletion);
        if unblocked && entry.node.waits_for_dependents() {
            wake.push(Key::Delete(owner.uid.clone()));
        }
    }
    for left in old
        .iter()
        .filter(|old| !header.owners.iter().any(|owner| owner.uid == old.uid))
    {
        unlink(nodes, &left.uid, &header.uid, wake);
    }
}

fn unlink(nodes: &mut Nodes, owner: &Uid, dependent: &Uid, wake: &mut Vec<Key>) {
    let Some(entry) = nodes.get_mut(owner) else {
        return;
    };
    entry.dependents.remove(dependent);
    if entry.node.waits_for_dependents() {
        wake.push(Key::Delete(owner.clone()));
    } else if entry.node.header.is_none() && entry.dependents.is_empty() {
        // Nothing speaks for it any more.
        nodes.remove(owner);
    }
}
