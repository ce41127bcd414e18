//! Deletes finished Jobs once their `ttlSecondsAfterFinished` has passed.
//!
//! Watches: Jobs. Each waits for its own time; before the deletion the live Job is read once more.

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::views::JobView;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use machinery_client::object::object_of;
use machinery_client::{ApiResource, Client, DeleteOptions, Informer, Precondition, Propagation};
use machinery_meta::ObjectKey;
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Family, Histogram};
use std::time::Duration;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "ttl-after-finished-controller",
    queue: "ttl_jobs_to_delete",
    service_account: "ttl-after-finished-controller",
    default: true,
    start,
};

const DELETION_DURATION: Family = Family::new(
    "ttl_after_finished_controller_job_deletion_duration_seconds",
    "[ALPHA] The time it took to delete the job since it became eligible for deletion",
    &[],
)
.exponential(0.1, 2.0, 14);

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let jobs: Informer<JobView> = context.informers.of::<Job, _>();
    let controller = ROW.controller(&context.runtime).watches(&jobs, |change| {
        let due = change
            .new
            .as_ref()
            .filter(|job| expires_at(job).is_some() && !job.header.is_deleting());
        due.map(|job| job.key().clone())
    });
    controller.run(Ttl {
        client: context.client(ROW.service_account),
        runtime: context.runtime.clone(),
        jobs,
        deletion_duration: context.runtime.metrics().histograms(&DELETION_DURATION).of(&[]),
    })
}

/// Time at which a finished Job is to go.
fn expires_at(job: &JobView) -> Option<Timestamp> {
    let ttl = job.ttl_seconds_after_finished?;
    job.finished_at()?
        .checked_add(SignedDuration::from_secs(i64::from(ttl)))
        .ok()
}

struct Ttl {
    client: Client,
    runtime: Runtime,
    jobs: Informer<JobView>,
    deletion_duration: Histogram,
}

impl Reconciler for Ttl {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(job) = self.jobs.get(key).filter(|job| !job.header.is_deleting()) else {
                return Ok(Outcome::Done);
            };
            let (Some(at), now) = (expires_at(&job), self.runtime.now()) else {
                return Ok(Outcome::Done);
            };
            if at > now {
                return Ok(Outcome::RequeueAfter(
                    Duration::try_from(at.duration_since(now)).unwrap_or_default(),
                ));
            }
            let resource = ApiResource::of::<Job>();
            let live = match self.client.get(&resource, key).await {
                Ok(body) => object_of::<JobView>(&String::from_utf8_lossy(&body)),
                Err(error) if error.is_not_found() => return Ok(Outcome::Done),
                Err(error) => return Err(ReconcileError::doing("reading a finished job")(error)),
            };
            let Ok(live) = live else { return Ok(Outcome::Done) };
            if live.uid() != job.uid() || expires_at(&live).is_none_or(|at| at > now) {
                // The Job's own event brings us back.
                return Ok(Outcome::Done);
            }
            let options = DeleteOptions {
                precondition: Precondition {
                    uid: Some(live.uid().clone()),
                    revision: Some(live.revision),
                },
                propagation: Some(Propagation::Foreground),
                grace_period_seconds: None,
            };
            match self.client.delete(&resource, key, &options).await {
                Err(error) if !error.is_not_found() => {
                    Err(ReconcileError::doing("deleting a finished job")(error))
                }
                Err(_) => Ok(Outcome::Done),
                Ok(_) => {
                    let late = self.runtime.now().duration_since(at);
                    self.deletion_duration.observe(late.as_secs_f64());
                    Ok(Outcome::Done)
                }
            }
        })
    }
}
