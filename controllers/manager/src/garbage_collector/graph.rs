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
    nodes: Mutex<BTreeMap<Uid, Node>>,
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
    pub(super) dependents: BTreeSet<Uid>,
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

type Nodes = BTreeMap<Uid, Node>;

impl Graph {
    fn lock(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, uid: &Uid) -> Option<Node> {
        self.lock().get(uid).cloned()
    }

    /// The dependents of an object, as they are.
    pub(super) fn dependents(&self, uid: &Uid) -> Vec<(Uid, Node)> {
        let nodes = self.lock();
        let all = nodes.get(uid).into_iter().flat_map(|node| &node.dependents);
        all.filter_map(|uid| Some((uid.clone(), nodes.get(uid)?.clone())))
            .collect()
    }

    /// An object was seen; answers what is to be looked at.
    pub(super) fn seen(&self, resource: &Arc<ApiResource>, header: &Arc<ObjectHeader>) -> Vec<Key> {
        let mut nodes = self.lock();
        let mut wake = Vec::new();
        let known = nodes.remove(&header.uid);
        let (before, dependents) = match known {
            Some(node) => (node.header.clone(), node.dependents),
            None => (None, BTreeSet::new()),
        };
        let old: &[OwnerRef] = before.as_ref().map_or(&[], |before| &before.owners);
        link(&mut nodes, header, old, &mut wake);
        let node = Node {
            resource: Some(resource.clone()),
            key: header.key.clone(),
            claimed: None,
            header: Some(header.clone()),
            dependents,
        };
        if node.waits_for_orphaning() {
            wake.push(Key::Orphan(header.uid.clone()));
        } else if node.waits_for_dependents() {
            wake.extend(node.dependents.iter().cloned().map(Key::Delete));
            wake.push(Key::Delete(header.uid.clone()));
        } else if !header.owners.is_empty() && before.is_none_or(|before| before.owners != header.owners) {
            wake.push(Key::Delete(header.uid.clone()));
        }
        nodes.insert(header.uid.clone(), node);
        wake
    }

    /// An object is gone; its dependents are to be looked at, and owners that waited for it.
    pub(super) fn gone(&self, uid: &Uid) -> Vec<Key> {
        let mut nodes = self.lock();
        let Some(node) = nodes.remove(uid) else {
            return Vec::new();
        };
        let mut wake: Vec<Key> = node.dependents.iter().cloned().map(Key::Delete).collect();
        for owner in node.owners() {
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
                .filter(|(_, node)| node.resource.as_deref() == Some(resource));
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

/// Makes the object a dependent of its owners and of no one else. An owner never seen gets a node that only a
/// reference speaks for, and is to be looked at.
fn link(nodes: &mut Nodes, header: &Arc<ObjectHeader>, old: &[OwnerRef], wake: &mut Vec<Key>) {
    for owner in &header.owners {
        let node = nodes.entry(owner.uid.clone()).or_insert_with(|| {
            wake.push(Key::Delete(owner.uid.clone()));
            Node {
                resource: None,
                key: ObjectKey::new(&header.key.namespace, &*owner.name),
                claimed: Some(owner.clone()),
                header: None,
                dependents: BTreeSet::new(),
            }
        });
        node.dependents.insert(header.uid.clone());
        let unblocked = !owner.block_owner_deletion
            && old
                .iter()
                .any(|old| old.uid == owner.uid && old.block_owner_deletion);
        if unblocked && node.waits_for_dependents() {
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
    let Some(node) = nodes.get_mut(owner) else { return };
    node.dependents.remove(dependent);
    if node.waits_for_dependents() {
        wake.push(Key::Delete(owner.clone()));
    } else if node.header.is_none() && node.dependents.is_empty() {
        // Nothing speaks for it any more.
        nodes.remove(owner);
    }
}
