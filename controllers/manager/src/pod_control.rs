//! Creation and deletion of pods: with expectations, preconditions and upstream's events.

use crate::views::template::NewPod;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use machinery_client::object::parse_header;
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, Object, Patch, Projection};
use machinery_meta::{ObjectHeader, ObjectKey, Revision};
use machinery_reconcile::{EventRecorder, Expectations, ObjectReference, ReconcileError};
use serde::Deserialize;
use serde_json::json;
use std::fmt::Display;

/// Pods created or deleted in one go at most.
pub const BURST_REPLICAS: usize = 500;
/// The first batch of a slow start; each that succeeds is followed by one twice as large, so that a quota or an
/// admission plugin that refuses all of them gets one request, not five hundred.
const SLOW_START_FIRST: usize = 1;

/// Acts on pods for one controller.
#[derive(Debug, Clone)]
pub struct PodControl {
    client: Client,
    recorder: EventRecorder,
    pods: ApiResource,
    wording: Wording,
}

/// Wording of events about a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wording {
    /// By its name, which was generated.
    Generated,
    /// As a member of its StatefulSet.
    StatefulSet,
}

impl PodControl {
    /// Acts with this client and records with this recorder.
    pub fn new(client: Client, recorder: EventRecorder) -> Self {
        Self {
            client,
            recorder,
            pods: ApiResource::of::<Pod>(),
            wording: Wording::Generated,
        }
    }

    /// Events speak of pods like this.
    #[must_use]
    pub fn with_wording(mut self, wording: Wording) -> Self {
        self.wording = wording;
        self
    }

    /// The recorder.
    pub fn recorder(&self) -> &EventRecorder {
        &self.recorder
    }

    /// Creates one pod. The expectation stays while the outcome is not known; the pod is then to be sent again.
    pub async fn create(
        &self,
        expectations: &Expectations<ObjectKey>,
        owner: &ObjectReference,
        key: ObjectKey,
        pod: &NewPod<'_>,
    ) -> Result<(), ClientError> {
        expectations.creating(&owner.key, key.clone());
        match self.client.writes().create(&self.pods, &key.namespace, pod).await {
            Ok(written) => {
                expectations.created(&owner.key, &key, written.revision().unwrap_or_default());
                self.recorder
                    .normal(owner, "SuccessfulCreate", self.wording.created(owner, &key.name));
                Ok(())
            }
            Err(error) if error.is_already_exists() => self.recognise(expectations, owner, &key, error).await,
            Err(error) if (400..500).contains(&error.code()) => {
                expectations.not_created(&owner.key, &key);
                // Nothing can be made in a namespace that is going; that is no failure.
                if !error.has_cause("NamespaceTerminating") {
                    let message = self.wording.not_created(owner, &key.name, &error);
                    self.recorder.warning(owner, "FailedCreate", message);
                }
                Err(error)
            }
            Err(error) => {
                // The server has answered and may have made it all the same: it is requested again under its name, and the
                // owner says why there is none yet. An answer that was lost says nothing.
                if (500..600).contains(&error.code()) {
                    let message = self.wording.not_created(owner, &key.name, &error);
                    self.recorder.warning(owner, "FailedCreate", message);
                }
                Err(error)
            }
        }
    }

    /// The name is taken: by our own earlier request whose answer was lost, or by another.
    async fn recognise(
        &self,
        expectations: &Expectations<ObjectKey>,
        owner: &ObjectReference,
        key: &ObjectKey,
        error: ClientError,
    ) -> Result<(), ClientError> {
        let query = [("fieldSelector", format!("metadata.name={}", key.name))];
        let list: Owned = self.client.list_as(&self.pods, &key.namespace, &query).await?;
        let ours = |item: &OwnedItem| {
            item.metadata
                .owner_references
                .iter()
                .any(|own| own.uid == owner.uid)
        };
        if list.items.iter().any(ours) {
            let revision = list.metadata.resource_version.parse().unwrap_or(Revision::ZERO);
            expectations.created(&owner.key, key, revision);
            return Ok(());
        }
        expectations.not_created(&owner.key, key);
        Err(error)
    }

    /// Deletes one pod; one that is gone already is deleted.
    pub async fn delete<P: Projection>(
        &self,
        expectations: &Expectations<ObjectKey>,
        owner: &ObjectReference,
        pod: &Object<P>,
    ) -> Result<(), ClientError> {
        expectations.deleting(&owner.key, pod.key().clone(), pod.uid().clone());
        match self
            .client
            .delete(&self.pods, pod.key(), &DeleteOptions::uid(pod.uid()))
            .await
        {
            Ok(_) => {
                self.recorder
                    .normal(owner, "SuccessfulDelete", self.wording.deleted(owner, pod.name()));
                Ok(())
            }
            // Upstream says of a member of a StatefulSet that it was deleted, whatever deleted it.
            Err(error) if error.is_not_found() && matches!(self.wording, Wording::StatefulSet) => {
                self.recorder
                    .normal(owner, "SuccessfulDelete", self.wording.deleted(owner, pod.name()));
                Ok(())
            }
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => {
                expectations.not_deleted(&owner.key, pod.uid());
                let message = self.wording.not_deleted(owner, pod.name(), &error);
                self.recorder.warning(owner, "FailedDelete", message);
                Err(error)
            }
        }
    }

