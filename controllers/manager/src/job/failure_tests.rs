//! A table of what counts as a failure, of whom, and how long it makes a Job wait.

use super::backoff::Backoff;
use super::index_failures::counts_of_next;
use super::plan::{Plan, plan};
use super::snapshot::Snapshot;
use super::tests::{job, names, pod, snapshot};
use crate::views::find;
use machinery_client::Folded;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// One round: the members of `plan` are compared.
#[derive(Deserialize)]
struct Row {
    name: String,
    spec: Value,
    #[serde(default)]
    status: Value,
    pods: Vec<Pod>,
    plan: Map<String, Value>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Pod {
    uid: String,
    phase: String,
    index: Option<u32>,
    /// The finalizer has been taken off.
    released: bool,
    /// The time of its deletion; the grace of half a minute is over then.
    deleting: Option<String>,
    ended: Option<String>,
    exit: i32,
    disrupted: bool,
    /// Failures of the index before it, counted and ignored.
    before: (i32, i32),
}

impl Pod {
    fn json(&self) -> Value {
        let mut pod = pod(&self.uid, &self.phase, !self.released, self.index);
        if let Some(at) = &self.deleting {
            pod["metadata"]["deletionTimestamp"] = json!(at);
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        }
        if self.index.is_some() {
            let (counted, ignored) = self.before;
            let annotations = &mut pod["metadata"]["annotations"];
            annotations["batch.kubernetes.io/job-index-failure-count"] = json!(counted.to_string());
            annotations["batch.kubernetes.io/job-index-ignored-failure-count"] = json!(ignored.to_string());
        }
        if let Some(at) = &self.ended {
            let terminated = json!({"exitCode": self.exit, "finishedAt": at});
            pod["status"]["containerStatuses"] = json!([{"name": "c", "state": {"terminated": terminated}}]);
        }
        if self.disrupted {
            pod["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True"}]);
        }
        pod
    }
}

fn end(plan: &Plan) -> Value {
    let kinds = ["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"];
    let found = kinds
        .into_iter()
        .find_map(|kind| find(&plan.status.conditions, kind));
    found.map_or(Value::Null, |own| json!(format!("{} {}", own.kind, own.reason)))
}

fn member(snapshot: &Snapshot, plan: &Plan, name: &str) -> Value {
    let policy = snapshot.job.failure_policy.as_ref().map(Folded::get);
    match name {
        "create" => json!(plan.create),
        "delete" => json!(names(&plan.delete)),
        "discard" => json!(names(&plan.discard)),
        "release" => json!(names(&plan.release)),
        "counts" => json!([plan.status.succeeded, plan.status.failed]),
        "completedIndexes" => json!(plan.status.completed_indexes),
        "succeeded" => json!(
            plan.status
                .uncounted_terminated_pods
                .as_ref()
                .map(|own| &own.succeeded)
        ),
        "failed" => json!(
            plan.status
                .uncounted_terminated_pods
                .as_ref()
                .map(|own| &own.failed)
        ),
        "failedIndexes" => json!(plan.status.failed_indexes),
        "again" => json!(plan.requeue_at.map(|at| at.to_string())),
        "end" => end(plan),
        "nextOfIndex0" => json!(counts_of_next(snapshot, policy.as_deref(), 0)),
        other => panic!("no member {other}"),
    }
}

#[test]
fn failures_count_as_upstream() {
    check_rows(include_str!("../../testdata/job_failures.json"));
}

/// Upstream's `TestTrackJobStatusAndRemoveFinalizers`: its first write of status, and the pods that lose the finalizer.
#[test]
fn job_ended_pods_are_tracked_as_upstream() {
    check_rows(include_str!("../../testdata/job_tracking.json"));
}

#[track_caller]
fn check_rows(text: &str) {
    let rows: Vec<Row> = serde_json::from_str(text).unwrap();
    for row in rows {
        let pods: Vec<Value> = row.pods.iter().map(Pod::json).collect();
        let status = if row.status.is_null() {
            json!({})
        } else {
            row.status
        };
        let snapshot = snapshot(&job(row.spec, status), &pods, None);
        let plan = plan(&snapshot);
        for (name, expected) in &row.plan {
            assert_eq!(
                member(&snapshot, &plan, name),
                *expected,
                "{name} of: {}",
                row.name
            );
        }
    }
}

/// Every index counts at once; finalizers go five hundred at a time, and the Job is not complete before they are gone.
#[test]
fn indexed_jobs_of_many_pods_that_end_at_once_lose_no_success() {
    let all = |indexes: std::ops::Range<u32>| -> Vec<Value> {
        let ended = indexes.map(|at| pod(&at.to_string(), "Succeeded", true, Some(at)));
        ended.collect()
    };
    let of = |status: Value| job(json!({"completionMode": "Indexed", "completions": 1_201}), status);
    let mut status = json!({});
    for (left, released, last) in [
        (0, 500, false),
        (500, 500, false),
        (1_000, 201, false),
        (1_201, 0, true),
    ] {
        let plan = plan(&snapshot(&of(status), &all(left..1_201), None));
        assert_eq!(plan.status.succeeded, 1_201, "after {left}");
        assert_eq!(plan.status.completed_indexes, "0-1200");
        assert_eq!(
            (plan.release.len(), plan.create.len()),
            (released, 0),
            "after {left}"
        );
        assert_eq!(
            find(&plan.status.conditions, "Complete").is_some(),
            last,
            "after {left}"
        );
        status = serde_json::to_value(&plan.status).unwrap();
    }
}

fn ended(uid: &str, phase: &str, at: &str) -> Pod {
    Pod {
        uid: uid.to_owned(),
        phase: phase.to_owned(),
        ended: Some(at.to_owned()),
        ..Pod::default()
    }
}

/// The next round of a Job with that many tries.
fn after(backoff: Option<Backoff>, pods: &[Pod]) -> Plan {
    let pods: Vec<Value> = pods.iter().map(Pod::json).collect();
    plan(&snapshot(
        &job(json!({"backoffLimit": 6}), json!({})),
        &pods,
        backoff,
    ))
}

#[test]
fn waits_outlive_the_pods_that_failed() {
    let failed = || ended("a", "Failed", "2025-12-31T23:59:55Z");
    let released = Pod {
        released: true,
        ..failed()
    };
    let mut backoff = None;
    // Seen twice with the finalizer, then without, then gone: one failure, ten seconds.
    for pods in [vec![failed()], vec![failed()], vec![released], vec![]] {
        let plan = after(backoff, &pods);
        assert_eq!(plan.backoff.until().unwrap().to_string(), "2026-01-01T00:00:05Z");
        assert_eq!(plan.create, []);
        backoff = Some(plan.backoff);
    }
    // Another failure doubles the wait, a success ends it.
    let twice = after(backoff, &[ended("b", "Failed", "2025-12-31T23:59:59Z")]).backoff;
    assert_eq!(twice.until().unwrap().to_string(), "2026-01-01T00:00:19Z");
    let plan = after(Some(twice), &[ended("c", "Succeeded", "2026-01-01T00:00:00Z")]);
    assert_eq!((plan.backoff.until(), plan.create.len()), (None, 2));
}
