//! Graph of owners and dependents, by uid. Pure but for its lock; a change returns its effects on others.
//!
//! References are text of tenants: an object is the owner that a reference means only where kind, name and namespace agree
//! with the uid. Objects out of reach (of another namespace) neither hold an owner nor are orphaned by it. API extensions say
//! what uids they like: one speaks for an object that no other store has, and gives way to the server.

use super::effects::{Effects, ForeignOwner};
use super::finalizers::{Waits, waits_for};
use super::keys::Key;
use super::node::{Node, Precedence};
use super::uids::ShortUid;
use machinery_client::{ApiResource, HeaderChange};
use machinery_meta::{ObjectHeader, OwnerRef, Uid};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The graph.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: Mutex<Nodes>,
}

#[derive(Debug, Default)]
struct Nodes {
    seen: BTreeMap<ShortUid, Entry>,
    /// Owners that references speak of and that were never seen, with their dependents. A client may invent
    /// thousands with one object, so that there is nothing more of each.
    claimed: BTreeMap<ShortUid, Claimants>,
}

/// The graph's entry for an object. There may be thousands of dependents, so lookups return the node without them.
#[derive(Debug)]
struct Entry {
    node: Node,
    dependents: BTreeSet<ShortUid>,
}

/// The dependents of an owner that was never seen: one, where it is invented.
#[derive(Debug)]
enum Claimants {
    One(ShortUid),
    Many(BTreeSet<ShortUid>),
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

impl Nodes {
    /// Takes out what is known of an object: its header, where it was seen, and those that claim it.
    fn take(&mut self, uid: &ShortUid) -> (Option<Arc<ObjectHeader>>, BTreeSet<ShortUid>) {
        if let Some(entry) = self.seen.remove(uid) {
            return (Some(entry.node.header), entry.dependents);
        }
        let claimants = self.claimed.remove(uid);
        (None, claimants.map_or_else(BTreeSet::new, Claimants::into_set))
    }

