//! Looks at one object of the graph against the live API, and acts.
//!
//! A look asks for no more than so many objects, and goes on from there in its next turn: namespaces take turns, so that
//! one with thousands of invented owners does not keep the others waiting.

use super::absent_owners::AbsentOwners;
use super::graph::{FOREGROUND, Graph, Node, ORPHAN};
use super::monitors::Monitors;
use super::standing::Standing;
use futures::future::BoxFuture;
use machinery_client::object::parse_header;
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, Patch, Precondition, Propagation};
use machinery_meta::{ObjectHeader, ObjectKey, OwnerRef, Revision, Uid};
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What to look at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// What is served.
    Discovery,
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

impl Key {
    /// Namespaces take turns.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Discovery => "",
            Self::Delete(object) | Self::Orphan(object) => &object.namespace,
        }
    }
}

/// How soon an object is looked at again while stores are still being filled.
const STORES_FILLING: Duration = Duration::from_millis(200);
/// Objects that a look asks for.
pub(super) const LOOKUPS_PER_TURN: usize = 32;
/// A new CRD is served a moment after it says so.
const DISCOVERY_AGAIN: Duration = Duration::from_secs(2);

pub(super) struct Collector {
    pub(super) client: Client,
    pub(super) runtime: Runtime,
    pub(super) graph: Arc<Graph>,
    pub(super) monitors: Arc<Monitors>,
    pub(super) absent: AbsentOwners,
    /// Looks that go on in their next turn.
    pub(super) begun: Begun,
}

/// Findings of looks that go on, by uid. A look that is done or finds its object gone takes its own away.
#[derive(Debug, Default)]
pub(super) struct Begun(Mutex<BTreeMap<Uid, Progress>>);

#[derive(Debug)]
pub(super) enum Progress {
    /// Absent owners of this version of the object.
    Owners(Revision, Vec<bool>),
    /// The last dependent that was set free.
    Orphaned(Uid),
}

impl Begun {
    fn take(&self, uid: &Uid) -> Option<Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid)
    }

    fn put(&self, uid: &Uid, progress: Progress) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(uid.clone(), progress);
    }
}

/// The live state of an object.
type Live = (ObjectHeader, Revision);

impl Reconciler for Collector {
    type Key = Key;

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            if matches!(key, Key::Delete(_) | Key::Orphan(_)) && !self.monitors.have_synced() {
                return Ok(Outcome::RequeueAfter(STORES_FILLING));
            }
            match key {
                Key::Discovery => self.discover().await,
                Key::Delete(object) => self.look(&object.uid).await,
                Key::Orphan(object) => self.orphan(&object.uid).await,
            }
        })
    }
}

impl Collector {
    async fn discover(&self) -> Result<Outcome, ReconcileError> {
        let discovered = self
            .client
            .discover()
            .await
            .map_err(ReconcileError::doing("asking what is served"))?;
        self.monitors.serve(&discovered);
        // Once more after a change, for kinds that were not served yet; then quiet until the next.
        self.runtime.sleep(DISCOVERY_AGAIN).await;
        let discovered = self
            .client
            .discover()
            .await
            .map_err(ReconcileError::doing("asking what is served"))?;
        self.monitors.serve(&discovered);
        Ok(Outcome::Done)
    }

    async fn look(&self, uid: &Uid) -> Result<Outcome, ReconcileError> {
        let begun = self.begun.take(uid);
        let Some(node) = self.graph.get(uid) else {
            return Ok(Outcome::Done);
        };
        if node.is_deleting() && !node.waits_for_dependents() {
            return Ok(Outcome::Done);
        }
        let live = self.live(&node.resource, &node.header.key).await;
        let live = live?.filter(|(header, _)| header.uid == *uid);
        let Some((header, revision)) = live else {
            // The store will say so, or cannot.
            self.monitors.wake(self.graph.gone(uid));
            return Ok(Outcome::Done);
        };
        if node.waits_for_dependents() {
            return self.foreground(uid, &node.resource, &header, revision).await;
        }
        if header.owners.is_empty() || header.is_deleting() {
            return Ok(Outcome::Done);
        }
        let absent = match begun {
            Some(Progress::Owners(of, absent)) if of == revision => absent,
            _ => vec![false; header.owners.len()],
        };
        self.judge(&node.resource, &header, revision, absent).await
    }

