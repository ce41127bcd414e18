//! Plan of a CronJob: the fate of its Jobs, those to delete, and the next one if its time has come. Pure.

use super::missed::{Missed, most_recent, wait};
use crate::views::cron_job::Concurrency;
use crate::views::{CronJobStatus, CronJobView, JobView, find, time};
use jiff::{SignedDuration, Timestamp};
use machinery_client::Object;
use machinery_semantics::cron_schedule::{Schedule, time_zone};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) type JobRef = Arc<Object<JobView>>;

/// An event to be recorded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Note {
    pub(super) fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            warning: false,
            reason,
            message,
        }
    }

    pub(super) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            warning: true,
            reason,
            message,
        }
    }
}

/// One thing to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing, for so long; for as long as nothing changes, where absent.
    Rest(Option<SignedDuration>),
    /// A Job is made for this time.
    Start(Timestamp),
}

/// The condition that says how a Job finished.
fn finished(job: &JobView) -> Option<&'static str> {
    let is_true = |kind: &&str| find(&job.status.conditions, kind).is_some_and(|own| own.is_true());
    ["Complete", "Failed"].into_iter().find(is_true)
}

/// Finished Jobs beyond the limits of history, the oldest first.
pub(super) fn surplus(cron_job: &CronJobView, jobs: &[JobRef]) -> Vec<JobRef> {
    let limits = [
        ("Complete", cron_job.successful_jobs_history_limit),
        ("Failed", cron_job.failed_jobs_history_limit),
    ];
    let mut out = Vec::new();
    for (kind, limit) in limits {
        let Some(limit) = limit else { continue };
        let mut own: Vec<_> = jobs
            .iter()
            .filter(|job| finished(job) == Some(kind))
            .cloned()
            .collect();
        sort_by_start(&mut own);
        let keep = usize::try_from(limit).unwrap_or(0);
        own.truncate(own.len().saturating_sub(keep));
        out.extend(own.into_iter().filter(|job| !job.header.is_deleting()));
    }
    out
}

/// By start, those that never started last, and by name.
pub(super) fn sort_by_start(jobs: &mut [JobRef]) {
    jobs.sort_by_cached_key(|job| {
        let start = time(job.status.start_time.as_deref());
        (start.is_none(), start, job.name().to_owned())
    });
}

/// Jobs at work that are not listed. Either the list is older than they are, or another made them.
pub(super) fn unlisted<'a>(status: &CronJobStatus, jobs: &'a [JobRef]) -> Vec<&'a JobRef> {
    let listed: BTreeSet<&str> = status.active.iter().map(|own| &*own.uid).collect();
    let is_new = |job: &&JobRef| !listed.contains(&*job.uid().0) && finished(job).is_none();
    jobs.iter().filter(is_new).collect()
}

/// Takes finished Jobs off the list and keeps the time of the last success.
pub(super) fn observe(status: &mut CronJobStatus, jobs: &[JobRef], notes: &mut Vec<Note>) {
    for job in unlisted(status, jobs) {
        let message = format!(
            "Saw a job that the controller did not create or forgot: {}",
            job.name()
        );
        notes.push(Note::warning("UnexpectedJob", message));
    }
    let mut done = BTreeSet::new();
    for job in jobs {
        let Some(kind) = finished(job) else { continue };
        done.insert(&*job.uid().0);
        if status.active.iter().any(|own| *own.uid == *job.uid().0) {
            let message = format!("Saw completed job: {}, condition: {kind}", job.name());
            notes.push(Note::normal("SawCompletedJob", message));
        }
        let at = job.status.completion_time.as_deref();
        let last = time(status.last_successful_time.as_deref());
        if kind == "Complete" && time(at) > last {
            status.last_successful_time = at.map(str::to_owned);
        }
    }
    status.active.retain(|own| !done.contains(&*own.uid));
}

/// The schedule, in its zone. One that names a zone itself keeps it.
pub(super) fn schedule(cron_job: &CronJobView) -> Result<Schedule, String> {
    let zone = cron_job.time_zone.as_deref().map(time_zone);
    match zone {
        Some(Ok(zone)) if !names_zone(cron_job) => Schedule::parse_in(&cron_job.schedule, zone),
        _ => Schedule::parse(&cron_job.schedule),
    }
}

fn names_zone(cron_job: &CronJobView) -> bool {
    cron_job.schedule.contains("TZ")
}

/// The name of the Job of a time.
pub(super) fn job_name(cron_job: &str, at: Timestamp) -> String {
    format!("{cron_job}-{}", at.as_second() / 60)
}

/// Decides, of a CronJob whose list of Jobs at work is `status`.
pub(super) fn decide(
    cron_job: &Object<CronJobView>,
    status: &CronJobStatus,
    now: Timestamp,
    notes: &mut Vec<Note>,
) -> Step {
    if cron_job.header.is_deleting() {
        return Step::Rest(None);
    }
    if let Some(Err(error)) = cron_job.time_zone.as_deref().map(time_zone) {
        let zone = cron_job.time_zone.as_deref().unwrap_or_default();
        let message = format!("invalid timeZone: {zone:?}: {error}");
        notes.push(Note::warning("UnknownTimeZone", message));
        return Step::Rest(None);
    }
    if cron_job.suspend {
        return Step::Rest(None);
    }
    if names_zone(cron_job) {
        let message = format!(
            "CRON_TZ or TZ used in schedule {:?} is not officially supported, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
            cron_job.schedule
        );
        notes.push(Note::warning("UnsupportedSchedule", message));
    }
    match schedule(cron_job) {
        Ok(schedule) => on_schedule(cron_job, status, now, &schedule, notes),
        Err(error) => {
            let message = format!("unparseable schedule: {:?} : {error}", cron_job.schedule);
            notes.push(Note::warning("UnparseableSchedule", message));
            Step::Rest(None)
        }
    }
}

fn on_schedule(
    cron_job: &Object<CronJobView>,
    status: &CronJobStatus,
    now: Timestamp,
    schedule: &Schedule,
    notes: &mut Vec<Note>,
) -> Step {
    let last = status.last_schedule_time.as_deref();
    let recent = match most_recent(cron_job, last, now, schedule, true) {
        Ok(recent) => recent,
        Err(error) => {
            let message = format!("invalid schedule: {} : {error}", cron_job.schedule);
            notes.push(Note::warning("InvalidSchedule", message));
            return Step::Rest(None);
        }
    };
    let rest = Step::Rest(wait(cron_job, last, now, schedule));
    let Some(at) = recent.time else { return rest };
    if recent.missed == Missed::Many {
        let message =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        notes.push(Note::warning("TooManyMissedTimes", message));
    }
    let deadline = cron_job.starting_deadline_seconds;
    let too_late = |seconds: i64| now.duration_since(at) > SignedDuration::from_secs(seconds);
    if deadline.is_some_and(too_late) {
        let at = at.strftime("%a, %d %b %Y %H:%M:%S +0000");
        let message = format!("Missed scheduled time to start a job: {at}");
        notes.push(Note::warning("MissSchedule", message));
        return rest;
    }
    let name = job_name(cron_job.name(), at);
    let is_active = status.active.iter().any(|own| *own.name == name);
    if is_active || time(last) == Some(at) {
        return rest;
    }
    if cron_job.concurrency == Concurrency::Forbid && !status.active.is_empty() {
        let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
        notes.push(Note::normal("JobAlreadyActive", message));
        return rest;
    }
    Step::Start(at)
}
