//! Families beside upstream's, and what a story leaves in them.

use super::*;
use crate::decision::Decision;
use crate::meter::{Clock, SUCCESS};
use crate::scheduler::{SCHEDULER_NAME, Scheduler};
use crate::tests::{make_node, make_pod};
use prometheus::proto::MetricType;
use prometheus::{Registry, TextEncoder, exponential_buckets};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

const UPSTREAM: &str = include_str!("upstream.tsv");

/// A family as upstream has it.
#[derive(Debug)]
struct Row {
    kind: MetricType,
    labels: BTreeSet<String>,
    buckets: Vec<f64>,
    is_here: bool,
}

fn upstream() -> BTreeMap<String, Row> {
    let rows = UPSTREAM.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, kind, labels, buckets, state] = fields[..] else {
            panic!("{line}")
        };
        let numbers: Vec<f64> = buckets.split(',').filter_map(|own| own.parse().ok()).collect();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of buckets"
        )]
        let buckets = match numbers[..] {
            [first, factor, count] => exponential_buckets(first, factor, count as usize).unwrap(),
            _ => Vec::new(),
        };
        let kind = match kind {
            "counter" => MetricType::COUNTER,
            "gauge" => MetricType::GAUGE,
            "histogram" => MetricType::HISTOGRAM,
            other => panic!("{other}"),
        };
        let names = labels.split(',').filter(|own| !own.is_empty());
        let row = Row {
            kind,
            labels: names.map(str::to_owned).collect(),
            buckets,
            is_here: state == "here",
        };
        (name.to_owned(), row)
    })
    .collect()
}

/// Metrics with a value of each family.
fn filled() -> Metrics {
    let metrics = Metrics::new().unwrap();
    let second = Duration::from_secs(1);
    metrics.attempt("p", AttemptResult::Error, second);
    metrics.scheduled(Scheduled {
        attempts: 1,
        since_first_attempt: second,
        after_flush: true,
    });
    metrics.placed(second);
    metrics.point_ran("p", ExtensionPoint::Bind, SUCCESS, second);
    metrics.ran(
        "p",
        &[Run {
            point: ExtensionPoint::Filter,
            plugin: Some("NodeName"),
            status: SUCCESS,
            took: second,
        }],
    );
    metrics.preemption_was_tried(Some(1));
    metrics.preempted(true, second);
    metrics.event_handled("NodeAdd", second);
    metrics.set_bindings(1);
    metrics.volumes_not_bound();
    metrics.set_cache(CacheSizes::default());
    metrics
}

#[test]
fn families_are_upstreams() {
    let (mut scheduler, metrics) = measured(filled());
    rejected_story(&mut scheduler);
    let table = upstream();
    let registry = Registry::new();
    registry.register(Box::new(metrics)).unwrap();
    let mut found = BTreeSet::new();
    for family in registry.gather() {
        let name = family.name().to_owned();
        let row = table
            .get(&name)
            .unwrap_or_else(|| panic!("{name} is not upstream's"));
        assert_eq!(family.get_field_type(), row.kind, "{name}");
        let metric = &family.get_metric()[0];
        let labels: BTreeSet<String> = metric
            .get_label()
            .iter()
            .map(|own| own.name().to_owned())
            .collect();
        assert_eq!(labels, row.labels, "{name}");
        if row.kind == MetricType::HISTOGRAM {
            let own = metric.get_histogram().get_bucket().iter();
            let bounds: Vec<f64> = own.map(prometheus::proto::Bucket::upper_bound).collect();
            let finite: Vec<f64> = bounds.into_iter().filter(|bound| bound.is_finite()).collect();
            assert_eq!(finite, row.buckets, "{name}");
        }
        found.insert(name);
    }
    let here = table.into_iter().filter(|(_, row)| row.is_here);
    assert_eq!(found, here.map(|(name, _)| name).collect());
}

/// A scheduler whose clock moves by a second at each reading.
fn measured(metrics: Metrics) -> (Scheduler, Metrics) {
    let seconds = AtomicU64::new(0);
    let clock: Clock = Arc::new(move || Duration::from_secs(seconds.fetch_add(1, Ordering::SeqCst)));
    (Scheduler::default().measured(&metrics, clock), metrics)
}

