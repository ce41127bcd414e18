//! Claims, makes, numbers and deletes revisions, with upstream's preconditions.

use super::revisions;
use super::view::{RevisionRef, RevisionView};
use crate::heavy;
use crate::pod_control::{patch_owners, still_staying};
use crate::views::Selector;
use crate::views::template::OwnerReference;
use k8s_openapi::api::apps::v1::ControllerRevision;
use machinery_client::object::parse_header;
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, Informer, Patch, Projection};
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_reconcile::ReconcileError;
use machinery_runtime::Runtime;
use serde_json::json;
use std::collections::BTreeMap;

/// Acts on the revisions of one controller's objects.
#[derive(Debug, Clone)]
pub struct History {
    client: Client,
    runtime: Runtime,
    resource: ApiResource,
    revisions: Informer<RevisionView>,
}

/// A revision to be made.
#[derive(Debug)]
pub struct NewRevision<'a> {
    /// Its data, canonical.
    pub data: &'a str,
    /// Its number.
    pub number: i64,
    /// Number of times the name of a new revision was taken, by the owner's status.
    pub collisions: Option<i32>,
    /// Labels of the template.
    pub labels: BTreeMap<String, String>,
    /// The label that holds the hash.
    pub hash_label: &'a str,
    /// Annotations of the owner, where revisions have them.
    pub annotations: BTreeMap<String, String>,
}

/// Result of creating a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    /// It is there; the informer shows it soon.
    Done,
    /// Another has its name: the owner is to count a collision, and try again.
    NameTaken,
}

impl History {
    /// Acts with this client on what this informer shows.
    pub fn new(client: Client, runtime: Runtime, revisions: Informer<RevisionView>) -> Self {
        Self {
            client,
            runtime,
            resource: ApiResource::of::<ControllerRevision>(),
            revisions,
        }
    }

    /// The revisions whose controller is the owner, after adopting orphans that match and releasing what does not. An
    /// owner on its way out claims nothing.
    pub async fn claim(
        &self,
        kind: &ApiResource,
        owner: &ObjectHeader,
        selector: &Selector,
    ) -> Result<Vec<RevisionRef>, ReconcileError> {
        let claimed = self.revisions.controlled(&owner.key.namespace, &owner.uid);
        if owner.is_deleting() {
            return Ok(claimed);
        }
        let flow = || heavy::flow(&kind.plural, &owner.key.namespace);
        let (mut claimed, others) = heavy::split(&self.runtime, flow, selector, claimed).await;
        for other in &others {
            let release = json!({"$patch": "delete", "uid": owner.uid.0});
            self.patch_owner(other, &release).await?;
        }
        let orphans = self
            .revisions
            .by_index(RevisionView::ORPHANS, &owner.key.namespace);
        let (mut adopted, _) = heavy::split(&self.runtime, flow, selector, orphans).await;
        adopted.retain(|own| !own.header.is_deleting());
        if !adopted.is_empty() {
            still_staying(&self.client, kind, owner).await?;
        }
        let reference = json!(OwnerReference::controller(&kind.api_version(), &kind.kind, owner));
        for orphan in adopted {
            if self.patch_owner(&orphan, &reference).await? {
                claimed.push(orphan);
            }
        }
        revisions::sort(&mut claimed);
        Ok(claimed)
    }

    /// Returns false for one that is gone, or recreated under the name: the next event says more.
    async fn patch_owner(
        &self,
        own: &RevisionRef,
        reference: &serde_json::Value,
    ) -> Result<bool, ReconcileError> {
        match patch_owners(&self.client, &self.resource, &own.header, reference).await {
            Err(error) if error.is_not_found() || error.is_invalid() => Ok(false),
            Err(error) => Err(ReconcileError::doing("claiming a revision")(error)),
            Ok(()) => Ok(true),
        }
    }

    /// Makes a revision. One of the name that is the owner's, or will be, and has the same data, is it.
    pub async fn create(
        &self,
        kind: &ApiResource,
        owner: &ObjectHeader,
        selector: &Selector,
        new: NewRevision<'_>,
    ) -> Result<Creation, ClientError> {
        let hash = revisions::hash(new.data, new.collisions);
        let name = revisions::name(&owner.key.name, &hash);
        let mut labels = new.labels;
        labels.insert(new.hash_label.to_owned(), hash);
        let data: serde_json::Value = serde_json::from_str(new.data).unwrap_or_default();
        let body = json!({
            "apiVersion": self.resource.api_version(), "kind": self.resource.kind,
            "metadata": {
                "name": name, "namespace": owner.key.namespace, "labels": labels, "annotations": new.annotations,
                "ownerReferences": [OwnerReference::controller(&kind.api_version(), &kind.kind, owner)],
            },
            "data": data, "revision": new.number,
        });
        let namespace = &owner.key.namespace;
        match self.client.create(&self.resource, namespace, &body).await {
            Ok(_) => Ok(Creation::Done),
            Err(error) if error.is_already_exists() => {
                let key = ObjectKey::new(namespace.clone(), name);
                let live = self.client.get(&self.resource, &key).await?;
                Ok(if is_it(&live, owner, selector, new.data) {
                    Creation::Done
                } else {
                    Creation::NameTaken
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Gives a revision another number.
    pub async fn renumber(&self, own: &RevisionRef, number: i64) -> Result<(), ClientError> {
        let body = json!({
            "metadata": {"uid": own.uid().0, "resourceVersion": own.revision.to_string()}, "revision": number,
        });
        self.patch(own, &body).await
    }

    /// Gives a revision one more label.
    pub async fn label(&self, own: &RevisionRef, label: &str, value: &str) -> Result<(), ClientError> {
        self.patch(
            own,
            &json!({"metadata": {"uid": own.uid().0, "labels": {label: value}}}),
        )
        .await
    }

    async fn patch(&self, own: &RevisionRef, body: &serde_json::Value) -> Result<(), ClientError> {
        self.client
            .patch(&self.resource, own.key(), "", &Patch::Merge, body)
            .await
            .map(drop)
    }

    /// Deletes a revision; one that is gone already is deleted.
    pub async fn delete(&self, own: &RevisionRef) -> Result<(), ClientError> {
        let options = DeleteOptions::uid(own.uid());
        match self.client.delete(&self.resource, own.key(), &options).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }
}

/// Reports whether the revision that has the name is the one to be made.
fn is_it(live: &[u8], owner: &ObjectHeader, selector: &Selector, data: &str) -> bool {
    let (Ok((header, _)), Ok(view)) = (
        parse_header(live),
        RevisionView::project(&ObjectHeader::default(), live),
    ) else {
        return false;
    };
    let ours = match header.controller() {
        Some(controller) => controller.uid == owner.uid,
        None => !header.is_deleting(),
    };
    ours && selector.matches(&header) && *view.data == *data
}
