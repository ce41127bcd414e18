//! Pods that come to a Job and leave it. A pod without a controller that the selector selects is adopted, and an own one that it
//! selects no more is released; the finalizer comes and goes with the owner, so that what comes is counted and what left is not.

use super::FINALIZER;
use super::reconcile::JobReconciler;
use super::snapshot::PodRef;
use crate::heavy;
use crate::pod_control::still_staying;
use crate::views::{JobView, PodView};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use machinery_client::{ApiResource, ClientError, Object, Patch};
use machinery_reconcile::{ObjectReference, ReconcileError};
use serde_json::{Value, json};
use std::sync::Arc;

/// Pods of a Job by their labels.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    /// Those that it keeps, and those that it is about to adopt.
    pub(super) pods: Vec<PodRef>,
    pub(super) adopt: Vec<PodRef>,
    pub(super) release: Vec<PodRef>,
}

/// Decides; a Job that has finished or is on its way out keeps what it has.
pub(super) fn claim(job: &Object<JobView>, owned: Vec<PodRef>, orphans: Vec<PodRef>) -> Claimed {
    if job.is_finished() || job.header.is_deleting() {
        return Claimed {
            pods: owned,
            ..Claimed::default()
        };
    }
    let matches = |pod: &PodRef| job.selector.matches(&pod.header);
    let (mut pods, release): (Vec<_>, Vec<_>) = owned.into_iter().partition(matches);
    let staying = orphans.into_iter().filter(|pod| !pod.header.is_deleting());
    let adopt: Vec<_> = staying.filter(matches).collect();
    pods.extend(adopt.iter().cloned());
    Claimed { pods, adopt, release }
}

impl JobReconciler {
    /// The Job's pods, once those that come and those that leave are written. Before an adoption the live Job has to be there
    /// and staying.
    pub(super) async fn claim(
        &self,
        job: &Arc<Object<JobView>>,
        owner: &ObjectReference,
    ) -> Result<Vec<PodRef>, ReconcileError> {
        let owned = self.pods.controlled(job.namespace(), job.uid());
        let orphans = self.pods.by_index(PodView::ORPHANS, job.namespace());
        let pods = owned.len() + orphans.len();
        let comparisons = job.selector.comparisons().saturating_mul(pods);
        let flow = || heavy::flow("jobs", job.namespace());
        let of = job.clone();
        let step = move || claim(&of, owned, orphans);
        let claimed = heavy::step(&self.runtime, flow, comparisons, step).await;
        if !claimed.adopt.is_empty() {
            still_staying(&self.client, &ApiResource::of::<Job>(), &job.header).await?;
        }
        for pod in &claimed.adopt {
            let adopted = self.patch_pod(pod, adoption(owner)).await;
            adopted.map_err(ReconcileError::doing("adopting a pod"))?;
        }
        for pod in &claimed.release {
            match self.patch_pod(pod, release(owner)).await {
                // Gone, or made anew under the name: it is not ours either way.
                Err(error) if error.is_not_found() || error.is_invalid() || error.is_conflict() => {}
                released => released.map_err(ReconcileError::doing("releasing a pod"))?,
            }
        }
        Ok(claimed.pods)
    }

    /// Patches metadata of a pod, which must still be the one that was seen.
    async fn patch_pod(&self, pod: &PodRef, mut metadata: Value) -> Result<(), ClientError> {
        metadata["uid"] = json!(pod.uid().0);
        let (resource, body) = (ApiResource::of::<Pod>(), json!({"metadata": metadata}));
        self.client
            .patch(&resource, pod.key(), "", &Patch::Strategic, &body)
            .await
            .map(drop)
    }
}

fn adoption(owner: &ObjectReference) -> Value {
    json!({
        "ownerReferences": [{
            "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.key.name, "uid": owner.uid,
            "controller": true, "blockOwnerDeletion": true,
        }],
        "finalizers": [FINALIZER],
    })
}

fn release(owner: &ObjectReference) -> Value {
    json!({
        "ownerReferences": [{"$patch": "delete", "uid": owner.uid}],
        "$deleteFromPrimitiveList/finalizers": [FINALIZER],
    })
}
