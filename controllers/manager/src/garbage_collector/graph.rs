//! Who owns whom, by uid. Pure but for its lock; changes answer which objects are to be looked at.

use super::reconcile::{Key, Object};
use super::uids::ShortUid;
use machinery_client::ApiResource;
use machinery_meta::{ObjectHeader, OwnerRef, Uid};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
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

#[derive(Debug, Default)]
struct Nodes {
    seen: BTreeMap<ShortUid, Entry>,
    /// Owners that references speak of and that were never seen, with those who claim them. A client may invent
    /// thousands with one object, so that there is nothing more of each.
    claimed: BTreeMap<ShortUid, Claimants>,
}

/// What the graph keeps of an object: there may be thousands of dependents, so who asks for the node gets it without.
#[derive(Debug)]
struct Entry {
    node: Node,
    dependents: BTreeSet<ShortUid>,
}

/// Those who claim an owner that was never seen: one, where it is invented.
#[derive(Debug)]
enum Claimants {
    One(ShortUid),
    Many(BTreeSet<ShortUid>),
}

/// An object.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) resource: Arc<ApiResource>,
    pub(super) header: Arc<ObjectHeader>,
}

impl Claimants {
    fn add(&mut self, uid: ShortUid) {
        match self {
            Self::One(own) if *own == uid => {}
            Self::One(own) => *self = Self::Many([own.clone(), uid].into()),
            Self::Many(all) => {
                all.insert(uid);
            }
        }
    }

    /// Reports whether none is left.
    fn remove(&mut self, uid: &ShortUid) -> bool {
        match self {
            Self::One(own) => own == uid,
            Self::Many(all) => {
                all.remove(uid);
                all.is_empty()
            }
        }
    }

    fn into_set(self) -> BTreeSet<ShortUid> {
        match self {
            Self::One(own) => [own].into(),
            Self::Many(all) => all,
        }
    }
}

impl Node {
    pub(super) fn owners(&self) -> &[OwnerRef] {
        &self.header.owners
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.header.is_deleting()
    }

    /// It waits for its dependents to go.
    pub(super) fn waits_for_dependents(&self) -> bool {
        self.is_deleting() && self.has_finalizer(FOREGROUND)
    }

    fn waits_for_orphaning(&self) -> bool {
        self.is_deleting() && self.has_finalizer(ORPHAN)
    }

    fn has_finalizer(&self, name: &str) -> bool {
        self.header.finalizers.iter().any(|own| &**own == name)
    }

    /// Whether this object's reference to `owner` makes the owner's foreground deletion wait.
    pub(super) fn blocks(&self, owner: &Uid) -> bool {
        self.owners()
            .iter()
            .any(|own| own.uid == *owner && own.block_owner_deletion)
    }

    pub(super) fn object(&self) -> Object {
        Object {
            namespace: self.header.key.namespace.clone(),
            uid: self.header.uid.clone(),
        }
    }

    fn look(&self) -> Key {
        Key::Delete(self.object())
    }
}

impl Nodes {
    /// Reports whether dependents are to be looked at, of those that are known.
    fn looks<'a>(&'a self, dependents: &'a BTreeSet<ShortUid>) -> impl Iterator<Item = Key> + 'a {
        let entries = dependents.iter().filter_map(|uid| self.seen.get(uid));
        entries.map(|entry| entry.node.look())
    }
}

impl Graph {
    fn lock(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, uid: &Uid) -> Option<Node> {
        self.lock().seen.get(&uid.into()).map(|entry| entry.node.clone())
    }

    /// The dependents of an object, as they are.
    pub(super) fn dependents(&self, uid: &Uid) -> Vec<Node> {
        self.dependents_after(uid, None, usize::MAX)
    }

    /// At most so many of the dependents of an object, those behind one of them.
    pub(super) fn dependents_after(&self, uid: &Uid, after: Option<&Uid>, most: usize) -> Vec<Node> {
        let nodes = self.lock();
        let Some(entry) = nodes.seen.get(&uid.into()) else {
            return Vec::new();
        };
        let from = after.map_or(Bound::Unbounded, |uid| Bound::Excluded(ShortUid::from(uid)));
        let behind = entry.dependents.range((from, Bound::Unbounded));
        let known = behind.filter_map(|uid| Some(nodes.seen.get(uid)?.node.clone()));
        known.take(most).collect()
    }

