//! Gather, plan, act, write status.

use super::missed::wait;
use super::new_job::new_job;
use super::plan::{JobRef, Note, Step, decide, observe, schedule, surplus, unlisted};
use crate::pod_control::reference;
use crate::views::cron_job::{ActiveJob, Concurrency};
use crate::views::{CronJobStatus, CronJobView, JobView, seconds};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use machinery_client::object::object_of;
use machinery_client::{
    ApiResource, Client, ClientError, DeleteOptions, Edit, Informer, Object, Propagation,
};
use machinery_meta::ObjectKey;
use machinery_reconcile::{EventRecorder, Outcome, ReconcileError, Reconciler, WriteTracker};
use machinery_runtime::Runtime;
use machinery_runtime::metrics::Histogram;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Listed Jobs that no cache has and that are requested in one look.
const MAX_LOOKUPS: usize = 100;

type CronJobRef = Arc<Object<CronJobView>>;

pub(super) struct CronJobReconciler {
    pub(super) client: Client,
    pub(super) recorder: EventRecorder,
    pub(super) runtime: Runtime,
    pub(super) cron_jobs: Informer<CronJobView>,
    pub(super) jobs: Informer<JobView>,
    pub(super) own_writes: WriteTracker,
    /// Seconds from a time of a schedule to its Job.
    pub(super) creation_skew: Histogram,
}

/// A CronJob, and its new status and events.
struct Look {
    cron_job: CronJobRef,
    status: CronJobStatus,
    notes: Vec<Note>,
}

impl Reconciler for CronJobReconciler {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(cron_job) = self.cron_jobs.get(key) else {
                self.own_writes.forget(key);
                return Ok(Outcome::Done);
            };
            if self.own_writes.cache_is_stale(&cron_job) {
                return Ok(Outcome::Done);
            }
            let jobs = self.jobs.controlled(cron_job.namespace(), cron_job.uid());
            let mut look = Look {
                status: cron_job.status.clone(),
                cron_job,
                notes: Vec::new(),
            };
            let outcome = self.look(&mut look, &jobs).await;
            let about = reference(&ApiResource::of::<CronJob>(), &look.cron_job.header);
            for note in look.notes.drain(..) {
                match note.warning {
                    true => self.recorder.warning(&about, note.reason, note.message),
                    false => self.recorder.normal(&about, note.reason, note.message),
                }
            }
            // What was done is written though something else failed.
            self.write_status(&look).await?;
            outcome
        })
    }
}

impl CronJobReconciler {
    async fn look(&self, look: &mut Look, jobs: &[JobRef]) -> Result<Outcome, ReconcileError> {
        if !unlisted(&look.status, jobs).is_empty() {
            self.read_again(look).await?;
        }
        for job in surplus(&look.cron_job, jobs) {
            // The next look tries again.
            let _said = self.delete(look, &job).await;
        }
        observe(&mut look.status, jobs, &mut look.notes);
        self.drop_missing(look, jobs).await?;
        let now = self.runtime.now();
        match decide(&look.cron_job, &look.status, now, &mut look.notes) {
            Step::Rest(rest) => Ok(requeue(rest)),
            Step::Start(at) => {
                self.start(look, at).await?;
                // The times that follow are those after this one.
                let schedule = schedule(&look.cron_job).ok();
                let last = look.status.last_schedule_time.as_deref();
                let rest = schedule.and_then(|schedule| wait(&look.cron_job, last, now, &schedule));
                Ok(requeue(rest))
            }
        }
    }

    /// Reads the live object: the cache of CronJobs may be behind that of Jobs.
    async fn read_again(&self, look: &mut Look) -> Result<(), ReconcileError> {
        let live = self
            .client
            .get(&ApiResource::of::<CronJob>(), look.cron_job.key())
            .await;
        let live = live.map_err(ReconcileError::doing("reading the CronJob"))?;
        match object_of::<CronJobView>(&String::from_utf8_lossy(&live)) {
            Ok(live) if live.uid() == look.cron_job.uid() => {
                look.status = live.status.clone();
                look.cron_job = Arc::new(live);
                Ok(())
            }
            _ => Err(ReconcileError::Unusable("the CronJob is another one".to_owned())),
        }
    }

    /// Takes Jobs off the list that are gone.
    async fn drop_missing(&self, look: &mut Look, jobs: &[JobRef]) -> Result<(), ReconcileError> {
        let known: BTreeSet<&str> = jobs.iter().map(|job| &*job.uid().0).collect();
        let namespace = look.cron_job.namespace().to_owned();
        let absent = |own: &&ActiveJob| !known.contains(&*own.uid);
        let absent: Vec<ActiveJob> = look
            .status
            .active
            .iter()
            .filter(absent)
            .take(MAX_LOOKUPS)
            .cloned()
            .collect();
        for own in absent {
            if *own.namespace == *namespace && self.is_there(&namespace, &own).await? {
                continue;
            }
            let message = format!("Active job went missing: {}", own.name);
            look.notes.push(Note::normal("MissingJob", message));
            look.status.active.retain(|other| other.uid != own.uid);
        }
        Ok(())
    }

    async fn is_there(&self, namespace: &str, own: &ActiveJob) -> Result<bool, ReconcileError> {
        match self.job(&ObjectKey::new(namespace, &*own.name)).await {
            Ok(job) => Ok(*job.uid().0 == *own.uid),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(ReconcileError::doing("reading a job")(error)),
        }
    }

