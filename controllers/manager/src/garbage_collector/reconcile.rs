//! Looks at one object of the graph against the live API, and acts.

use super::graph::{FOREGROUND, Graph, Node, ORPHAN};
use super::monitors::Monitors;
use futures::future::BoxFuture;
use machinery_client::object::parse_header;
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, Patch, Precondition, Propagation};
use machinery_meta::{ObjectHeader, ObjectKey, OwnerRef, Revision, Uid};
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// What to look at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// What is served.
    Discovery,
    /// Whether an object is to be deleted.
    Delete(Uid),
    /// Whose dependents are to be set free.
    Orphan(Uid),
}

/// How soon an object is looked at again while stores are still being filled.
const STORES_FILLING: Duration = Duration::from_millis(200);
/// A new CRD is served a moment after it says so.
const DISCOVERY_AGAIN: Duration = Duration::from_secs(2);

pub(super) struct Collector {
    pub(super) client: Client,
    pub(super) runtime: Runtime,
    pub(super) graph: Arc<Graph>,
    pub(super) monitors: Arc<Monitors>,
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
                Key::Delete(uid) => self.look(uid).await,
                Key::Orphan(uid) => self.orphan(uid).await,
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
        let Some(node) = self.graph.get(uid) else {
            return Ok(Outcome::Done);
        };
        if node.is_deleting() && !node.waits_for_dependents() {
            return Ok(Outcome::Done);
        }
        let Some(resource) = self.resource(&node) else {
            // Its kind may be served later; upstream waits for that too.
            return Err(ReconcileError::Unusable(format!(
                "the kind of owner {} is not served",
                node.key
            )));
        };
        let live = self
            .live(&resource, &node.key)
            .await?
            .filter(|(header, _)| header.uid == *uid);
        let Some((header, revision)) = live else {
            // Gone, or never there: the store will say so or cannot.
            self.forget(uid);
            return Ok(Outcome::Done);
        };
        if node.waits_for_dependents() {
            return self.foreground(uid, &resource, &header, revision).await;
        }
        if header.owners.is_empty() || header.is_deleting() {
            return Ok(Outcome::Done);
        }
        self.judge(&resource, &header, revision).await
    }

    fn forget(&self, uid: &Uid) {
        self.monitors.wake(self.graph.gone(uid));
    }

    fn resource(&self, node: &Node) -> Option<Arc<ApiResource>> {
        let claimed = || self.monitors.resource_of(node.claimed.as_ref()?);
        node.resource.clone().or_else(claimed)
    }

    async fn live(&self, resource: &ApiResource, key: &ObjectKey) -> Result<Option<Live>, ReconcileError> {
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
    ) -> Result<Outcome, ReconcileError> {
        let (mut solid, mut waiting, mut dangling) = (0, Vec::new(), Vec::new());
        for owner in &header.owners {
            match self.standing(owner, &header.key).await? {
                Standing::Solid => solid += 1,
                Standing::Waiting => waiting.push(owner.uid.clone()),
                Standing::Dangling => dangling.push(owner.uid.clone()),
            }
        }
        if solid > 0 {
            if !dangling.is_empty() || !waiting.is_empty() {
                let leave =
                    |owner: &&OwnerRef| !dangling.contains(&owner.uid) && !waiting.contains(&owner.uid);
                let kept: Vec<_> = header.owners.iter().filter(leave).cloned().collect();
                self.write_owners(resource, header, revision, &kept).await?;
            }
            return Ok(Outcome::Done);
        }
        let mut propagation = propagation_of(header);
        let dependents = self.graph.dependents(&header.uid);
        if !waiting.is_empty() && !dependents.is_empty() {
            if dependents
                .iter()
                .any(|(_, dependent)| dependent.waits_for_dependents())
            {
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

    /// How an owner stands: there, there but waiting for this dependent to go, or not there.
    async fn standing(&self, owner: &OwnerRef, dependent: &ObjectKey) -> Result<Standing, ReconcileError> {
        if let Some(node) = self.graph.get(&owner.uid).filter(|node| node.header.is_some()) {
            // A namespaced owner of another namespace is no owner.
            if !node.key.namespace.is_empty() && node.key.namespace != dependent.namespace {
                return Ok(Standing::Dangling);
            }
            let waiting = node.waits_for_dependents() && owner.block_owner_deletion;
            return Ok(if waiting {
                Standing::Waiting
            } else {
                Standing::Solid
            });
        }
        let Some(resource) = self.monitors.resource_of(owner) else {
            return Err(ReconcileError::Unusable(format!(
                "kind {} of an owner is not served",
                owner.kind
            )));
        };
        if resource.namespaced && dependent.namespace.is_empty() {
            return Ok(Standing::Dangling);
        }
        let key = ObjectKey::new(&dependent.namespace, &*owner.name);
        let live = self
            .live(&resource, &key)
            .await?
            .filter(|(header, _)| header.uid == owner.uid);
        Ok(match live {
            None => Standing::Dangling,
            Some((live, _)) => {
                let waits = live.is_deleting() && live.finalizers.iter().any(|own| &**own == FOREGROUND);
                if waits && owner.block_owner_deletion {
                    Standing::Waiting
                } else {
                    Standing::Solid
                }
            }
        })
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
        let blocking: Vec<_> = dependents
            .into_iter()
            .filter(|(_, own)| own.blocks(uid))
            .collect();
        if blocking.is_empty() {
            return self
                .remove_finalizer(resource, header, revision, FOREGROUND)
                .await;
        }
        let waiting = blocking.into_iter().filter(|(_, own)| !own.is_deleting());
        self.monitors
            .wake(waiting.map(|(uid, _)| Key::Delete(uid)).collect());
        Ok(Outcome::Done)
    }

    /// Sets the dependents free, then lets the object go.
    async fn orphan(&self, uid: &Uid) -> Result<Outcome, ReconcileError> {
        let Some(node) = self.graph.get(uid) else {
            return Ok(Outcome::Done);
        };
        for (own, dependent) in self.graph.dependents(uid) {
            let Some(resource) = &dependent.resource else {
                continue;
            };
            let live = self
                .live(resource, &dependent.key)
                .await?
                .filter(|(header, _)| header.uid == own);
            if let Some((header, revision)) = live {
                let kept: Vec<_> = header
                    .owners
                    .iter()
                    .filter(|owner| owner.uid != *uid)
                    .cloned()
                    .collect();
                self.write_owners(resource, &header, revision, &kept).await?;
            }
        }
        let Some(resource) = self.resource(&node) else {
            return Ok(Outcome::Done);
        };
        match self
            .live(&resource, &node.key)
            .await?
            .filter(|(header, _)| header.uid == *uid)
        {
            Some((header, revision)) => self.remove_finalizer(&resource, &header, revision, ORPHAN).await,
            None => Ok(Outcome::Done),
        }
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

enum Standing {
    Solid,
    Waiting,
    Dangling,
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
