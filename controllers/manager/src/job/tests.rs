//! Tables for tracking and for what a Job does next.

use super::backoff::Backoff;
use super::claim::claim;
use super::plan::{Plan, plan};
use super::reconcile::{index_in, prefix};
use super::snapshot::{PodRef, Snapshot};
use crate::views::{JobView, PodView, find};
use machinery_client::object::object_of;
use machinery_runtime::Simulation;
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) fn job(spec: Value, status: Value) -> Value {
    let mut spec_all = json!({"parallelism": 2, "completions": 3, "backoffLimit": 1,
        "template": {"spec": {"containers": [{"name": "c"}]}}});
    for (key, value) in spec.as_object().unwrap() {
        spec_all[key] = value.clone();
    }
    json!({"metadata": {"name": "j", "namespace": "n", "uid": "j"}, "spec": spec_all, "status": status})
}

/// A pod by uid, phase, whether it holds the finalizer, and its index.
pub(super) fn pod(uid: &str, phase: &str, finalizer: bool, index: Option<u32>) -> Value {
    let mut pod = json!({
        "metadata": {"name": uid, "namespace": "n", "uid": uid, "creationTimestamp": "2025-01-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]},
        "status": {"phase": phase},
    });
    if finalizer {
        pod["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
    }
    if let Some(index) = index {
        pod["metadata"]["annotations"] =
            json!({"batch.kubernetes.io/job-completion-index": index.to_string()});
    }
    pod
}

fn round(job: &Value, pods: &[Value]) -> Plan {
    plan(&snapshot(job, pods, None))
}

/// A round at the turn of the year, with what the one before has left.
pub(super) fn snapshot(job: &Value, pods: &[Value], backoff: Option<Backoff>) -> Snapshot {
    let pods = pods
        .iter()
        .map(|pod| Arc::new(object_of::<PodView>(&pod.to_string()).unwrap()));
    Snapshot {
        job: Arc::new(object_of::<JobView>(&job.to_string()).unwrap()),
        pods: pods.collect(),
        settled: true,
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
        backoff,
    }
}

pub(super) fn names(pods: &[PodRef]) -> Vec<&str> {
    pods.iter().map(|pod| pod.name()).collect()
}

#[track_caller]
fn check_create(job: &Value, pods: &[Value], expected: &[Option<u32>]) {
    assert_eq!(round(job, pods).create, expected);
}

#[test]
fn parallelism_and_completions_bound_the_pods() {
    let plain = job(json!({}), json!({}));
    check_create(&plain, &[], &[None, None]);
    check_create(&plain, &[pod("a", "Running", true, None)], &[None]);
    check_create(
        &plain,
        &[pod("a", "Running", true, None), pod("b", "Pending", true, None)],
        &[],
    );
    check_create(&job(json!({}), json!({"succeeded": 2})), &[], &[None]);
    let queue = job(json!({"completions": null}), json!({}));
    check_create(
        &queue,
        &[pod("a", "Succeeded", true, None), pod("b", "Running", true, None)],
        &[],
    );
    let indexed = json!({"completionMode": "Indexed", "parallelism": 3, "completions": 4});
    let some_done = job(indexed, json!({"completedIndexes": "1"}));
    check_create(
        &some_done,
        &[pod("a", "Running", true, Some(0))],
        &[Some(2), Some(3)],
    );
    let one = job(json!({"parallelism": 1}), json!({}));
    let both = [pod("a", "Running", true, None), pod("b", "Pending", true, None)];
    assert_eq!(names(&round(&one, &both).discard), ["b"]);
}

#[test]
fn job_finished_pod_is_counted_once() {
    let plain = job(json!({}), json!({}));
    // Seen first: on the list, not in the count.
    let first = round(&plain, &[pod("a", "Succeeded", true, None)]);
    assert_eq!(first.status.succeeded, 0);
    let list = first.status.uncounted_terminated_pods.clone().unwrap();
    assert_eq!(
        (list.succeeded, names(&first.release)),
        (vec!["a".to_owned()], vec!["a"])
    );
    // The finalizer is gone: in the count, off the list. Whether the pod still exists makes no difference.
    let listed = job(
        json!({}),
        json!({"uncountedTerminatedPods": {"succeeded": ["a"]}}),
    );
    for pods in [vec![pod("a", "Succeeded", false, None)], vec![]] {
        let second = round(&listed, &pods);
        assert_eq!(second.status.succeeded, 1);
        assert!(
            second
                .status
                .uncounted_terminated_pods
                .unwrap()
                .succeeded
                .is_empty()
        );
    }
    // The finalizer is still there: nothing moves.
    let waiting = round(&listed, &[pod("a", "Succeeded", true, None)]);
    assert_eq!(
        (waiting.status.succeeded, names(&waiting.release)),
        (0, vec!["a"])
    );
}

#[track_caller]
fn check_end(job: &Value, pods: &[Value], kind: &str, reason: &str) {
    let plan = round(job, pods);
    let condition = find(&plan.status.conditions, kind).unwrap_or_else(|| panic!("{:?}", plan.status));
    assert_eq!(condition.reason, reason);
    assert_eq!(plan.create, []);
}

#[test]
fn jobs_end() {
    check_end(
        &job(json!({}), json!({"succeeded": 3})),
        &[],
        "Complete",
        "CompletionsReached",
    );
    check_end(
        &job(json!({}), json!({"failed": 2})),
        &[],
        "Failed",
        "BackoffLimitExceeded",
    );
    let started = json!({"startTime": "2025-12-31T00:00:00Z"});
    check_end(
        &job(json!({"activeDeadlineSeconds": 60}), started),
        &[],
        "Failed",
        "DeadlineExceeded",
    );
    let indexed = json!({"completionMode": "Indexed"});
    check_end(
        &job(indexed, json!({"completedIndexes": "0-2"})),
        &[],
        "Complete",
        "CompletionsReached",
    );
    let policy = json!({"podFailurePolicy": {"rules": [{"action": "FailJob",
        "onExitCodes": {"operator": "In", "values": [42]}}]}});
    let mut failed = pod("a", "Failed", true, None);
    failed["status"]["containerStatuses"] = json!([{"name": "c", "state": {"terminated": {"exitCode": 42}}}]);
    check_end(
        &job(policy, json!({})),
        &[failed],
        "FailureTarget",
        "PodFailurePolicy",
    );
    // While a pod is at work there is only the condition that the job is to end.
    let failing = job(json!({}), json!({"failed": 2}));
    let plan = round(&failing, &[pod("a", "Running", true, None)]);
    assert!(find(&plan.status.conditions, "Failed").is_none());
    assert_eq!(names(&plan.delete), ["a"]);
}

/// A pod whose containers were restarted so often, the one that ran first among them.
fn restarted(uid: &str, phase: &str, first: i32, then: i32) -> Value {
    let mut pod = pod(uid, phase, true, None);
    pod["status"]["initContainerStatuses"] = json!([{"name": "i", "restartCount": first}]);
    pod["status"]["containerStatuses"] = json!([{"name": "c", "restartCount": then}]);
    pod
}

#[test]
fn restarts_of_containers_use_up_the_tries() {
    let limited = |limit: i32| {
        let mut job = job(json!({"backoffLimit": limit, "parallelism": 1}), json!({}));
        job["spec"]["template"]["spec"]["restartPolicy"] = json!("OnFailure");
        job
    };
    let mut leaving = restarted("a", "Running", 0, 1);
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    // Deleted for having used them up, before the news of the condition is here: no other pod is made.
    for (limit, pods) in [
        (1, vec![leaving]),
        (0, vec![restarted("a", "Running", 0, 1)]),
        (3, vec![restarted("a", "Pending", 1, 2)]),
    ] {
        check_end(&limited(limit), &pods, "FailureTarget", "BackoffLimitExceeded");
    }
    for (limit, pods) in [
        (0, vec![restarted("a", "Running", 0, 0)]),
        (3, vec![restarted("a", "Running", 1, 1)]),
    ] {
        assert_eq!(round(&limited(limit), &pods).status.conditions, []);
    }
}

#[test]
fn suspended_jobs_have_no_pods() {
    let suspended = job(json!({"suspend": true}), json!({}));
    let plan = round(&suspended, &[pod("a", "Running", true, None)]);
    assert_eq!(names(&plan.discard), ["a"]);
    assert_eq!(
        find(&plan.status.conditions, "Suspended").unwrap().reason,
        "JobSuspended"
    );
    assert_eq!(plan.status.start_time, None);
    let condition = json!([{"type": "Suspended", "status": "True", "reason": "JobSuspended"}]);
    let resumed = round(&job(json!({}), json!({"conditions": condition})), &[]);
    assert_eq!(
        find(&resumed.status.conditions, "Suspended").unwrap().reason,
        "JobResumed"
    );
    assert_eq!(resumed.create.len(), 2);
}

#[test]
fn failures_wait_before_the_next_try() {
    let mut failed = pod("a", "Failed", false, None);
    failed["metadata"]["creationTimestamp"] = json!("2025-12-31T23:59:55Z");
    let plan = round(&job(json!({"backoffLimit": 6}), json!({"failed": 1})), &[failed]);
    assert_eq!(plan.create, []);
    assert_eq!(plan.requeue_at.unwrap().to_string(), "2026-01-01T00:00:05Z");
}

#[test]
fn job_adopts_what_it_selects_and_releases_what_it_does_not() {
    let selecting = |status: Value| {
        let selector = json!({"matchLabels": {"of": "j"}});
        object_of::<JobView>(&job(json!({"selector": selector}), status).to_string()).unwrap()
    };
    let labelled = |name: &str, of: &str| {
        let mut pod = pod(name, "Running", true, None);
        pod["metadata"]["labels"] = json!({"of": of});
        pod
    };
    let parsed = |pods: &[Value]| -> Vec<PodRef> {
        let pods = pods
            .iter()
            .map(|pod| object_of::<PodView>(&pod.to_string()).unwrap());
        pods.map(Arc::new).collect()
    };
    let mut going = labelled("going", "j");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let owned = parsed(&[labelled("kept", "j"), labelled("left", "other")]);
    let orphans = parsed(&[labelled("come", "j"), labelled("foreign", "other"), going]);
    let claimed = claim(&selecting(json!({})), owned.clone(), orphans.clone());
    assert_eq!(names(&claimed.pods), ["kept", "come"]);
    assert_eq!(names(&claimed.adopt), ["come"]);
    assert_eq!(names(&claimed.release), ["left"]);

    // One that has finished adopts and releases none; its own are still counted.
    let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    let claimed = claim(&selecting(complete), owned, orphans);
    assert_eq!(names(&claimed.pods), ["kept", "left"]);
    assert!(claimed.adopt.is_empty() && claimed.release.is_empty());
}

/// Upstream's `TestPodGenerateNameWithIndex`, and the way back.
#[test]
fn job_names_of_pods_have_their_index() {
    let long = "hhhhhooooohhhhhooooohhhhhooooohhhhhooooohhhhhooooohhhhh";
    let runtime = Simulation::new(1).runtime();
    let check = |job: &str, index: u32, expected: &str| {
        let made = prefix(job, Some(index));
        assert_eq!(made, expected);
        let name = machinery_reconcile::names::generate(&runtime, &made);
        assert!(name.starts_with(expected) && name.len() <= 63, "{name}");
        assert_eq!(index_in(job, &name), Some(index), "{name}");
    };
    check("indexed-job", 1, "indexed-job-1-");
    check("job-7", 12, "job-7-12-");
    check(&format!("{long}ooooohhhhhooooo"), 1, &format!("{long}-1-"));
    check(&format!("{long}oo"), 1, &format!("{long}-1-"));
    check(&format!("{long}oo"), 10_000, &format!("{}-10000-", &long[..51]));
    assert_eq!(prefix("plain", None), "plain-");
    assert_eq!(index_in("job", "other-1-abcde"), None);
    assert_eq!(index_in("job", "job-x-abcde"), None);
}
