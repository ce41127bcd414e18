//! Standing of the owners of an object, by the graph, by what is known to be absent, and by the live API.

use super::finalizers::waits_for_dependents;
use super::reconcile::{Collector, LOOKUPS_PER_TURN};
use machinery_meta::{ObjectHeader, ObjectKey, OwnerRef, syntax};
use machinery_reconcile::ReconcileError;
use serde_json::Value;

/// Standing of an owner: there, there but waiting for its dependents to go, or not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnerState {
    Solid,
    Waiting,
    Dangling,
}

/// Standing of all owners of an object, in its order.
#[derive(Debug, Default)]
pub(super) struct OwnerStates {
    all: Vec<OwnerState>,
    /// One is there that the graph does not know yet.
    pub(super) unseen: bool,
}

/// Findings about the owners of an object.
#[derive(Debug)]
pub(super) enum Findings {
    All(OwnerStates),
    /// This turn's lookups were not enough.
    Unfinished,
    /// One is of a kind that is not served, or has a name that no object has: it may be served later.
    Unresolved,
    /// A cluster-scoped object names an owner of a namespaced kind, and not where: nothing is known, now or later.
    Invalid,
}

/// Finding about one owner.
enum Finding {
    Stands(OwnerState),
    Unresolved,
    Invalid,
}

impl OwnerStates {
    pub(super) fn has(&self, standing: OwnerState) -> bool {
        self.all.contains(&standing)
    }

    pub(super) fn all(&self, standing: OwnerState) -> bool {
        self.all.iter().all(|own| *own == standing)
    }

    /// Keeps the references to owners of this standing.
    pub(super) fn keep(&self, references: Vec<Value>, standing: OwnerState) -> Vec<Value> {
        let all = references.into_iter().zip(&self.all);
        let of = all.filter(|(_, own)| **own == standing);
        of.map(|(reference, _)| reference).collect()
    }
}

impl Collector {
    /// Returns how all owners stand. Those that are absent are noted.
    pub(super) async fn standings(
        &self,
        header: &ObjectHeader,
        absent: &mut [bool],
    ) -> Result<Findings, ReconcileError> {
        let mut found = OwnerStates::default();
        let mut lookups = 0;
        for (owner, absent) in header.owners.iter().zip(absent) {
            let known = match *absent {
                true => Some(OwnerState::Dangling),
                false => self.cached_owner_state(owner, &header.key),
            };
            let finding = match known {
                Some(standing) => Finding::Stands(standing),
                None if lookups == LOOKUPS_PER_TURN => return Ok(Findings::Unfinished),
                None => {
                    lookups += 1;
                    self.live_owner_state(owner, &header.key, &mut found.unseen)
                        .await?
                }
            };
            let standing = match finding {
                Finding::Stands(standing) => standing,
                Finding::Unresolved => return Ok(Findings::Unresolved),
                Finding::Invalid => return Ok(Findings::Invalid),
            };
            *absent = standing == OwnerState::Dangling;
            found.all.push(standing);
        }
        Ok(Findings::All(found))
    }

    /// Returns how an owner stands by the graph and by what is known to be absent. The uid alone decides nothing:
    /// what has it may be of another kind, name or namespace than the reference says.
    fn cached_owner_state(&self, owner: &OwnerRef, dependent: &ObjectKey) -> Option<OwnerState> {
        let namespace = &dependent.namespace;
        let node = self.graph.get(&owner.uid);
        match node.filter(|node| node.is_meant(owner, namespace)) {
            Some(node) if node.waits_for_dependents() => Some(OwnerState::Waiting),
            Some(_) => Some(OwnerState::Solid),
            None => {
                let absent = self.dispatcher.absent.has(owner, namespace);
                absent.then_some(OwnerState::Dangling)
            }
        }
    }

    /// Returns how an owner stands that the graph does not know so. `unseen` is set where it is there and
    /// the graph does not have it under any version.
    async fn live_owner_state(
        &self,
        owner: &OwnerRef,
        dependent: &ObjectKey,
        unseen: &mut bool,
    ) -> Result<Finding, ReconcileError> {
        let Some(resource) = self.monitors.resource_of(owner) else {
            return Ok(Finding::Unresolved);
        };
        if resource.namespaced && dependent.namespace.is_empty() {
            return Ok(Finding::Invalid);
        }
        if !syntax::path_segment_name(&owner.name).is_empty() {
            return Ok(Finding::Unresolved);
        }
        let namespace = if resource.namespaced {
            &*dependent.namespace
        } else {
            ""
        };
        let key = ObjectKey::new(namespace, &*owner.name);
        let live = self.live(&resource, &key).await?;
        let Some(live) = live.filter(|live| live.header.uid == owner.uid) else {
            self.dispatcher.absent.add(owner, namespace);
            return Ok(Finding::Stands(OwnerState::Dangling));
        };
        // It may be gone again before its store has it, or have no store, so that no event would say so.
        *unseen |= self.graph.get(&owner.uid).is_none();
        Ok(Finding::Stands(match waits_for_dependents(&live.header) {
            true => OwnerState::Waiting,
            false => OwnerState::Solid,
        }))
    }
}
