//! Upstream's tables as data: `cronjob_controllerv2_test.go` and `utils_test.go`, but for rows on requests that fail, which
//! the simulation tests.

use super::missed::{Missed, most_recent, wait};
use super::new_job::new_job;
use super::plan::{JobRef, Note, Step, decide, observe, schedule, sort_by_start, surplus, unlisted};
use crate::views::cron_job::{ActiveJob, Concurrency};
use crate::views::{CronJobView, JobView, seconds};
use jiff::{SignedDuration, Timestamp};
use machinery_client::Object;
use machinery_client::object::object_of;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

fn rows<T: DeserializeOwned>(text: &str) -> Vec<T> {
    serde_json::from_str(text).unwrap()
}

fn cron_job(created: &str, spec: Value, status: &Value) -> Object<CronJobView> {
    let mut full = json!({"jobTemplate": {"metadata": {"labels": {"a": "b"}, "annotations": {"x": "y"}},
        "spec": {"template": {"metadata": {"labels": {"foo": "bar"}}, "spec": {}}}}});
    for (name, value) in spec.as_object().unwrap() {
        full[name] = value.clone();
    }
    let meta = json!({"name": "mycronjob", "namespace": "n", "uid": "1a2b3c", "creationTimestamp": created});
    object_of(&json!({"metadata": meta, "spec": full, "status": status}).to_string()).unwrap()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TimeRow {
    name: String,
    schedule: String,
    created: String,
    last: Option<String>,
    deadline: Option<i64>,
    #[serde(default)]
    with_deadline: bool,
    now: Timestamp,
    #[serde(default)]
    wrong: bool,
    earliest: Option<Timestamp>,
    recent: Option<Timestamp>,
    missed: Option<String>,
    wait_milliseconds: Option<i64>,
}

impl TimeRow {
    fn cron_job(&self) -> Object<CronJobView> {
        let spec = json!({"schedule": self.schedule, "startingDeadlineSeconds": self.deadline});
        cron_job(&self.created, spec, &json!({"lastScheduleTime": self.last}))
    }
}

#[test]
fn cron_job_most_recent_time_is_upstreams() {
    for row in rows::<TimeRow>(include_str!("../../testdata/cron_job/most_recent.json")) {
        let cron_job = row.cron_job();
        let last = row.last.as_deref();
        let found = most_recent(
            &cron_job,
            last,
            row.now,
            &schedule(&cron_job).unwrap(),
            row.with_deadline,
        );
        let Ok(found) = found else {
            assert!(row.wrong, "{}", row.name);
            continue;
        };
        let missed = match found.missed {
            Missed::None => "none",
            Missed::Few => "few",
            Missed::Many => "many",
        };
        let expected = (row.earliest, row.recent, row.missed.as_deref());
        assert_eq!(
            (Some(found.earliest), found.time, Some(missed)),
            expected,
            "{}",
            row.name
        );
    }
}

#[test]
fn cron_job_waits_are_upstreams() {
    for row in rows::<TimeRow>(include_str!("../../testdata/cron_job/waits.json")) {
        let cron_job = row.cron_job();
        let waits = wait(
            &cron_job,
            row.last.as_deref(),
            row.now,
            &schedule(&cron_job).unwrap(),
        );
        let expected = row.wait_milliseconds.map(SignedDuration::from_millis);
        assert_eq!(waits, expected, "{}", row.name);
    }
}

/// Half a year of minutes is missed, and found without counting them.
#[test]
fn cron_job_most_recent_time_is_found_in_few_steps() {
    let cron_job = cron_job(
        "2016-01-01T00:00:00Z",
        json!({"schedule": "* * * 1-6 *"}),
        &json!({"lastScheduleTime": "2016-06-30T23:58:00Z"}),
    );
    let schedule = schedule(&cron_job).unwrap();
    let now = "2018-06-30T23:59:30Z".parse().unwrap();
    let last = cron_job.status.last_schedule_time.as_deref();
    let found = most_recent(&cron_job, last, now, &schedule, true).unwrap();
    assert_eq!(found.time, Some("2018-06-30T23:59:00Z".parse().unwrap()));
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SyncRow {
    name: String,
    policy: String,
    schedule: String,
    time_zone: Option<String>,
    #[serde(default)]
    suspend: bool,
    deadline: Option<i64>,
    limit: Option<i32>,
    created: String,
    last: Option<String>,
    job: Option<Timestamp>,
    #[serde(default)]
    job_is: String,
    #[serde(default)]
    listed: String,
    cached: Option<bool>,
    now: Timestamp,
    #[serde(default)]
    creates: bool,
    #[serde(default)]
    replaces: bool,
    #[serde(default)]
    completed: bool,
    #[serde(default)]
    already_active: bool,
    #[serde(default)]
    warnings: usize,
    #[serde(default)]
    updates: bool,
    requeue_milliseconds: Option<i64>,
}

impl SyncRow {
    fn cron_job(&self) -> Object<CronJobView> {
        let spec = json!({"schedule": self.schedule, "concurrencyPolicy": self.policy,
            "suspend": self.suspend, "timeZone": self.time_zone, "startingDeadlineSeconds": self.deadline,
            "successfulJobsHistoryLimit": self.limit});
        let active: Vec<ActiveJob> = self
            .active()
            .filter(|_| self.listed.is_empty())
            .into_iter()
            .collect();
        let status = json!({"active": active, "lastScheduleTime": self.last});
        cron_job(&self.created, spec, &status)
    }

    fn job_name(&self) -> Option<String> {
        let at = self.job?;
        Some(format!("mycronjob-{}", at.as_second() / 60))
    }

    fn active(&self) -> Option<ActiveJob> {
        Some(ActiveJob {
            namespace: "n".into(),
            name: self.job_name()?.into(),
            uid: "1234".into(),
            ..ActiveJob::default()
        })
    }

    fn jobs(&self) -> Vec<JobRef> {
        let (Some(at), Some(name)) = (self.job, self.job_name()) else {
            return Vec::new();
        };
        if self.cached == Some(false) {
            return Vec::new();
        }
        let mut job = json!({"metadata": {"name": name, "namespace": "n", "uid": "1234"},
            "spec": {"template": {"spec": {}}}});
        if self.job_is == "complete" {
            let ended = at + SignedDuration::from_secs(10);
            job["status"] = json!({"completionTime": seconds(ended),
                "conditions": [{"type": "Complete", "status": "True"}]});
        }
        vec![Arc::new(object_of(&job.to_string()).unwrap())]
    }
}

#[test]
fn cron_job_syncs_are_upstreams() {
    for row in rows::<SyncRow>(include_str!("../../testdata/cron_job/sync.json")) {
        let (cron_job, jobs) = (row.cron_job(), row.jobs());
        let mut status = cron_job.status.clone();
        if !unlisted(&status, &jobs).is_empty() && row.listed == "live" {
            status.active.extend(row.active());
        }
        let before = status.clone();
        let mut notes: Vec<Note> = Vec::new();
        observe(&mut status, &jobs, &mut notes);
        let name = &row.name;
        if row.job_is == "complete" {
            let ended = row.job.map(|at| seconds(at + SignedDuration::from_secs(10)));
            assert_eq!(status.last_successful_time, ended, "{name}");
        }
        let step = decide(&cron_job, &status, row.now, &mut notes);
        assert_eq!(matches!(step, Step::Start(_)), row.creates, "{name}: {step:?}");
        let replaces =
            row.creates && cron_job.concurrency == Concurrency::Replace && !status.active.is_empty();
        assert_eq!(replaces, row.replaces, "{name}");
        assert_eq!(status != before || row.creates, row.updates, "{name}");
        let warnings = notes.iter().filter(|note| note.warning).count();
        let expected = (
            row.warnings,
            usize::from(row.completed) + usize::from(row.already_active),
        );
        assert_eq!((warnings, notes.len() - warnings), expected, "{name}: {notes:?}");
        let rest = match step {
            Step::Rest(rest) => rest,
            Step::Start(at) => {
                let last = seconds(at);
                wait(&cron_job, Some(&last), row.now, &schedule(&cron_job).unwrap())
            }
        };
        if let Some(expected) = row.requeue_milliseconds {
            assert_eq!(rest, Some(SignedDuration::from_millis(expected)), "{name}");
        }
    }
}

/// `NAME [START]`, of a condition.
fn job(text: &str, condition: &str) -> JobRef {
    let (name, start) = text
        .split_once(' ')
        .map_or((text, None), |(name, start)| (name, Some(start)));
    let job = json!({"metadata": {"name": name, "namespace": "n", "uid": name}, "spec": {"template": {"spec": {}}},
        "status": {"startTime": start, "conditions": [{"type": condition, "status": "True"}]}});
    Arc::new(object_of::<JobView>(&job.to_string()).unwrap())
}

fn names(jobs: &[JobRef]) -> Vec<&str> {
    jobs.iter().map(|job| job.name()).collect()
}

#[test]
fn cron_job_history_is_ordered_by_start() {
    let (now, later) = ("2018-01-01T02:03:04Z", "2019-01-01T02:03:04Z");
    for (first, second) in [
        ("a".to_owned(), "b".to_owned()),
        (format!("b {now}"), "a".to_owned()),
        (format!("a {now}"), format!("b {now}")),
        (format!("b {now}"), format!("a {later}")),
    ] {
        let mut jobs = [job(&second, "Complete"), job(&first, "Complete")];
        sort_by_start(&mut jobs);
        assert_eq!(names(&jobs), [&first[..1], &second[..1]], "{first} {second}");
    }
}

#[test]
fn cron_job_history_has_a_limit_for_each_end() {
    let (hour, minute) = ("hour-ago 2016-05-19T08:59:00Z", "minute-ago 2016-05-19T09:59:00Z");
    let jobs = [
        job(minute, "Complete"),
        job(hour, "Complete"),
        job("bad", "Failed"),
    ];
    for (limits, gone) in [
        (json!({"successfulJobsHistoryLimit": 1}), &["hour-ago"][..]),
        (json!({"successfulJobsHistoryLimit": 2}), &[]),
        (json!({"failedJobsHistoryLimit": 0}), &["bad"]),
        (json!({}), &[]),
    ] {
        let mut spec = limits.clone();
        spec["schedule"] = json!("0 * * * ?");
        let cron_job = cron_job("2016-05-19T08:59:00Z", spec, &json!({}));
        assert_eq!(names(&surplus(&cron_job, &jobs)), gone, "{limits}");
    }
}

#[test]
fn cron_job_template_gives_labels_annotations_and_time() {
    let at = "2016-05-19T10:00:00Z".parse().unwrap();
    for (zone, expected) in [
        (Some("UTC"), "2016-05-19T10:00:00Z"),
        (None, "2016-05-19T10:00:00Z"),
        (Some("Europe/Rome"), "2016-05-19T12:00:00+02:00"),
    ] {
        let spec = json!({"schedule": "* * * * ?", "timeZone": zone});
        let job = new_job(&cron_job("2016-05-19T09:00:00Z", spec, &json!({})), at).unwrap();
        let job = serde_json::to_value(job).unwrap();
        let meta = &job["metadata"];
        assert_eq!(meta["name"], "mycronjob-24394200");
        assert_eq!(meta["labels"], json!({"a": "b"}));
        let annotations = json!({"x": "y", "batch.kubernetes.io/cronjob-scheduled-timestamp": expected});
        assert_eq!(meta["annotations"], annotations);
        let owner = json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": "mycronjob", "uid": "1a2b3c",
            "controller": true, "blockOwnerDeletion": true}]);
        assert_eq!(meta["ownerReferences"], owner);
        assert_eq!(
            job["spec"]["template"]["metadata"]["labels"],
            json!({"foo": "bar"})
        );
    }
}