    /// Gives the pod a label.
    pub async fn label<P: Projection>(
        &self,
        pod: &Object<P>,
        label: &str,
        value: &str,
    ) -> Result<(), ClientError> {
        let body = json!({"metadata": {"uid": pod.uid().0, "labels": {label: value}}});
        self.client
            .patch(&self.pods, pod.key(), "", &Patch::Merge, &body)
            .await
            .map(drop)
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Patches a pod strategically.
    pub(crate) async fn patch_strategic<P: Projection>(
        &self,
        pod: &Object<P>,
        body: &serde_json::Value,
    ) -> Result<(), ClientError> {
        self.client
            .patch(&self.pods, pod.key(), "", &Patch::Strategic, body)
            .await
            .map(drop)
    }
}

/// Patches one owner reference of an object, which must still be the object that was seen.
pub(crate) async fn patch_owners(
    client: &Client,
    resource: &ApiResource,
    object: &ObjectHeader,
    reference: &serde_json::Value,
) -> Result<(), ClientError> {
    let body = json!({"metadata": {"uid": object.uid.0, "ownerReferences": [reference]}});
    client
        .patch(resource, &object.key, "", &Patch::Strategic, &body)
        .await
        .map(drop)
}

/// Asks the live owner whether it is still there and staying, as has to be before something is adopted.
pub(crate) async fn still_staying(
    client: &Client,
    resource: &ApiResource,
    owner: &ObjectHeader,
) -> Result<(), ReconcileError> {
    let body = client.get(resource, &owner.key).await?;
    match parse_header(&body) {
        Ok((live, _)) if live.uid == owner.uid && !live.is_deleting() => Ok(()),
        _ => Err(ReconcileError::Unusable(format!(
            "the {} is going and adopts nothing",
            resource.kind
        ))),
    }
}

impl Wording {
    fn created(self, owner: &ObjectReference, pod: &str) -> String {
        match self {
            Self::Generated => format!("Created pod: {pod}"),
            Self::StatefulSet => member(owner, "Create", pod, None),
        }
    }

    fn not_created(self, owner: &ObjectReference, pod: &str, error: &ClientError) -> String {
        match self {
            Self::Generated => format!("Error creating: {error}"),
            Self::StatefulSet => member(owner, "Create", pod, Some(error)),
        }
    }

    fn deleted(self, owner: &ObjectReference, pod: &str) -> String {
        match self {
            Self::Generated => format!("Deleted pod: {pod}"),
            Self::StatefulSet => member(owner, "Delete", pod, None),
        }
    }

    fn not_deleted(self, owner: &ObjectReference, pod: &str, error: &ClientError) -> String {
        match self {
            Self::Generated => format!("Error deleting: {error}"),
            Self::StatefulSet => member(owner, "Delete", pod, Some(error)),
        }
    }
}

/// The message on a member of a StatefulSet.
pub fn member(owner: &ObjectReference, verb: &str, pod: &str, error: Option<&dyn Display>) -> String {
    let set = &owner.key.name;
    match error {
        None => format!("{verb} Pod {pod} in StatefulSet {set} successful"),
        Some(error) => format!("{verb} Pod {pod} in StatefulSet {set} failed error: {error}"),
    }
}

/// Runs `act` on each item in batches that double while all of a batch succeed; answers how many succeeded.
pub async fn slow_start<T, F, E>(items: Vec<T>, act: impl Fn(T) -> F) -> (usize, Option<E>)
where
    F: Future<Output = Result<(), E>>,
{
    let (mut done, mut batch) = (0, SLOW_START_FIRST);
    let mut items = items.into_iter().peekable();
    while items.peek().is_some() {
        let results = join_all(items.by_ref().take(batch).map(&act)).await;
        let mut first = None;
        for result in results {
            match result {
                Ok(()) => done += 1,
                Err(error) => first = first.or(Some(error)),
            }
        }
        if first.is_some() {
            return (done, first);
        }
        batch *= 2;
    }
    (done, None)
}

/// Refers to an owner by its header.
pub fn reference(resource: &ApiResource, header: &ObjectHeader) -> ObjectReference {
    ObjectReference::new(resource, &header.key, &header.uid.0)
}

#[derive(Deserialize)]
struct Owned {
    metadata: ListMeta,
    #[serde(default)]
    items: Vec<OwnedItem>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
}

#[derive(Deserialize)]
struct OwnedItem {
    metadata: OwnedMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnedMeta {
    #[serde(default)]
    owner_references: Vec<OwnerUid>,
}

#[derive(Deserialize)]
struct OwnerUid {
    uid: String,
}
