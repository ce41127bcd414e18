//! Gather, plan, act in the order that tracking needs: make and delete pods, write status, then release pods.

use super::backoff::Backoff;
use super::index_failures::counts_of_next;
use super::metrics::JobMetrics;
use super::plan::{Plan, plan};
use super::snapshot::{PodRef, Snapshot};
use super::tracking::without_finalizer;
use super::{FINALIZER, has_finalizer, has_job};
use crate::metrics::since;
use crate::pod_control::{PodControl, reference, slow_start};
use crate::views::template::{EditedTemplate, OwnerReference};
use crate::views::{JobView, PodView};
use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use machinery_client::{ApiResource, Client, ClientError, Edit, Folded, Informer, Object, Patch};
use machinery_meta::{ObjectKey, Uid};
use machinery_reconcile::{
    Expectations, ObjectReference, Outcome, QueueKey, ReconcileError, Reconciler, WriteTracker, names,
};
use machinery_runtime::Runtime;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const INDEX_IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// Key of a look.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Job(ObjectKey),
    /// A pod with our finalizer that no Job has, or one that is gone.
    Orphan(ObjectKey),
}

impl QueueKey for Key {
    fn namespace(&self) -> &str {
        match self {
            Self::Job(key) | Self::Orphan(key) => &key.namespace,
        }
    }
}

pub(super) struct JobReconciler {
    pub(super) client: Client,
    pub(super) pod_control: PodControl,
    pub(super) runtime: Runtime,
    pub(super) jobs: Informer<JobView>,
    pub(super) pods: Informer<PodView>,
    pub(super) expectations: Expectations<ObjectKey>,
    pub(super) own_writes: WriteTracker,
    pub(super) metrics: JobMetrics,
    /// State that each round leaves for the next.
    pub(super) backoffs: Mutex<BTreeMap<ObjectKey, (Uid, Backoff)>>,
}

impl Reconciler for JobReconciler {
    type Key = Key;

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            match key {
                Key::Job(key) => self.job(key).await,
                Key::Orphan(key) => self.orphan(key).await,
            }
        })
    }
}

impl JobReconciler {
    async fn orphan(&self, key: &ObjectKey) -> Result<Outcome, ReconcileError> {
        let Some(pod) = self.pods.get(key).filter(|pod| has_finalizer(pod)) else {
            return Ok(Outcome::Done);
        };
        // Checked again: the Job may have come since the pod was queued.
        if has_job(&pod, &self.jobs) {
            return Ok(Outcome::Done);
        }
        self.release(&pod)
            .await
            .map_err(ReconcileError::doing("releasing a pod that no job has"))?;
        Ok(Outcome::Done)
    }

    async fn job(&self, key: &ObjectKey) -> Result<Outcome, ReconcileError> {
        let Some(job) = self.jobs.get(key) else {
            self.expectations.forget(key);
            self.own_writes.forget(key);
            self.backoffs().remove(key);
            return Ok(Outcome::Done);
        };
        if job.managed_elsewhere || self.own_writes.cache_is_stale(&job) {
            return Ok(Outcome::Done);
        }
        let begun = self.runtime.monotonic();
        let owner = reference(&ApiResource::of::<Job>(), &job.header);
        let awaited = self.expectations.settle(key, &self.pods);
        if !awaited.unacknowledged.is_empty() && !job.is_finished() && !job.header.is_deleting() {
            self.create_again(&job, &owner, &awaited.unacknowledged).await?;
        }
        let snapshot = Snapshot {
            pods: self.claim(&job, &owner).await?,
            settled: awaited.is_settled(),
            now: self.runtime.now(),
            backoff: self.backoff(&job),
            job,
        };
        let plan = plan(&snapshot);
        let done = self.carry_out(&snapshot, &owner, &plan).await;
        let took = since(&self.runtime, begun);
        self.metrics
            .synced(&snapshot.job, done.is_ok(), plan.action.name(), took);
        done.map(|()| self.requeue(&plan))
    }

    async fn carry_out(
        &self,
        snapshot: &Snapshot,
        owner: &ObjectReference,
        plan: &Plan,
    ) -> Result<(), ReconcileError> {
        // Its error is returned last: what was counted is written also where a pod could not be created.
        let managed = self.manage(snapshot, owner, plan).await;
        // Before finalizers are removed: a pod that is released uncounted could be deleted, and its result
        // would be lost (KEP-2307).
        self.write_status(snapshot, owner, plan).await?;
        self.remember(&snapshot.job, plan);
        self.metrics.handled(plan);
        self.release_all(plan).await?;
        managed
    }