fn pod(name: &str, mut spec: Value) -> Arc<crate::pod::PodInfo> {
    spec["schedulerName"] = SCHEDULER_NAME.into();
    make_pod(name, spec)
}

/// A node, a pod that fits it, one that is too large, one that is gated.
fn rejected_story(scheduler: &mut Scheduler) {
    let now = Duration::ZERO;
    scheduler.node_changed("a", Some(&make_node(&json!({"name": "a"}))), now);
    for (name, spec) in [
        ("fits", json!({"cpu": "1"})),
        ("large", json!({"cpu": "9"})),
        ("gated", json!({"schedulingGates": [{"name": "g"}]})),
    ] {
        let pod = pod(name, spec);
        scheduler.pod_changed(&pod.key, Some(&pod), now);
    }
    let Some(Decision::Bind { pod, .. }) = scheduler.decide(now, 0) else {
        panic!("the first fits")
    };
    scheduler.bound(&pod);
    assert!(matches!(scheduler.decide(now, 0), Some(Decision::Reject { .. })));
    scheduler.publish();
}

fn text(metrics: &Metrics) -> String {
    let registry = Registry::new();
    registry.register(Box::new(metrics.clone())).unwrap();
    TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
}

#[track_caller]
fn has(text: &str, samples: &[&str]) {
    for sample in samples {
        let found = text.lines().any(|line| line == *sample);
        assert!(found, "{sample} is not in\n{text}");
    }
}

