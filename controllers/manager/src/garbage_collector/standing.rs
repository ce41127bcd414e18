//! Standing of the owners of an object, by the graph, by what is known to be absent, and by the live API.

use super::graph::FOREGROUND;
use super::reconcile::{Collector, LOOKUPS_PER_TURN};
use machinery_meta::{ObjectHeader, ObjectKey, OwnerRef};
use machinery_reconcile::ReconcileError;

/// Standing of an owner: there, there but waiting for this dependent to go, or not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Solid,
    Waiting,
    Dangling,
}

/// Standing of all owners of an object, in its order.
#[derive(Debug, Default)]
pub(super) struct Standings {
    all: Vec<Standing>,
    /// One is there that the graph does not know yet.
    pub(super) unseen: bool,
}

impl Standings {
    pub(super) fn has(&self, standing: Standing) -> bool {
        self.all.contains(&standing)
    }

    pub(super) fn all(&self, standing: Standing) -> bool {
        self.all.iter().all(|own| *own == standing)
    }

    pub(super) fn owners(&self, header: &ObjectHeader, standing: Standing) -> Vec<OwnerRef> {
        let owners = header.owners.iter().zip(&self.all);
        let of = owners.filter(|(_, own)| **own == standing);
        of.map(|(owner, _)| owner.clone()).collect()
    }
}

impl Collector {
    /// Returns how all owners stand; nothing where this turn's lookups were not enough. Those that are absent are noted.
    pub(super) async fn standings(
        &self,
        header: &ObjectHeader,
        absent: &mut [bool],
    ) -> Result<Option<Standings>, ReconcileError> {
        let mut found = Standings::default();
        let mut lookups = 0;
        for (owner, absent) in header.owners.iter().zip(absent) {
            let known = match *absent {
                true => Some(Standing::Dangling),
                false => self.known_standing(owner, &header.key),
            };
            let standing = match known {
                Some(standing) => standing,
                None if lookups == LOOKUPS_PER_TURN => return Ok(None),
                None => {
                    lookups += 1;
                    self.live_standing(owner, &header.key, &mut found.unseen).await?
                }
            };
            *absent = standing == Standing::Dangling;
            found.all.push(standing);
        }
        Ok(Some(found))
    }

    /// Returns how an owner stands as far as the graph and what is known to be absent tell.
    fn known_standing(&self, owner: &OwnerRef, dependent: &ObjectKey) -> Option<Standing> {
        let Some(node) = self.graph.get(&owner.uid) else {
            let absent = self.absent.has(owner, &dependent.namespace);
            return absent.then_some(Standing::Dangling);
        };
        // A namespaced owner of another namespace is no owner.
        let namespace = &node.header.key.namespace;
        if !namespace.is_empty() && *namespace != dependent.namespace {
            return Some(Standing::Dangling);
        }
        Some(match node.waits_for_dependents() && owner.block_owner_deletion {
            true => Standing::Waiting,
            false => Standing::Solid,
        })
    }

    /// Returns how an owner stands that the graph does not know. `unseen` is set where it is there and will be known.
    async fn live_standing(
        &self,
        owner: &OwnerRef,
        dependent: &ObjectKey,
        unseen: &mut bool,
    ) -> Result<Standing, ReconcileError> {
        let Some(resource) = self.monitors.resource_of(owner) else {
            // Its kind may be served later; upstream waits for that too.
            return Err(ReconcileError::Unusable(format!(
                "kind {} of an owner is not served",
                owner.kind
            )));
        };
        if resource.namespaced && dependent.namespace.is_empty() {
            return Ok(Standing::Dangling);
        }
        let key = ObjectKey::new(&dependent.namespace, &*owner.name);
        let live = self.live(&resource, &key).await?;
        let Some((live, _)) = live.filter(|(header, _)| header.uid == owner.uid) else {
            self.absent.add(owner, &dependent.namespace);
            return Ok(Standing::Dangling);
        };
        // It may be gone again before its store has it, so that nobody would say so.
        *unseen |= self.monitors.watches(&resource);
        let waits = live.is_deleting() && live.finalizers.iter().any(|own| &**own == FOREGROUND);
        Ok(match waits && owner.block_owner_deletion {
            true => Standing::Waiting,
            false => Standing::Solid,
        })
    }
}
