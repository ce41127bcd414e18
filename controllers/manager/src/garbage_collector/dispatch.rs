//! Carries out effects of changes of the graph: objects wait for their look until the stores are filled, owners that are
//! gone are remembered, references into other namespaces become events.

use super::absent_owners::AbsentOwners;
use super::effects::{Effects, ForeignOwner};
use super::keys::Key;
use super::node::Node;
use machinery_reconcile::{EventRecorder, ObjectReference, WorkQueue};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The dispatcher.
pub(super) struct Dispatcher {
    queue: WorkQueue<Key>,
    /// Keys that come before the stores are filled; none from then on.
    held: Mutex<Option<BTreeSet<Key>>>,
    pub(super) absent: AbsentOwners,
    recorder: EventRecorder,
}

impl Dispatcher {
    pub(super) fn new(queue: WorkQueue<Key>, recorder: EventRecorder) -> Self {
        Self {
            queue,
            held: Mutex::new(Some(BTreeSet::new())),
            absent: AbsentOwners::default(),
            recorder,
        }
    }

    /// Carries out effects.
    pub(super) fn carry_out(&self, effects: Effects) {
        if let Some(owner) = &effects.gone {
            self.absent.add_node(owner);
        }
        effects.foreign.iter().for_each(|own| self.report(own));
        self.look_at(effects.looks);
    }

    /// Puts keys in line, or holds them until looks begin.
    pub(super) fn look_at(&self, keys: Vec<Key>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.as_mut() {
            Some(held) => held.extend(keys),
            None => keys.into_iter().for_each(|key| self.queue.add(key)),
        }
    }

    /// Lets looks begin, for good.
    pub(super) fn begin(&self) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        held.into_iter().flatten().for_each(|key| self.queue.add(key));
    }

    /// Records upstream's event of a reference into another namespace.
    fn report(&self, found: &ForeignOwner) {
        let Node { resource, header, .. } = &found.dependent;
        let Some(owner) = header.owners.iter().find(|own| own.uid == found.owner) else {
            return;
        };
        let namespace = &header.key.namespace;
        let message = format!(
            "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace {namespace:?}",
            owner.api_version, owner.kind, owner.name, owner.uid.0
        );
        let about = ObjectReference::new(resource, &header.key, &header.uid.0);
        self.recorder.warning(&about, "OwnerRefInvalidNamespace", message);
    }
}