#[test]
fn attempts_are_counted_by_result() {
    let (mut scheduler, metrics) = measured(Metrics::new().unwrap());
    rejected_story(&mut scheduler);
    has(
        &text(&metrics),
        &[
            r#"scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1"#,
            r#"scheduler_schedule_attempts_total{profile="default-scheduler",result="unschedulable"} 1"#,
            r#"scheduler_scheduling_attempt_duration_seconds_count{profile="default-scheduler",result="scheduled"} 1"#,
            "scheduler_scheduling_algorithm_duration_seconds_count 2",
            "scheduler_pod_scheduling_attempts_sum 1",
            r#"scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"} 1"#,
            "scheduler_preemption_attempts_total 1",
            r#"scheduler_framework_extension_point_duration_seconds_count{extension_point="PreFilter",profile="default-scheduler",status="Success"} 2"#,
            r#"scheduler_framework_extension_point_duration_seconds_count{extension_point="PostFilter",profile="default-scheduler",status="Unschedulable"} 1"#,
            r#"scheduler_plugin_evaluation_total{extension_point="PreFilter",plugin="NodeAffinity",profile="default-scheduler"} 2"#,
            r#"scheduler_plugin_evaluation_total{extension_point="Filter",plugin="NodeResourcesFit",profile="default-scheduler"} 2"#,
        ],
    );
    let text = text(&metrics);
    assert!(text.contains(r#"scheduler_plugin_execution_duration_seconds_count{extension_point="Filter",plugin="NodeResourcesFit",status="Success"}"#));
}

#[test]
fn queue_is_counted_by_place_reason_and_plugin() {
    let (mut scheduler, metrics) = measured(Metrics::new().unwrap());
    rejected_story(&mut scheduler);
    has(
        &text(&metrics),
        &[
            r#"scheduler_pending_pods{queue="active"} 0"#,
            r#"scheduler_pending_pods{queue="backoff"} 0"#,
            r#"scheduler_pending_pods{queue="unschedulable"} 1"#,
            r#"scheduler_pending_pods{queue="gated"} 1"#,
            r#"scheduler_inflight_events{event="PodPopped"} 0"#,
            r#"scheduler_queue_incoming_pods_total{event="UnscheduledPodAdd",queue="active"} 2"#,
            r#"scheduler_queue_incoming_pods_total{event="UnscheduledPodAdd",queue="unschedulable"} 1"#,
            r#"scheduler_queue_incoming_pods_total{event="ScheduleAttemptFailure",queue="unschedulable"} 1"#,
            r#"scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="default-scheduler"} 1"#,
            r#"scheduler_unschedulable_pods{plugin="SchedulingGates",profile="default-scheduler"} 1"#,
            r#"scheduler_cache_size{type="nodes"} 1"#,
            r#"scheduler_cache_size{type="pods"} 1"#,
            r#"scheduler_cache_size{type="assumed_pods"} 1"#,
        ],
    );
    // Room comes: the pod is tried again, and goes.
    let later = Duration::from_secs(60);
    let node = make_node(&json!({"name": "b", "cpu": "16"}));
    scheduler.node_changed("b", Some(&node), later);
    scheduler.publish();
    let woken = r#"scheduler_queue_incoming_pods_total{event="NodeAdd",queue="active"} 1"#;
    has(
        &text(&metrics),
        &[woken, r#"scheduler_pending_pods{queue="active"} 1"#],
    );
    let Some(Decision::Bind { pod, .. }) = scheduler.decide(later, 0) else {
        panic!("it fits now")
    };
    scheduler.binding_failed(&pod, later);
    let gated = pod_key("gated");
    scheduler.pod_changed(&gated, None, later);
    scheduler.publish();
    has(
        &text(&metrics),
        &[
            r#"scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="default-scheduler"} 0"#,
            r#"scheduler_unschedulable_pods{plugin="SchedulingGates",profile="default-scheduler"} 0"#,
            r#"scheduler_pending_pods{queue="gated"} 0"#,
            r#"scheduler_pending_pods{queue="backoff"} 1"#,
            r#"scheduler_schedule_attempts_total{profile="default-scheduler",result="error"} 1"#,
        ],
    );
}

fn pod_key(name: &str) -> machinery_meta::ObjectKey {
    machinery_meta::ObjectKey::new("ns", name)
}

#[test]
fn pod_that_timed_out_and_is_placed_then_is_counted() {
    let (mut scheduler, metrics) = measured(Metrics::new().unwrap());
    rejected_story(&mut scheduler);
    let later = crate::queue::MAX_UNSCHEDULABLE;
    assert!(matches!(
        scheduler.decide(later, 0),
        Some(Decision::Reject { .. })
    ));
    scheduler.publish();
    has(
        &text(&metrics),
        &[
            r#"scheduler_queue_incoming_pods_total{event="UnschedulableTimeout",queue="active"} 1"#,
            "scheduler_pod_scheduled_after_flush_total 0",
        ],
    );
}

#[test]
fn scores_are_measured_where_there_is_a_choice() {
    let (mut scheduler, metrics) = measured(Metrics::new().unwrap());
    for name in ["a", "b"] {
        scheduler.node_changed(name, Some(&make_node(&json!({"name": name}))), Duration::ZERO);
    }
    let pod = pod("p", json!({"cpu": "1"}));
    scheduler.pod_changed(&pod.key, Some(&pod), Duration::ZERO);
    assert!(matches!(
        scheduler.decide(Duration::ZERO, 0),
        Some(Decision::Bind { .. })
    ));
    scheduler.publish();
    has(
        &text(&metrics),
        &[
            r#"scheduler_framework_extension_point_duration_seconds_count{extension_point="Score",profile="default-scheduler",status="Success"} 1"#,
            r#"scheduler_plugin_evaluation_total{extension_point="Score",plugin="NodeResourcesFit",profile="default-scheduler"} 2"#,
            r#"scheduler_plugin_execution_duration_seconds_count{extension_point="Score",plugin="NodeResourcesFit",status="Success"} 1"#,
        ],
    );
}

#[test]
fn gauges_end_with_the_scheduler_that_sets_them() {
    let (mut scheduler, metrics) = measured(Metrics::new().unwrap());
    rejected_story(&mut scheduler);
    drop(GaugesOfRun(metrics.clone()));
    let text = text(&metrics);
    assert!(!text.contains("scheduler_pending_pods") && !text.contains("scheduler_cache_size"));
    assert!(text.contains("scheduler_schedule_attempts_total"));
}