    /// An object was seen; answers what is to be looked at. One whose owners are all there and staying is not: that it
    /// is to be will be known from the owner.
    pub(super) fn seen(&self, resource: &Arc<ApiResource>, header: &Arc<ObjectHeader>) -> Vec<Key> {
        let mut nodes = self.lock();
        let mut wake = Vec::new();
        let uid = ShortUid::from(&header.uid);
        let (before, dependents) = match nodes.seen.remove(&uid) {
            Some(entry) => (Some(entry.node.header), entry.dependents),
            None => (
                None,
                nodes
                    .claimed
                    .remove(&uid)
                    .map_or_else(BTreeSet::new, Claimants::into_set),
            ),
        };
        let old: &[OwnerRef] = before.as_ref().map_or(&[], |before| &before.owners);
        link(&mut nodes, header, old, &mut wake);
        let node = Node {
            resource: resource.clone(),
            header: header.clone(),
        };
        let new_owners = before
            .as_ref()
            .is_none_or(|before| before.owners != header.owners);
        if node.waits_for_orphaning() {
            wake.push(Key::Orphan(node.object()));
        } else if node.waits_for_dependents() {
            wake.extend(nodes.looks(&dependents));
            wake.push(node.look());
        } else if new_owners && !owners_stay(&nodes, header) {
            wake.push(node.look());
        }
        nodes.seen.insert(uid, Entry { node, dependents });
        wake
    }

    /// An object is gone; its dependents are to be looked at, and owners that waited for it.
    pub(super) fn gone(&self, uid: &Uid) -> Vec<Key> {
        let mut nodes = self.lock();
        let short = ShortUid::from(uid);
        let Some(entry) = nodes.seen.remove(&short) else {
            return Vec::new();
        };
        let mut wake: Vec<Key> = nodes.looks(&entry.dependents).collect();
        for owner in entry.node.owners() {
            unlink(&mut nodes, &owner.uid, &short, &mut wake);
        }
        // Those who go on claiming it do so without its being there.
        for dependent in entry.dependents {
            claim(&mut nodes, short.clone(), dependent);
        }
        wake
    }

    /// Everything of a resource is gone, because the resource is.
    pub(super) fn resource_gone(&self, resource: &ApiResource) -> Vec<Key> {
        let uids: Vec<Uid> = {
            let nodes = self.lock();
            let all = nodes.seen.values().map(|entry| &entry.node);
            let of = all.filter(|node| *node.resource == *resource);
            of.map(|node| node.header.uid.clone()).collect()
        };
        uids.iter().flat_map(|uid| self.gone(uid)).collect()
    }

    /// Returns the number of objects it knows, those included that are only claimed.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let nodes = self.lock();
        nodes.seen.len() + nodes.claimed.len()
    }
}

/// Whether every owner is there, is not on its way out and is one this object may have.
fn owners_stay(nodes: &Nodes, header: &ObjectHeader) -> bool {
    header.owners.iter().all(|owner| {
        let node = nodes.seen.get(&(&owner.uid).into()).map(|entry| &entry.node);
        node.is_some_and(|node| {
            let namespace = &node.header.key.namespace;
            let within_reach = namespace.is_empty() || *namespace == header.key.namespace;
            within_reach && !node.is_deleting()
        })
    })
}

fn claim(nodes: &mut Nodes, owner: ShortUid, dependent: ShortUid) {
    match nodes.claimed.get_mut(&owner) {
        Some(claimants) => claimants.add(dependent),
        None => {
            nodes.claimed.insert(owner, Claimants::One(dependent));
        }
    }
}

/// Makes the object a dependent of its owners and of no one else.
fn link(nodes: &mut Nodes, header: &Arc<ObjectHeader>, old: &[OwnerRef], wake: &mut Vec<Key>) {
    let uid = ShortUid::from(&header.uid);
    let blocked: BTreeSet<&Uid> = old
        .iter()
        .filter(|old| old.block_owner_deletion)
        .map(|old| &old.uid)
        .collect();
    for owner in &header.owners {
        let short = ShortUid::from(&owner.uid);
        let Some(entry) = nodes.seen.get_mut(&short) else {
            claim(nodes, short, uid.clone());
            continue;
        };
        entry.dependents.insert(uid.clone());
        let unblocked = !owner.block_owner_deletion && blocked.contains(&owner.uid);
        if unblocked && entry.node.waits_for_dependents() {
            wake.push(entry.node.look());
        }
    }
    if old.is_empty() {
        return;
    }
    let owners: BTreeSet<&Uid> = header.owners.iter().map(|owner| &owner.uid).collect();
    for left in old.iter().filter(|old| !owners.contains(&old.uid)) {
        unlink(nodes, &left.uid, &uid, wake);
    }
}

fn unlink(nodes: &mut Nodes, owner: &Uid, dependent: &ShortUid, wake: &mut Vec<Key>) {
    let owner = ShortUid::from(owner);
    if let Some(entry) = nodes.seen.get_mut(&owner) {
        entry.dependents.remove(dependent);
        if entry.node.waits_for_dependents() {
            wake.push(entry.node.look());
        }
    } else if nodes
        .claimed
        .get_mut(&owner)
        .is_some_and(|own| own.remove(dependent))
    {
        // Nothing speaks for it any more.
        nodes.claimed.remove(&owner);
    }
}