    async fn manage(
        &self,
        snapshot: &Snapshot,
        owner: &ObjectReference,
        plan: &Plan,
    ) -> Result<(), ReconcileError> {
        let doomed = plan.delete.iter().filter(|pod| !pod.header.is_deleting());
        let deletions = doomed.map(|pod| self.pod_control.delete(&self.expectations, owner, pod));
        let deleted = join_all(deletions).await;
        let discarded = join_all(plan.discard.iter().map(|pod| self.discard(owner, pod))).await;
        if let Some(first) = deleted.into_iter().chain(discarded).find_map(Result::err) {
            return Err(ReconcileError::doing("deleting pods")(first));
        }
        let wanted = plan
            .create
            .iter()
            .map(|index| (self.pod_name(&snapshot.job, *index), *index))
            .collect();
        let create = |(key, index)| async move {
            let created = self.create(snapshot, owner, key, index).await;
            self.metrics.created(snapshot, plan, created.is_ok());
            created
        };
        let (done, first) = slow_start(wanted, create).await;
        match first {
            Some(first) if !first.has_cause("NamespaceTerminating") => Err(ReconcileError::Partly {
                failed: plan.create.len() - done,
                attempted: plan.create.len(),
                first,
            }),
            _ => Ok(()),
        }
    }

    /// Deletes a pod that has not failed, however it ends: it is counted nowhere once its finalizer is gone.
    async fn discard(&self, owner: &ObjectReference, pod: &PodRef) -> Result<(), ClientError> {
        if has_finalizer(pod) {
            self.release(pod).await?;
        }
        self.pod_control.delete(&self.expectations, owner, pod).await
    }

