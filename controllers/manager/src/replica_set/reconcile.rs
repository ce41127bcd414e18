//! Gather, plan, act, write status. No rule of its own.

use super::plan::{Plan, PodRef, Snapshot, plan};
use super::status::{Failure, status};
use crate::heavy;
use crate::pod_claim::PodClaim;
use crate::pod_control::{PodControl, reference, slow_start};
use crate::views::pod::is_active;
use crate::views::template::OwnerReference;
use crate::views::{PodView, SetView};
use futures::future::BoxFuture;
use jiff::Timestamp;
use machinery_client::{Client, ClientError, Edit, Informer, Object};
use machinery_meta::ObjectKey;
use machinery_reconcile::{
    Expectations, ObjectReference, Outcome, ReconcileError, Reconciler, WriteTracker, names,
};
use machinery_runtime::Runtime;
use machinery_runtime::metrics::Histogram;
use std::sync::Arc;
use std::time::Duration;

type Set<P> = Arc<Object<P>>;

pub(super) struct ReplicaSetReconciler<P: SetView> {
    pub(super) client: Client,
    pub(super) pod_control: PodControl,
    pub(super) runtime: Runtime,
    pub(super) sets: Informer<P>,
    pub(super) pods: Informer<PodView>,
    pub(super) expectations: Expectations<ObjectKey>,
    pub(super) own_writes: WriteTracker,
    /// Ages of pods that were chosen to go, divided by the youngest one's.
    pub(super) age_ratio: Histogram,
}

impl<P: SetView> Reconciler for ReplicaSetReconciler<P> {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(set) = self.sets.get(key) else {
                self.expectations.forget(key);
                self.own_writes.forget(key);
                return Ok(Outcome::Done);
            };
            // The event of the own write requeues the key; a status computed from the older object would
            // conflict.
            if self.own_writes.cache_is_stale(&set) {
                return Ok(Outcome::Done);
            }
            let owner = reference(&P::resource(), &set.header);
            let awaited = self.expectations.settle(key, &self.pods);
            // Under the same names: if the lost request was executed, the server answers `AlreadyExists` and no
            // second pod is made.
            self.create_again(&set, &owner, awaited.unacknowledged.clone())
                .await?;
            let mut plan = self.plan(&set, awaited.is_settled()).await;
            self.claim(&set, &owner, &mut plan).await?;
            let failure = self.act(&set, &owner, &mut plan).await;
            // Also after a failure, which the status reports (`ReplicaFailure`).
            self.write_status(&set, &plan, failure.as_ref().map(|(failure, _)| failure))
                .await?;
            match failure {
                Some((_, error)) => Err(error),
                None => Ok(self.requeue(&plan)),
            }
        })
    }
}

impl<P: SetView> ReplicaSetReconciler<P> {
    async fn plan(&self, set: &Set<P>, settled: bool) -> Plan {
        let snapshot = self.snapshot(set, settled);
        let pods = snapshot.owned.len() + snapshot.orphans.len();
        let comparisons = set.view().selector.comparisons().saturating_mul(pods);
        let flow = || heavy::flow(&P::resource().plural, set.namespace());
        heavy::step(&self.runtime, flow, comparisons, move || plan(&snapshot)).await
    }

    fn snapshot(&self, set: &Set<P>, settled: bool) -> Snapshot<P> {
        let owned = self.pods.controlled(set.namespace(), set.uid());
        let orphans = self.pods.by_index(PodView::ORPHANS, set.namespace());
        // Only pods to be deleted are ranked among them.
        let may_be_too_many = owned.len() + orphans.len() > usize::try_from(set.view().replicas).unwrap_or(0);
        let siblings = if may_be_too_many {
            self.siblings(set)
        } else {
            Vec::new()
        };
        Snapshot {
            siblings,
            owned,
            orphans,
            settled,
            now: self.runtime.now(),
            set: set.clone(),
        }
    }

    /// Active pods of every set that has the same controller.
    fn siblings(&self, set: &Set<P>) -> Vec<PodRef> {
        let sets = match set.header.controller() {
            Some(owner) => self.sets.controlled(set.namespace(), &owner.uid),
            None => vec![set.clone()],
        };
        let pods = sets
            .iter()
            .flat_map(|set| self.pods.controlled(set.namespace(), set.uid()));
        pods.filter(|pod| is_active(pod)).collect()
    }

    /// Sends creations again whose answer was lost, under the same names.
    async fn create_again(
        &self,
        set: &Set<P>,
        owner: &ObjectReference,
        lost: Vec<ObjectKey>,
    ) -> Result<(), ReconcileError> {
        if set.header.is_deleting() {
            self.expectations.forget(&owner.key);
            return Ok(());
        }
        let (done, first) = slow_start(lost, |key| self.create(set, owner, key)).await;
        first.map_or(Ok(()), |first| {
            Err(ReconcileError::Partly {
                failed: 1,
                attempted: done + 1,
                first,
            })
        })
    }

