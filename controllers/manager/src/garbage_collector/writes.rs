//! Writes of the collector: owner references, finalizers and deletes, each only on what it was decided on.
//!
//! Every write names the revision that was read. Where others write the object all the time, and not what the decision
//! rests on, the write is tried again on the revision that is there, so that no object escapes by being written fast.

use super::finalizers::has_finalizer;
use super::live::Live;
use super::reconcile::Collector;
use machinery_client::{ApiResource, ClientError, DeleteOptions, Patch, Precondition, Propagation};
use machinery_meta::{ObjectHeader, Revision, Uid};
use machinery_reconcile::{Outcome, ReconcileError};
use serde_json::{Value, json};

/// Attempts of a patch in one look, as upstream's `retry.DefaultBackoff` has them.
const PATCH_ATTEMPTS: usize = 4;

impl Collector {
    /// Writes all owner references of an object; returns its revision then, nothing where the object is gone.
    pub(super) async fn write_owners(
        &self,
        resource: &ApiResource,
        live: &Live,
        owners: &[Value],
    ) -> Result<Option<Revision>, ReconcileError> {
        let header = &live.header;
        let mut revision = live.revision;
        let mut attempts = 1;
        loop {
            let body = json!({"metadata": {
                "uid": header.uid.0, "resourceVersion": revision.to_string(), "ownerReferences": owners}});
            match self.patch(resource, header, &body).await {
                Ok(now) => return Ok(Some(now)),
                Err(error) if error.is_not_found() => return Ok(None),
                Err(error) => {
                    let now = match error.is_conflict() && attempts < PATCH_ATTEMPTS {
                        true => self.live(resource, &header.key).await?,
                        false => None,
                    };
                    let same = now.filter(|now| now.is_still(header));
                    let Some(now) = same else {
                        return Err(ReconcileError::doing("writing owner references")(error));
                    };
                    (revision, attempts) = (now.revision, attempts + 1);
                }
            }
        }
    }

    async fn patch(
        &self,
        resource: &ApiResource,
        header: &ObjectHeader,
        body: &Value,
    ) -> Result<Revision, ClientError> {
        let client = &self.client;
        let answer = client.patch(resource, &header.key, "", &Patch::Merge, body);
        let live = Live::parse(answer.await?);
        Ok(live?.revision)
    }

    /// Takes a finalizer from an object.
    pub(super) async fn remove_finalizer(
        &self,
        resource: &ApiResource,
        mut live: Live,
        finalizer: &str,
    ) -> Result<Outcome, ReconcileError> {
        let uid = live.header.uid.clone();
        let mut attempts = 1;
        while has_finalizer(&live.header, finalizer) {
            let all = live.header.finalizers.iter().map(|own| &**own);
            let kept: Vec<&str> = all.filter(|own| *own != finalizer).collect();
            let body =
                json!({"metadata": {"resourceVersion": live.revision.to_string(), "finalizers": kept}});
            match self.patch(resource, &live.header, &body).await {
                Err(error) if error.is_conflict() && attempts < PATCH_ATTEMPTS => {
                    let now = self.live(resource, &live.header.key).await?;
                    let Some(now) = now.filter(|now| now.header.uid == uid) else {
                        break;
                    };
                    (live, attempts) = (now, attempts + 1);
                }
                Err(error) if !error.is_not_found() => {
                    return Err(ReconcileError::doing("removing a finalizer")(error));
                }
                _ => break,
            }
        }
        Ok(Outcome::Done)
    }

    /// Deletes an object without an owner, on the revision at which that was so.
    pub(super) async fn delete(
        &self,
        resource: &ApiResource,
        live: &Live,
        revision: Revision,
        propagation: Propagation,
    ) -> Result<Outcome, ReconcileError> {
        let header = &live.header;
        let mut sent = self
            .send_delete(resource, header, Some(revision), propagation)
            .await;
        if sent.as_ref().is_err_and(ClientError::is_conflict) {
            match self.live(resource, &header.key).await? {
                None => return Ok(self.lost(&header.uid)),
                // A client deletes it with options of its own.
                Some(now) if now.header.uid == header.uid && now.header.is_deleting() => {
                    return Ok(Outcome::Done);
                }
                Some(now) if now.revision != revision && now.is_still(header) => {
                    sent = self.send_delete(resource, header, None, propagation).await;
                }
                Some(_) => {}
            }
        }
        match sent {
            Ok(()) => Ok(Outcome::Done),
            Err(error) if error.is_not_found() => Ok(self.lost(&header.uid)),
            Err(error) => Err(ReconcileError::doing("deleting an object without owners")(error)),
        }
    }

    async fn send_delete(
        &self,
        resource: &ApiResource,
        header: &ObjectHeader,
        revision: Option<Revision>,
        propagation: Propagation,
    ) -> Result<(), ClientError> {
        let options = DeleteOptions {
            precondition: Precondition {
                uid: Some(header.uid.clone()),
                revision,
            },
            propagation: Some(propagation),
            grace_period_seconds: None,
        };
        let deleted = self.client.delete(resource, &header.key, &options);
        deleted.await.map(drop)
    }

    /// An object is not there at the live API: its store will say so, or cannot.
    pub(super) fn lost(&self, uid: &Uid) -> Outcome {
        self.dispatcher.carry_out(self.graph.gone(uid));
        Outcome::Done
    }
}