    async fn job(&self, key: &ObjectKey) -> Result<JobRef, ClientError> {
        let body = self.client.get(&ApiResource::of::<Job>(), key).await?;
        let job = object_of::<JobView>(&String::from_utf8_lossy(&body));
        job.map(Arc::new).map_err(|source| ClientError::Decode {
            what: key.to_string(),
            source,
        })
    }

    /// Deletes a Job and takes it off the list; pods follow in the background.
    async fn delete(&self, look: &mut Look, job: &JobRef) -> Result<(), ReconcileError> {
        let options = DeleteOptions {
            propagation: Some(Propagation::Background),
            ..DeleteOptions::uid(job.uid())
        };
        let deleted = self
            .client
            .delete(&ApiResource::of::<Job>(), job.key(), &options)
            .await;
        if let Err(error) = deleted {
            let message = format!("Deleted job: {error}");
            look.notes.push(Note::warning("FailedDelete", message));
            return Err(ReconcileError::doing("deleting a job")(error));
        }
        look.status.active.retain(|own| *own.uid != *job.uid().0);
        let message = format!("Deleted job {}", job.name());
        look.notes.push(Note::normal("SuccessfulDelete", message));
        Ok(())
    }

    async fn start(&self, look: &mut Look, at: Timestamp) -> Result<(), ReconcileError> {
        if look.cron_job.concurrency == Concurrency::Replace {
            self.replace(look).await?;
        }
        let Some(job) = self.create(look, at).await? else {
            return Ok(());
        };
        if look.status.active.iter().any(|own| *own.uid == *job.uid().0) {
            return Ok(());
        }
        look.status.active.push(ActiveJob {
            api_version: "batch/v1".into(),
            kind: "Job".into(),
            namespace: job.namespace().into(),
            name: job.name().into(),
            uid: job.uid().0.as_str().into(),
            resource_version: job.revision.to_string().into(),
            field_path: "".into(),
        });
        look.status.last_schedule_time = Some(seconds(at));
        Ok(())
    }

    /// Deletes Jobs that are still at work. One that is not the CronJob's own is only taken off the list.
    async fn replace(&self, look: &mut Look) -> Result<(), ReconcileError> {
        for own in look.status.active.clone() {
            let key = ObjectKey::new(look.cron_job.namespace(), &*own.name);
            let job = match self.job(&key).await {
                Ok(job) => job,
                Err(error) => {
                    look.notes
                        .push(Note::warning("FailedGet", format!("Get job: {error}")));
                    return Err(ReconcileError::doing("reading a job to replace")(error));
                }
            };
            if is_controlled_by(&job, &look.cron_job) {
                self.delete(look, &job).await?;
            }
            look.status.active.retain(|other| other.uid != own.uid);
        }
        Ok(())
    }

    /// Makes the Job of a time, or finds the one that was made by a look whose status was not written. None where the
    /// name is another's.
    async fn create(&self, look: &mut Look, at: Timestamp) -> Result<Option<JobRef>, ReconcileError> {
        let new = new_job(&look.cron_job, at)?;
        let key = ObjectKey::new(look.cron_job.namespace(), new.metadata.name.clone());
        let created = self
            .client
            .create(&ApiResource::of::<Job>(), &key.namespace, &new)
            .await;
        match created {
            Ok(body) => {
                let message = format!("Created job {}", key.name);
                look.notes.push(Note::normal("SuccessfulCreate", message));
                let job = object_of::<JobView>(&String::from_utf8_lossy(&body));
                let job = job.map_err(|source| ClientError::Decode {
                    what: key.to_string(),
                    source,
                })?;
                let skew = job.created.duration_since(at);
                self.creation_skew.observe(skew.as_secs_f64());
                Ok(Some(Arc::new(job)))
            }
            Err(error) if error.is_already_exists() => {
                let job = self.job(&key).await;
                let job = job.map_err(ReconcileError::doing("reading a job that exists"))?;
                Ok(is_controlled_by(&job, &look.cron_job).then_some(job))
            }
            Err(error) => {
                // Nothing can be made in a namespace that is going.
                if !error.has_cause("NamespaceTerminating") {
                    let message = format!("Error creating job: {error}");
                    look.notes.push(Note::warning("FailedCreate", message));
                }
                Err(ReconcileError::doing("creating a job")(error))
            }
        }
    }

    async fn write_status(&self, look: &Look) -> Result<(), ReconcileError> {
        let cron_job = &look.cron_job;
        if look.status == cron_job.status {
            return Ok(());
        }
        let resource = ApiResource::of::<CronJob>();
        let mut edit = Edit::of(&resource, &cron_job.json())?;
        edit.set("status", &look.status)?;
        match self
            .client
            .writes()
            .update(&resource, cron_job.key(), "status", edit.body())
            .await
        {
            Ok(written) => {
                self.own_writes.record_write(cron_job.key(), &written);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(ReconcileError::doing("writing status")(error)),
        }
    }
}

fn is_controlled_by(job: &JobRef, cron_job: &CronJobRef) -> bool {
    let owner = job.header.controller();
    owner.is_some_and(|owner| owner.uid == *cron_job.uid())
}

fn requeue(rest: Option<jiff::SignedDuration>) -> Outcome {
    let wait = rest.map(|rest| Duration::try_from(rest).unwrap_or_default());
    wait.map_or(Outcome::Done, Outcome::RequeueAfter)
}
