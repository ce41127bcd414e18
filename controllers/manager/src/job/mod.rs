//! Runs pods until enough have done well.
//!
//! Owns: pods, with a finalizer that stays until the pod is counted, so that a pod that ended is never lost and never
//! counted twice, whatever deletes it and whenever we are killed. Watches: Jobs (the key), pods (their controller; an orphan
//! wakes every Job whose selector matches; pods of no Job, or of one that is gone, lose the finalizer).
//!
//! `claim` adopts and releases, `tracking` moves ended pods into the counts, `plan` decides on pods and `ending` on the end, `backoff` on the wait
//! before; `indexes` reads and writes `1,3-5`, `index_failures` what pods of an index carry on, `failure_policy` judges
//! single pods. Pods that are deleted because there are too many lose the finalizer first and count nowhere.
//! Never: more than `parallelism` pods at work.

mod backoff;
mod claim;
mod ending;
mod failure_policy;
#[cfg(test)]
mod failure_tests;
mod index_failures;
mod indexes;
mod metrics;
mod plan;
mod reconcile;
#[cfg(test)]
mod rule_tests;
mod snapshot;
#[cfg(test)]
mod sync_tests;
#[cfg(test)]
mod tests;
mod tracking;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::metrics::own_writes;
use crate::owners::{Owners, watch_owned};
use crate::pod_control::PodControl;
use crate::views::{JobView, PodView};
use futures::future::BoxFuture;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use machinery_client::{Informer, Object};
use machinery_meta::ObjectKey;
use machinery_reconcile::Expectations;
use machinery_runtime::metrics::Family;
use metrics::JobMetrics;
use reconcile::{JobReconciler, Key};
use std::sync::Arc;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "job-controller",
    queue: "job",
    service_account: "job-controller",
    default: true,
    start,
};

/// Keeps a pod until it is counted.
pub(crate) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// Looks left out because the cache was behind.
const STALE_SKIPS: Family = Family::new(
    "job_controller_stale_sync_skips_total",
    "[ALPHA] Total number of Job syncs skipped due to a stale watch cache.",
    &["group", "resource"],
);

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let jobs: Informer<JobView> = context.informers.of::<Job, _>();
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let (known, by_job) = (jobs.clone(), pods.clone());
    let metrics = JobMetrics::new(context.runtime.metrics());
    let (of_jobs, of_pods) = (metrics.clone(), metrics.clone());
    let controller = ROW
        .controller(&context.runtime)
        .watches(&jobs, move |change| {
            of_jobs.job_changed(change);
            let gone = change.old.as_ref().filter(|_| change.is_removal());
            let left = gone.map(|job| held_pods(&by_job, job)).unwrap_or_default();
            let left = left.into_iter().map(|pod| Key::Orphan(pod.key().clone()));
            left.chain([Key::Job(change.key().clone())]).collect::<Vec<_>>()
        })
        .watches(&pods, move |change| {
            of_pods.pod_changed(change);
            let held = change.sides().filter(|pod| has_finalizer(pod));
            let left = held.filter(|pod| !has_job(pod, &known));
            left.map(|pod| Key::Orphan(pod.key().clone())).collect::<Vec<_>>()
        });
    let owners = Owners {
        kind: "Job".into(),
        cache: jobs.clone(),
        selector: |job: &JobView| &job.selector,
    };
    let controller = watch_owned(controller, &pods, owners, Key::Job);
    let expectations = Expectations::default();
    let of = |job: &ObjectKey| Key::Job(job.clone());
    let woken = expectations.requeue_after_lists(&pods, controller.queue(), of);
    let client = context.client(ROW.service_account);
    let recorder = context.recorder(&client, ROW.name);
    controller.keeps(woken).run(JobReconciler {
        pod_control: PodControl::new(client.clone(), recorder),
        client,
        runtime: context.runtime.clone(),
        jobs,
        pods,
        metrics,
        expectations,
        own_writes: own_writes(context, &STALE_SKIPS, ["batch", "jobs"]),
        backoffs: Default::default(),
    })
}

/// Reports whether a controller looks after a pod's finalizer: its Job, which is there, or a controller of another kind.
fn has_job(pod: &Object<PodView>, jobs: &Informer<JobView>) -> bool {
    pod.header.controller().is_some_and(|owner| {
        let key = ObjectKey::new(pod.namespace(), &*owner.name);
        &*owner.kind != "Job" || jobs.get(&key).is_some_and(|job| *job.uid() == owner.uid)
    })
}

/// Pods of a Job that hold its finalizer. One that was on its way out before the Job was gone may have no event to come.
fn held_pods(pods: &Informer<PodView>, job: &Object<JobView>) -> Vec<Arc<Object<PodView>>> {
    let mut held = pods.controlled(job.namespace(), job.uid());
    held.retain(|pod| has_finalizer(pod));
    held
}

fn has_finalizer(pod: &Object<PodView>) -> bool {
    pod.header.finalizers.iter().any(|own| &**own == FINALIZER)
}