    pub(super) async fn live(
        &self,
        resource: &ApiResource,
        key: &ObjectKey,
    ) -> Result<Option<Live>, ReconcileError> {
        let namespace = if resource.namespaced {
            key.namespace.as_str()
        } else {
            ""
        };
        match self
            .client
            .get(resource, &ObjectKey::new(namespace, &key.name))
            .await
        {
            Ok(body) => parse_header(&body)
                .map(Some)
                .map_err(|error| ReconcileError::Unusable(error.to_string())),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(ReconcileError::doing("reading an object")(error)),
        }
    }

    /// An object with owners: keep it while one is solid, else delete it.
    async fn judge(
        &self,
        resource: &ApiResource,
        header: &ObjectHeader,
        revision: Revision,
        mut absent: Vec<bool>,
    ) -> Result<Outcome, ReconcileError> {
        let found = match self.standings(header, &mut absent).await {
            Ok(Some(found)) => found,
            unfinished => {
                self.begun.put(&header.uid, Progress::Owners(revision, absent));
                return unfinished.map(|_| Outcome::RequeueAfter(Duration::ZERO));
            }
        };
        if found.has(Standing::Solid) {
            if !found.all(Standing::Solid) {
                let kept = found.owners(header, Standing::Solid);
                self.write_owners(resource, header, revision, &kept).await?;
            }
            return Ok(match found.unseen {
                true => Outcome::RequeueAfter(STORES_FILLING),
                false => Outcome::Done,
            });
        }
        let mut propagation = propagation_of(header);
        let waits = found.has(Standing::Waiting);
        let dependents = match waits {
            true => self.graph.dependents(&header.uid),
            false => Vec::new(),
        };
        if !dependents.is_empty() {
            if dependents.iter().any(Node::waits_for_dependents) {
                // Two that wait for each other: this one stops blocking its owners.
                let open = header.owners.iter().cloned();
                let open: Vec<_> = open
                    .map(|owner| OwnerRef {
                        block_owner_deletion: false,
                        ..owner
                    })
                    .collect();
                self.write_owners(resource, header, revision, &open).await?;
                return Ok(Outcome::RequeueAfter(STORES_FILLING));
            }
            propagation = Propagation::Foreground;
        }
        self.delete(resource, header, revision, propagation).await
    }

    /// An object that waits for its dependents: lets it go once none blocks it.
    async fn foreground(
        &self,
        uid: &Uid,
        resource: &ApiResource,
        header: &ObjectHeader,
        revision: Revision,
    ) -> Result<Outcome, ReconcileError> {
        let dependents = self.graph.dependents(uid);
        let blocking: Vec<_> = dependents.into_iter().filter(|own| own.blocks(uid)).collect();
        if blocking.is_empty() {
            return self
                .remove_finalizer(resource, header, revision, FOREGROUND)
                .await;
        }
        let waiting = blocking.iter().filter(|own| !own.is_deleting());
        self.monitors
            .wake(waiting.map(|own| Key::Delete(own.object())).collect());
        Ok(Outcome::Done)
    }

    /// Sets the dependents free, then lets the object go.
    async fn orphan(&self, uid: &Uid) -> Result<Outcome, ReconcileError> {
        let begun = self.begun.take(uid);
        let Some(node) = self.graph.get(uid) else {
            return Ok(Outcome::Done);
        };
        let mut last = match begun {
            Some(Progress::Orphaned(last)) => Some(last),
            _ => None,
        };
        let dependents = self.graph.dependents_after(uid, last.as_ref(), LOOKUPS_PER_TURN);
        let is_done = dependents.len() < LOOKUPS_PER_TURN;
        let mut failed = None;
        for dependent in dependents {
            if let Err(error) = self.set_free(uid, &dependent).await {
                failed = Some(error);
                break;
            }
            last = Some(dependent.header.uid.clone());
        }
        if failed.is_some() || !is_done {
            if let Some(last) = last {
                self.begun.put(uid, Progress::Orphaned(last));
            }
            return failed.map_or(Ok(Outcome::RequeueAfter(Duration::ZERO)), Err);
        }
        let live = self.live(&node.resource, &node.header.key).await?;
        match live.filter(|(header, _)| header.uid == *uid) {
            Some((header, revision)) => {
                self.remove_finalizer(&node.resource, &header, revision, ORPHAN)
                    .await
            }
            None => Ok(Outcome::Done),
        }
    }