    fn backoffs(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, (Uid, Backoff)>> {
        self.backoffs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn backoff(&self, job: &Object<JobView>) -> Option<Backoff> {
        let backoffs = self.backoffs();
        let (uid, own) = backoffs.get(job.key())?;
        (uid == job.uid()).then(|| own.clone())
    }

    fn remember(&self, job: &Object<JobView>, plan: &Plan) {
        if job.is_finished() {
            self.backoffs().remove(job.key());
        } else {
            let own = (job.uid().clone(), plan.backoff.clone());
            self.backoffs().insert(job.key().clone(), own);
        }
    }

    fn pod_name(&self, job: &Object<JobView>, index: Option<u32>) -> ObjectKey {
        ObjectKey::new(
            job.namespace(),
            names::generate(&self.runtime, &prefix(job.name(), index)),
        )
    }

    /// Sends creations again whose answer was lost; the index of each is in its name.
    async fn create_again(
        &self,
        job: &Arc<Object<JobView>>,
        owner: &ObjectReference,
        lost: &[ObjectKey],
    ) -> Result<(), ReconcileError> {
        let pods = self.pods.controlled(job.namespace(), job.uid());
        let snapshot = Snapshot {
            job: job.clone(),
            pods,
            settled: false,
            now: self.runtime.now(),
            backoff: None,
        };
        for key in lost {
            let index = job.indexed.then(|| index_in(job.name(), &key.name)).flatten();
            let created = self.create(&snapshot, owner, key.clone(), index).await;
            created.map_err(ReconcileError::doing("creating a pod again"))?;
        }
        Ok(())
    }

    async fn create(
        &self,
        snapshot: &Snapshot,
        owner: &ObjectReference,
        key: ObjectKey,
        index: Option<u32>,
    ) -> Result<(), ClientError> {
        let job = &snapshot.job;
        let mut template = job.template.to_edit();
        // In the create itself: a pod without it may end and be collected before it is counted.
        template.metadata.finalizers.push(FINALIZER.to_owned());
        if let Some(index) = index {
            template = indexed(template, job, index).map_err(|source| ClientError::Decode {
                what: "the pod template".to_owned(),
                source,
            })?;
            if job.backoff_limit_per_index.is_some() {
                let policy = job.failure_policy.as_ref().map(Folded::get);
                let counts = counts_of_next(snapshot, policy.as_deref(), index);
                annotate(&mut template, counts);
            }
        }
        let controller = OwnerReference::controller("batch/v1", "Job", &job.header);
        let pod = template.pod(job.namespace(), &key.name, &prefix(job.name(), index), controller);
        self.pod_control
            .create(&self.expectations, owner, key, &pod)
            .await
    }

    /// Writes status where it differs; what it says is recorded once it is written.
    async fn write_status(
        &self,
        snapshot: &Snapshot,
        owner: &ObjectReference,
        plan: &Plan,
    ) -> Result<(), ReconcileError> {
        let job = &snapshot.job;
        if plan.status == job.status {
            return Ok(());
        }
        let resource = ApiResource::of::<Job>();
        let mut edit = Edit::of(&resource, &job.json())?;
        edit.set("status", &plan.status)?;
        match self
            .client
            .writes()
            .update(&resource, job.key(), "status", edit.body())
            .await
        {
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(ReconcileError::doing("writing status")(error)),
            Ok(written) => self.own_writes.record_write(job.key(), &written),
        }
        self.metrics.written(job, &plan.status);
        for (good, reason, message) in &plan.events {
            let recorder = self.pod_control.recorder();
            if *good {
                recorder.normal(owner, reason, message.clone());
            } else {
                recorder.warning(owner, reason, message.clone());
            }
        }
        Ok(())
    }

    /// Takes the finalizer off pods that are on the written list, or that need no counting.
    async fn release_all(&self, plan: &Plan) -> Result<(), ReconcileError> {
        let released = join_all(plan.release.iter().map(|pod| self.release(pod))).await;
        for result in released {
            result.map_err(ReconcileError::doing("releasing a counted pod"))?;
        }
        Ok(())
    }

    async fn release(&self, pod: &PodRef) -> Result<(), ClientError> {
        let body = json!({"metadata": {
            "uid": pod.uid().0, "resourceVersion": pod.revision.to_string(), "finalizers": without_finalizer(pod)}});
        let patched = self
            .client
            .patch(&ApiResource::of::<Pod>(), pod.key(), "", &Patch::Merge, &body)
            .await;
        match patched {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    fn requeue(&self, plan: &Plan) -> Outcome {
        let Some(at) = plan.requeue_at else {
            return Outcome::Done;
        };
        let wait = at.duration_since(self.runtime.now());
        Outcome::RequeueAfter(Duration::try_from(wait).unwrap_or(Duration::from_millis(1)))
    }
}

/// Prefix of a pod's name. A long name of the Job is cut before the index, so that the pod's name has it (upstream's
/// `podGenerateNameWithIndex`).
pub(super) fn prefix(job: &str, index: Option<u32>) -> String {
    let end = index.map_or_else(|| "-".to_owned(), |index| format!("-{index}-"));
    let room = names::MAX_BASE_LENGTH - end.len();
    format!("{}{end}", &job[..job.floor_char_boundary(room)])
}

/// Returns the index in the name of a pod that [`prefix`] begins.
pub(super) fn index_in(job: &str, pod: &str) -> Option<u32> {
    let base = &pod[..pod.rfind('-')?];
    let index = base.rsplit_once('-')?.1.parse().ok()?;
    pod.starts_with(&prefix(job, Some(index))).then_some(index)
}

/// Notes failures of an index, and those that the policy ignores where there are some.
fn annotate(template: &mut EditedTemplate, (counted, ignored): (i32, i32)) {
    let annotations = &mut template.metadata.annotations;
    annotations.insert(INDEX_FAILURES.to_owned(), counted.to_string());
    if ignored > 0 {
        annotations.insert(INDEX_IGNORED_FAILURES.to_owned(), ignored.to_string());
    }
}

/// The template of one index: label and annotation, a host name, and the variable in every container.
fn indexed(
    mut template: EditedTemplate,
    job: &Object<JobView>,
    index: u32,
) -> Result<EditedTemplate, serde_json::Error> {
    template
        .metadata
        .labels
        .insert(INDEX.to_owned(), index.to_string());
    template
        .metadata
        .annotations
        .insert(INDEX.to_owned(), index.to_string());
    let mut spec: serde_json::Value = serde_json::from_str(template.spec.get())?;
    let variable = json!({"name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": format!("metadata.labels['{INDEX}']")}}});
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(serde_json::Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            add_variable(container, &variable);
        }
    }
    spec["hostname"] = json!(format!("{}-{index}", job.name()));
    let raw: Box<RawValue> = to_raw_value(&spec)?;
    Ok(EditedTemplate {
        spec: raw.into(),
        ..template
    })
}

fn add_variable(container: &mut serde_json::Value, variable: &serde_json::Value) {
    let named = |own: &serde_json::Value| own.get("name") == variable.get("name");
    match container.get_mut("env").and_then(serde_json::Value::as_array_mut) {
        // A variable of the user's own stays, as upstream's `addCompletionIndexEnvVariable` leaves it.
        Some(env) if env.iter().any(named) => {}
        Some(env) => env.push(variable.clone()),
        None => container["env"] = json!([variable]),
    }
}