    async fn create(&self, set: &Set<P>, owner: &ObjectReference, key: ObjectKey) -> Result<(), ClientError> {
        let controller = OwnerReference::controller(&owner.api_version, &owner.kind, &set.header);
        let pod = set
            .view()
            .template
            .pod(set.namespace(), &key.name, &prefix(set.name()), controller);
        self.pod_control
            .create(&self.expectations, owner, key, &pod)
            .await
    }

    /// Adopts and releases before anything else is done or written. Orphans that are gone are none of its pods.
    async fn claim(
        &self,
        set: &Set<P>,
        owner: &ObjectReference,
        plan: &mut Plan,
    ) -> Result<(), ReconcileError> {
        let kind = P::resource();
        let claim = PodClaim {
            kind: &kind,
            owner: &set.header,
            adopt: &plan.adopt,
            release: &plan.release,
            finalizer: None,
        };
        let gone = self.pod_control.claim(&claim, owner).await?;
        plan.active.retain(|pod| !gone.contains(pod.uid()));
        plan.delete.retain(|pod| !gone.contains(pod.uid()));
        Ok(())
    }

    async fn act(
        &self,
        set: &Set<P>,
        owner: &ObjectReference,
        plan: &mut Plan,
    ) -> Option<(Failure, ReconcileError)> {
        let fresh = (0..plan.create).map(|_| {
            ObjectKey::new(
                set.namespace(),
                names::generate(&self.runtime, &prefix(set.name())),
            )
        });
        let (done, first) = slow_start(fresh.collect(), |key| self.create(set, owner, key)).await;
        if let Some(first) = first {
            // A namespace that is going takes no pods; the set goes with it.
            if first.has_cause("NamespaceTerminating") {
                return None;
            }
            let failure = Failure {
                reason: "FailedCreate",
                message: first.to_string(),
            };
            let error = ReconcileError::Partly {
                failed: plan.create - done,
                attempted: plan.create,
                first,
            };
            return Some((failure, error));
        }
        self.delete(owner, plan).await
    }

    /// Deletes; what is deleted counts no more, so that a reader of the set's size in status reads no more
    /// available pods than stay.
    async fn delete(&self, owner: &ObjectReference, plan: &mut Plan) -> Option<(Failure, ReconcileError)> {
        let now = self.runtime.now();
        for ratio in age_ratios(&plan.active, &plan.delete, now) {
            self.age_ratio.observe(ratio);
        }
        let deletions = plan
            .delete
            .iter()
            .map(|pod| self.pod_control.delete(&self.expectations, owner, pod));
        let done = futures::future::join_all(deletions).await;
        let mut failed = Vec::new();
        for (pod, done) in plan.delete.iter().zip(done) {
            match done {
                Ok(()) => plan.active.retain(|own| own.uid() != pod.uid()),
                Err(error) => failed.push(error),
            }
        }
        let count = failed.len();
        let first = failed.into_iter().next()?;
        let failure = Failure {
            reason: "FailedDelete",
            message: first.to_string(),
        };
        Some((
            failure,
            ReconcileError::Partly {
                failed: count,
                attempted: plan.delete.len(),
                first,
            },
        ))
    }

    async fn write_status(
        &self,
        set: &Set<P>,
        plan: &Plan,
        failure: Option<&Failure>,
    ) -> Result<(), ReconcileError> {
        let status = status(set, plan, failure, self.runtime.now());
        if status == set.view().status {
            return Ok(());
        }
        let resource = P::resource();
        let mut edit = Edit::of(&resource, &set.json())?;
        edit.set("status", &status)?;
        let writes = self.client.writes();
        match writes.update(&resource, set.key(), "status", edit.body()).await {
            Ok(written) => {
                self.own_writes.record_write(set.key(), &written);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(ReconcileError::doing("writing status")(error)),
        }
    }

    fn requeue(&self, plan: &Plan) -> Outcome {
        let Some(at) = plan.requeue_at else {
            return Outcome::Done;
        };
        let wait = at.duration_since(self.runtime.now());
        Outcome::RequeueAfter(Duration::try_from(wait).unwrap_or_default())
    }
}

/// Ages of the ready ones among these pods, divided by that of the youngest ready one of all.
fn age_ratios(all: &[PodRef], chosen: &[PodRef], now: Timestamp) -> Vec<f64> {
    let age = |pod: &PodRef| now.duration_since(pod.created).as_secs_f64();
    let ready = |pod: &&PodRef| pod.ready;
    let youngest = all.iter().filter(ready).map(age).fold(f64::INFINITY, f64::min);
    let chosen = chosen.iter().filter(ready).map(age);
    // A pod of this very second has no age to compare with.
    chosen
        .filter(|_| youngest > 0.0)
        .map(|age| age / youngest)
        .collect()
}

fn prefix(set: &str) -> String {
    format!("{set}-")
}