    /// Takes the owner from a dependent's references.
    async fn set_free(&self, owner: &Uid, dependent: &Node) -> Result<(), ReconcileError> {
        let live = self.live(&dependent.resource, &dependent.header.key).await?;
        let Some((header, revision)) = live.filter(|(header, _)| header.uid == dependent.header.uid) else {
            return Ok(());
        };
        let others = header.owners.iter().filter(|own| own.uid != *owner);
        let kept: Vec<_> = others.cloned().collect();
        if kept.len() == header.owners.len() {
            return Ok(());
        }
        self.write_owners(&dependent.resource, &header, revision, &kept)
            .await
    }

    async fn remove_finalizer(
        &self,
        resource: &ApiResource,
        header: &ObjectHeader,
        revision: Revision,
        finalizer: &str,
    ) -> Result<Outcome, ReconcileError> {
        let kept: Vec<&str> = header
            .finalizers
            .iter()
            .map(|own| &**own)
            .filter(|own| *own != finalizer)
            .collect();
        if kept.len() == header.finalizers.len() {
            return Ok(Outcome::Done);
        }
        let body = json!({"metadata": {"resourceVersion": revision.to_string(), "finalizers": kept}});
        let patched = self
            .client
            .patch(resource, &header.key, "", &Patch::Merge, &body)
            .await;
        done(patched.map(drop), "removing a finalizer")
    }

    async fn write_owners(
        &self,
        resource: &ApiResource,
        header: &ObjectHeader,
        revision: Revision,
        owners: &[OwnerRef],
    ) -> Result<(), ReconcileError> {
        let owners: Vec<_> = owners.iter().map(owner_json).collect();
        let body = json!({"metadata": {
            "uid": header.uid.0, "resourceVersion": revision.to_string(), "ownerReferences": owners}});
        let patched = self
            .client
            .patch(resource, &header.key, "", &Patch::Merge, &body)
            .await;
        done(patched.map(drop), "writing owner references").map(drop)
    }

    async fn delete(
        &self,
        resource: &ApiResource,
        header: &ObjectHeader,
        revision: Revision,
        propagation: Propagation,
    ) -> Result<Outcome, ReconcileError> {
        let precondition = Precondition {
            uid: Some(header.uid.clone()),
            revision: Some(revision),
        };
        let options = DeleteOptions {
            precondition,
            propagation: Some(propagation),
            grace_period_seconds: None,
        };
        done(
            self.client
                .delete(resource, &header.key, &options)
                .await
                .map(drop),
            "deleting what nobody owns",
        )
    }
}

/// What the object itself asked for by its finalizers.
fn propagation_of(header: &ObjectHeader) -> Propagation {
    let has = |name: &str| header.finalizers.iter().any(|own| &**own == name);
    if has(ORPHAN) {
        Propagation::Orphan
    } else if has(FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    }
}

fn owner_json(owner: &OwnerRef) -> serde_json::Value {
    let mut out = json!({
        "apiVersion": &*owner.api_version, "kind": &*owner.kind, "name": &*owner.name, "uid": owner.uid.0,
    });
    if owner.controller {
        out["controller"] = json!(true);
    }
    if owner.block_owner_deletion {
        out["blockOwnerDeletion"] = json!(true);
    }
    out
}

/// Gone is as good as done; a conflict is tried again.
fn done(result: Result<(), ClientError>, doing: &'static str) -> Result<Outcome, ReconcileError> {
    match result {
        Err(error) if !error.is_not_found() => Err(ReconcileError::doing(doing)(error)),
        _ => Ok(Outcome::Done),
    }
}