    /// Reports whether dependents are to be checked, of those that are known.
    fn dependent_keys<'a>(&'a self, dependents: &'a BTreeSet<ShortUid>) -> impl Iterator<Item = Key> + 'a {
        let entries = dependents.iter().filter_map(|uid| self.seen.get(uid));
        entries.map(|entry| entry.node.attempt_key())
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

    /// The next dependents of an object, at most so many, those behind one of them.
    pub(super) fn dependents_after(&self, uid: &Uid, after: Option<&Uid>, most: usize) -> Vec<Node> {
        let nodes = self.lock();
        let Some(entry) = nodes.seen.get(&uid.into()) else {
            return Vec::new();
        };
        let from = after.map_or(Bound::Unbounded, |uid| Bound::Excluded(ShortUid::from(uid)));
        let behind = entry.dependents.range((from, Bound::Unbounded));
        let known = behind.filter_map(|uid| nodes.seen.get(uid).map(|own| &own.node));
        let own = known.filter(|own| entry.node.reaches(&own.header.key.namespace));
        own.take(most).cloned().collect()
    }

    /// An object changed in its store.
    pub(super) fn changed(&self, resource: &Arc<ApiResource>, change: &HeaderChange<'_>) -> Effects {
        match (change.new, change.old) {
            (Some(new), _) => self.seen(Node {
                resource: resource.clone(),
                header: new.clone(),
                of_extension: change.of_extension,
            }),
            (None, Some(old)) => {
                let mut effects = self.gone_from(resource, &old.uid);
                if change.forgotten {
                    effects.gone = None;
                }
                effects
            }
            (None, None) => Effects::default(),
        }
    }

    /// An object was seen. One whose owners are all there and staying is not looked at: that it is to be will be known
    /// from the owner.
    pub(super) fn seen(&self, node: Node) -> Effects {
        let mut nodes = self.lock();
        let mut effects = Effects::default();
        let uid = ShortUid::from(&node.header.uid);
        let known = nodes.seen.get(&uid).map(|known| &known.node);
        match known.map_or(Precedence::Same, |known| node.precedence(known)) {
            Precedence::Same => {}
            Precedence::Lower => return effects,
            // The earlier object was an extension's, which may not name this uid.
            Precedence::Higher => remove(&mut nodes, &uid, &mut effects),
        }
        let header = &node.header;
        let (before, dependents) = nodes.take(&uid);
        let old: &[OwnerRef] = before.as_ref().map_or(&[], |before| &before.owners);
        link(&mut nodes, header, old, &mut effects.looks);
        if before.is_none() {
            misled(&nodes, &node, &dependents, &mut effects);
        }
        let new_owners = before.is_none() || *old != *header.owners;
        if new_owners {
            effects.foreign.extend(foreign_owner(&nodes, &node, old));
        }
        let waits = waits_for(header);
        // Once: an object that waits may be written often, and its dependents be many.
        let begins = before.as_ref().is_none_or(|before| waits_for(before) != waits);
        match waits {
            Some(Waits::Orphaning) if begins => effects.looks.push(Key::Orphan(node.object())),
            Some(Waits::Dependents) if begins => {
                effects.looks.extend(nodes.dependent_keys(&dependents));
                effects.looks.push(node.attempt_key());
            }
            None if new_owners && !owners_stay(&nodes, header) => effects.looks.push(node.attempt_key()),
            _ => {}
        }
        nodes.seen.insert(uid, Entry { node, dependents });
        effects
    }

    /// An object is gone; its dependents are to be checked, and owners that waited for it.
    pub(super) fn gone(&self, uid: &Uid) -> Effects {
        let mut effects = Effects::default();
        remove(&mut self.lock(), &ShortUid::from(uid), &mut effects);
        effects
    }

    /// An object is gone from the store of this resource, which is nothing to others that have its uid.
    fn gone_from(&self, resource: &ApiResource, uid: &Uid) -> Effects {
        let mut nodes = self.lock();
        let (short, mut effects) = (ShortUid::from(uid), Effects::default());
        let own = nodes.seen.get(&short);
        if own.is_some_and(|own| *own.node.resource == *resource) {
            remove(&mut nodes, &short, &mut effects);
        }
        effects
    }

    /// Everything of a resource is out of sight, because the resource is. Its objects may come back.
    pub(super) fn resource_gone(&self, resource: &ApiResource) -> Vec<Key> {
        let uids: Vec<Uid> = {
            let nodes = self.lock();
            let all = nodes.seen.values().map(|entry| &entry.node);
            let of = all.filter(|node| *node.resource == *resource);
            of.map(|node| node.header.uid.clone()).collect()
        };
        uids.iter().flat_map(|uid| self.gone(uid).looks).collect()
    }

    /// Returns the number of objects it knows, those included that are only claimed.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let nodes = self.lock();
        nodes.seen.len() + nodes.claimed.len()
    }
}

/// Takes an object out.
fn remove(nodes: &mut Nodes, short: &ShortUid, effects: &mut Effects) {
    let Some(entry) = nodes.seen.remove(short) else {
        return;
    };
    effects.looks.extend(nodes.dependent_keys(&entry.dependents));
    for owner in entry.node.owners() {
        unlink(nodes, &owner.uid, short, &mut effects.looks);
    }
    effects.gone = (!entry.dependents.is_empty()).then_some(entry.node);
    // Its dependents still refer to it, without its being there.
    for dependent in entry.dependents {
        claim(nodes, short.clone(), dependent);
    }
}

/// Reports whether every owner exists, is not being deleted and is the object that its reference names.
fn owners_stay(nodes: &Nodes, header: &ObjectHeader) -> bool {
    header.owners.iter().all(|owner| {
        let entry = nodes.seen.get(&(&owner.uid).into());
        entry.is_some_and(|own| own.node.is_meant(owner, &header.key.namespace) && !own.node.is_deleting())
    })
}

/// Returns the first new reference to an object that is there and not what the reference says, where that is one of
/// another namespace. Upstream looks no further either, so that an object is reported once, however many owners it names.
fn foreign_owner(nodes: &Nodes, node: &Node, old: &[OwnerRef]) -> Option<ForeignOwner> {
    let namespace = &node.header.key.namespace;
    let known: BTreeSet<&Uid> = old.iter().map(|own| &own.uid).collect();
    let added = node.owners().iter().filter(|own| !known.contains(&own.uid));
    let mut seen = added.filter_map(|own| Some((own, &nodes.seen.get(&(&own.uid).into())?.node)));
    let (reference, owner) = seen.find(|(own, owner)| !owner.is_meant(own, namespace))?;
    (!owner.reaches(namespace)).then(|| ForeignOwner {
        dependent: node.clone(),
        owner: reference.uid.clone(),
    })
}

/// Adds those that claimed an owner before it was seen, with a reference that it does not fit.
fn misled(nodes: &Nodes, owner: &Node, dependents: &BTreeSet<ShortUid>, effects: &mut Effects) {
    for dependent in dependents
        .iter()
        .filter_map(|uid| nodes.seen.get(uid).map(|own| &own.node))
    {
        let namespace = &dependent.header.key.namespace;
        let owners = dependent.owners().iter();
        let mut claims = owners.filter(|own| own.uid == owner.header.uid);
        if claims.all(|own| owner.is_meant(own, namespace)) {
            continue;
        }
        if !owner.reaches(namespace) {
            effects.foreign.push(ForeignOwner {
                dependent: dependent.clone(),
                owner: owner.header.uid.clone(),
            });
        }
        effects.looks.push(dependent.attempt_key());
    }
}

fn claim(nodes: &mut Nodes, owner: ShortUid, dependent: ShortUid) {
    match nodes.claimed.get_mut(&owner) {
        Some(claimants) => claimants.add(dependent),
        None => {
            nodes.claimed.insert(owner, Claimants::One(dependent));
        }
    }
}

/// Makes the object a dependent of exactly its owners.
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
            wake.push(entry.node.attempt_key());
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
            wake.push(entry.node.attempt_key());
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
