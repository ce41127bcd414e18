use super::config::{ShutdownConfig, ShutdownPeriod};
use super::groups::groups;
use super::record::ShutdownRecord;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const CRITICAL: i32 = 2_000_000_000;
const NODE_CRITICAL: i32 = 2_000_001_000;

fn pod(name: &str, priority: Option<i32>) -> Arc<Pod> {
    let pod = json!({"metadata": {"name": name}, "spec": {"priority": priority, "containers": []}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn periods(periods: &[(i32, u64)]) -> Vec<ShutdownPeriod> {
    let period = |(priority, seconds): &(i32, u64)| ShutdownPeriod {
        priority: *priority,
        seconds: *seconds,
    };
    periods.iter().map(period).collect()
}

/// Checks which pods, named by their priorities, end together.
#[track_caller]
fn check(of: &[(i32, u64)], priorities: &[Option<i32>], expected: &[(i32, &[Option<i32>])]) {
    let pods = priorities.iter().map(|own| pod("p", *own)).collect();
    let found = groups(&periods(of), pods);
    let found: Vec<(i32, Vec<Option<i32>>)> = found
        .iter()
        .map(|group| {
            let pods = group.pods.iter().map(|pod| pod.spec.as_ref().unwrap().priority);
            (group.period.priority, pods.collect())
        })
        .collect();
    let expected: Vec<(i32, Vec<Option<i32>>)> = expected
        .iter()
        .map(|(period, pods)| (*period, pods.to_vec()))
        .collect();
    assert_eq!(found, expected, "{of:?} {priorities:?}");
}

#[test]
fn pods_end_with_the_highest_period_at_or_below_their_priority() {
    let two = [(0, 20), (CRITICAL, 10)];
    let critical: &[Option<i32>] = &[Some(CRITICAL), Some(NODE_CRITICAL)];
    check(
        &two,
        &[
            Some(CRITICAL),
            None,
            Some(NODE_CRITICAL),
            Some(CRITICAL - 1),
            Some(-1),
        ],
        &[(0, &[None, Some(CRITICAL - 1), Some(-1)]), (CRITICAL, critical)],
    );
    check(&two, &[Some(5)], &[(0, &[Some(5)])]);
    check(&two, &[], &[]);
    let many = [(-10, 1), (1000, 2), (10_000, 3), (100_000, 4)];
    check(
        &many,
        &[
            Some(-11),
            Some(0),
            Some(999),
            Some(1000),
            Some(9_999),
            Some(99_999),
            Some(i32::MAX),
        ],
        &[
            (-10, &[Some(-11), Some(0), Some(999)]),
            (1000, &[Some(1000), Some(9_999)]),
            (10_000, &[Some(99_999)]),
            (100_000, &[Some(i32::MAX)]),
        ],
    );
    // Of two periods of one priority the first has its pods, the last those above it.
    check(
        &[(0, 1), (5, 2), (5, 3)],
        &[Some(5), Some(6)],
        &[(5, &[Some(5)]), (5, &[Some(6)])],
    );
}

#[test]
fn shutdown_periods_come_from_the_lowest_priority_to_the_highest() {
    let seconds = Duration::from_secs;
    let both = ShutdownConfig {
        grace_period: seconds(30),
        critical_pods: seconds(10),
        ..ShutdownConfig::default()
    };
    assert_eq!(both.periods(), periods(&[(0, 20), (CRITICAL, 10)]));
    assert!(ShutdownConfig::default().periods().is_empty());
    let by_priority = ShutdownConfig {
        by_priority: periods(&[(100, 1), (0, 2), (50, 3)]),
        ..ShutdownConfig::default()
    };
    assert_eq!(by_priority.periods(), periods(&[(0, 2), (50, 3), (100, 1)]));
    assert_eq!(by_priority.problems(), [""; 0]);
    let wrong = ShutdownConfig {
        grace_period: seconds(1),
        critical_pods: Duration::from_millis(1001),
        ..by_priority
    };
    assert_eq!(wrong.problems().len(), 2, "{:?}", wrong.problems());
}

#[test]
fn shutdown_record_is_read_as_it_was_written_and_as_upstream_writes_it() {
    let folder = tempfile::tempdir().unwrap();
    let empty = ShutdownRecord::default();
    assert_eq!(ShutdownRecord::load(folder.path()).unwrap(), empty);
    let begun = ShutdownRecord {
        started: Some("2026-11-29T01:02:03.5Z".parse().unwrap()),
        ended: None,
    };
    begun.store(folder.path()).unwrap();
    assert_eq!(ShutdownRecord::load(folder.path()).unwrap(), begun);
    let file = folder.path().join("graceful_node_shutdown_state");
    let upstream = r#"{"startTime":"2026-11-29T02:02:03.5+01:00","endTime":"0001-01-01T00:00:00Z"}"#;
    std::fs::write(&file, upstream).unwrap();
    assert_eq!(ShutdownRecord::load(folder.path()).unwrap(), begun);
    for wrong in [
        "",
        "{}",
        r#"{"startTime":"now","endTime":"later"}"#,
        &"x".repeat(1 << 20),
    ] {
        std::fs::write(&file, wrong).unwrap();
        assert!(ShutdownRecord::load(folder.path()).is_err(), "{}", wrong.len());
    }
}
