//! Pods that come to a Job and leave it. A pod without a controller that the selector selects is adopted, and an own one that it
//! selects no more is released; the finalizer comes and goes with the owner, so that what comes is counted and what left is not.

use super::FINALIZER;
use super::reconcile::JobReconciler;
use super::snapshot::PodRef;
use crate::heavy;
use crate::pod_claim::PodClaim;
use crate::views::{JobView, PodView};
use k8s_openapi::api::batch::v1::Job;
use machinery_client::{ApiResource, Object};
use machinery_reconcile::{ObjectReference, ReconcileError};
use std::sync::Arc;

/// Pods of a Job by their labels.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    /// Pods that it keeps, and pods that it is about to adopt.
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
        let mut claimed = heavy::step(&self.runtime, flow, comparisons, step).await;
        let claim = PodClaim {
            kind: &ApiResource::of::<Job>(),
            owner: &job.header,
            adopt: &claimed.adopt,
            release: &claimed.release,
            finalizer: Some(FINALIZER),
        };
        let gone = self.pod_control.claim(&claim, owner).await?;
        claimed.pods.retain(|pod| !gone.contains(pod.uid()));
        Ok(claimed.pods)
    }
}
