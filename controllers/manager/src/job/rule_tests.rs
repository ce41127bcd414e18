//! Upstream's tables for single rules of a Job (1.37), in `testdata/job_rules.json`: `pod_failure_policy_test.go`,
//! `success_policy_test.go`, `backoff_utils_test.go` and `indexed_job_utils_test.go`.

use super::backoff::{Backoff, finished_at};
use super::failure_policy::{Verdict, judge};
use super::indexes;
use super::plan::{free_indexes, plan};
use super::snapshot::{PodRef, Snapshot};
use super::tests::{job, pod, snapshot};
use super::tracking::track;
use crate::views::PodView;
use crate::views::pod::is_active;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{PodFailurePolicy, SuccessPolicy};
use machinery_client::Object;
use machinery_client::object::object_of;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tables {
    failure_policy: Vec<FailurePolicyRow>,
    success_policy: Vec<SuccessPolicyRow>,
    finished_time: Vec<FinishedRow>,
    backoff_record: Vec<BackoffRow>,
    succeeded_indexes: Vec<SucceededRow>,
    failed_indexes: Vec<FailedRow>,
    pending_indexes: Vec<PendingRow>,
}

#[derive(Deserialize)]
struct FailurePolicyRow {
    name: String,
    policy: Option<PodFailurePolicy>,
    pod: Value,
    counts: bool,
    action: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize)]
struct SuccessPolicyRow {
    name: String,
    policy: Option<SuccessPolicy>,
    completions: u32,
    succeeded: String,
    message: Option<String>,
}

#[derive(Deserialize)]
struct FinishedRow {
    name: String,
    pod: Value,
    at: Timestamp,
}

/// Failures before, the times of pods that ended, and the failures since the last success.
#[derive(Deserialize)]
struct BackoffRow {
    name: String,
    before: u32,
    succeeded: Vec<String>,
    failed: Vec<String>,
    failures: u32,
    last: Option<Timestamp>,
}

#[derive(Deserialize)]
struct SucceededRow {
    name: String,
    completions: u32,
    before: String,
    pods: Vec<(String, String)>,
    succeeded: String,
}

#[derive(Deserialize)]
struct FailedRow {
    name: String,
    spec: Value,
    before: String,
    pods: Vec<FailedPod>,
    failed: String,
}

#[derive(Deserialize)]
struct FailedPod {
    index: u32,
    failures: String,
    phase: String,
    held: bool,
}

#[derive(Deserialize)]
struct PendingRow {
    name: String,
    count: usize,
    completions: u32,
    active: Vec<(String, String)>,
    succeeded: String,
    failed: String,
    free: Vec<u32>,
}

fn tables() -> Tables {
    serde_json::from_str(include_str!("../../testdata/job_rules.json")).unwrap()
}

fn view(mut pod: Value) -> Object<PodView> {
    pod["metadata"]["name"] = json!("mypod");
    pod["metadata"]["namespace"] = json!("default");
    object_of(&pod.to_string()).unwrap()
}

#[test]
fn job_failure_policy_judges_as_upstream() {
    for row in tables().failure_policy {
        let (verdict, action) = judge(row.policy.as_ref(), &view(row.pod));
        assert_eq!(verdict != Verdict::Ignore, row.counts, "{}", row.name);
        assert_eq!(action, row.action.as_deref(), "{}", row.name);
        let message = match verdict {
            Verdict::FailJob(message) => Some(message),
            _ => None,
        };
        assert_eq!(message, row.message, "{}", row.name);
    }
}

#[test]
fn job_success_policy_is_met_as_upstream() {
    for row in tables().success_policy {
        let succeeded = indexes::parse(&row.succeeded, row.completions);
        let policy = row.policy.as_ref();
        let met = policy.and_then(|own| super::ending::met_rule(own, &succeeded, row.completions));
        let message = met.map(|at| format!("Matched rules at index {at}"));
        assert_eq!(message, row.message, "{}", row.name);
    }
}

#[test]
fn job_pod_ends_when_upstream_says() {
    for row in tables().finished_time {
        assert_eq!(finished_at(&view(row.pod)), row.at, "{}", row.name);
    }
}

#[test]
fn job_failures_since_the_last_success_are_counted_as_upstream() {
    let ended = |phase: &str, at: &String, uid: String| {
        let mut pod = pod(&uid, phase, true, None);
        let terminated = json!({"exitCode": 1, "finishedAt": at});
        pod["status"]["containerStatuses"] = json!([{"name": "c", "state": {"terminated": terminated}}]);
        pod
    };
    for row in tables().backoff_record {
        let succeeded = row.succeeded.iter().enumerate();
        let succeeded = succeeded.map(|(at, time)| ended("Succeeded", time, format!("s{at}")));
        let failed = row.failed.iter().enumerate();
        let failed = failed.map(|(at, time)| ended("Failed", time, format!("f{at}")));
        let pods: Vec<Value> = succeeded.chain(failed).collect();
        let before = Backoff::of(row.before, None);
        let after = Backoff::after(&snapshot(&job(json!({}), json!({})), &pods, Some(before)));
        let seen = (after.failures, after.last_failure);
        assert_eq!(seen, (row.failures, row.last), "{}", row.name);
    }
}

/// Pods by index and phase; an index that is no number is none.
fn indexed(pods: &[(String, String)]) -> Vec<Value> {
    let pods = pods.iter().enumerate();
    let pods = pods.map(|(at, (index, phase))| pod(&format!("p{at}"), phase, true, index.parse().ok()));
    pods.collect()
}

fn of_indexed(spec: Value, status: Value, pods: &[Value]) -> Snapshot {
    let mut spec = spec;
    spec["completionMode"] = json!("Indexed");
    snapshot(&job(spec, status), pods, Some(Backoff::default()))
}

#[test]
fn job_indexes_succeed_as_upstream() {
    for row in tables().succeeded_indexes {
        let status = json!({"completedIndexes": row.before});
        let spec = json!({"completions": row.completions});
        let plan = plan(&of_indexed(spec, status, &indexed(&row.pods)));
        assert_eq!(plan.status.completed_indexes, row.succeeded, "{}", row.name);
    }
}

#[test]
fn job_indexes_fail_as_upstream() {
    for row in tables().failed_indexes {
        let pods = row.pods.iter().enumerate().map(|(at, own)| {
            let mut pod = pod(&format!("p{at}"), &own.phase, own.held, Some(own.index));
            let annotation = "batch.kubernetes.io/job-index-failure-count";
            pod["metadata"]["annotations"][annotation] = json!(own.failures);
            pod
        });
        let pods: Vec<Value> = pods.collect();
        let plan = plan(&of_indexed(row.spec, json!({"failedIndexes": row.before}), &pods));
        assert_eq!(plan.status.failed_indexes, Some(row.failed), "{}", row.name);
    }
}

#[test]
fn job_indexes_are_free_as_upstream() {
    for row in tables().pending_indexes {
        let status = json!({"completedIndexes": row.succeeded, "failedIndexes": row.failed});
        let spec = json!({"completions": row.completions, "backoffLimitPerIndex": 0});
        let snapshot = of_indexed(spec, status, &indexed(&row.active));
        let active: Vec<PodRef> = snapshot
            .pods
            .iter()
            .filter(|pod| is_active(pod))
            .cloned()
            .collect();
        let free = free_indexes(&snapshot, &track(&snapshot), &active, row.count);
        assert_eq!(free, row.free, "{}", row.name);
    }
}
