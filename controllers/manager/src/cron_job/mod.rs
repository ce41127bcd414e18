//! Makes a Job at each time that a schedule names, as upstream's second CronJob controller does.
//!
//! Owns: Jobs, whose names end in the minutes of their time, so that no time has two. Watches: CronJobs (the key), Jobs
//! (their controller). A look makes one Job at most, for the last time that was missed, and says when to look again.
//!
//! `missed` finds that time, `plan` reads what became of the Jobs and decides, `new_job` writes the Job. Never: deletes a
//! Job that it does not control, whatever `status.active` says.

mod missed;
mod new_job;
mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::pod_control::reference;
use crate::views::{CronJobView, JobView};
use futures::future::BoxFuture;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use machinery_client::{ApiResource, Change, Informer};
use machinery_meta::ObjectKey;
use machinery_reconcile::{EventRecorder, WorkQueue};
use machinery_runtime::Runtime;
use machinery_runtime::metrics::Family;
use reconcile::CronJobReconciler;
use std::time::Duration;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "cronjob-controller",
    queue: "cronjob",
    service_account: "cronjob-controller",
    default: true,
    start,
};

const CREATION_SKEW: Family = Family::new(
    "cronjob_controller_job_creation_skew_duration_seconds",
    "[STABLE] Time between when a cronjob is scheduled to be run, and when the corresponding job is created",
    &[],
)
.exponential(1.0, 2.0, 10);

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let client = context.client(ROW.service_account);
    let recorder = context.recorder(&client, ROW.name);
    let cron_jobs: Informer<CronJobView> = context.informers.of::<CronJob, _>();
    let jobs: Informer<JobView> = context.informers.of::<Job, _>();
    let controller = ROW.controller(&context.runtime);
    let changes = Changes {
        queue: controller.queue(),
        runtime: context.runtime.clone(),
        recorder: recorder.clone(),
    };
    let controller = controller
        .watches(&cron_jobs, move |change| changes.keys(change))
        .watches(&jobs, |change| {
            let owners = change.sides().filter_map(|job| {
                let owner = job
                    .header
                    .controller()
                    .filter(|owner| &*owner.kind == "CronJob")?;
                Some(ObjectKey::new(job.namespace(), &*owner.name))
            });
            owners.collect::<Vec<_>>()
        });
    controller.run(CronJobReconciler {
        client,
        recorder,
        runtime: context.runtime.clone(),
        cron_jobs,
        jobs,
        own_writes: Default::default(),
        creation_skew: context.runtime.metrics().histograms(&CREATION_SKEW).of(&[]),
    })
}

/// Changes of CronJobs. One whose schedule changed is reconciled when the new schedule says so, and not at once for a time
/// that has passed.
struct Changes {
    queue: WorkQueue<ObjectKey>,
    runtime: Runtime,
    recorder: EventRecorder,
}

impl Changes {
    fn keys(&self, change: &Change<CronJobView>) -> Option<ObjectKey> {
        let key = change.key().clone();
        let (Some(old), Some(new)) = (&change.old, &change.new) else {
            return Some(key);
        };
        if old.schedule == new.schedule && old.time_zone == new.time_zone {
            return Some(key);
        }
        let Ok(schedule) = plan::schedule(new) else {
            let message = format!("unparseable schedule for cronjob: {}", new.schedule);
            let about = reference(&ApiResource::of::<CronJob>(), &new.header);
            self.recorder
                .warning(&about, "UnParseableCronJobSchedule", message);
            return None;
        };
        let last = new.status.last_schedule_time.as_deref();
        // A schedule without any time is looked at, which says so.
        let Some(wait) = missed::wait(new, last, self.runtime.now(), &schedule) else {
            return Some(key);
        };
        self.queue
            .add_after(key, Duration::try_from(wait).unwrap_or_default());
        None
    }
}
