//! Pods whose binding fails.

use super::*;
use crate::scheduler::SCHEDULER_NAME;

/// A pod of this label, on its way out or not.
fn pod_now(label: &str, deleting: bool) -> Arc<PodInfo> {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "p", "labels": {"a": label}},
        "spec": {"schedulerName": SCHEDULER_NAME, "containers": [{"name": "c"}]}
    });
    if deleting {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    Arc::new(PodInfo::new(serde_json::from_value(pod).unwrap()))
}

/// The label of the pod that is tried after it changed while it was bound, in vain; none where none is tried.
fn tried_after(changed: &Arc<PodInfo>) -> Option<String> {
    let mut scheduler = Scheduler::default();
    scheduler.node_changed("n", Some(&make_node(&json!({"name": "n"}))), Duration::ZERO);
    let pod = pod_now("old", false);
    scheduler.pod_changed(&pod.key, Some(&pod), Duration::ZERO);
    assert!(matches!(
        scheduler.decide(Duration::ZERO, 0),
        Some(Decision::Bind { .. })
    ));
    scheduler.pod_changed(&pod.key, Some(changed), Duration::ZERO);
    assert!(scheduler.decide(Duration::ZERO, 0).is_none(), "it is being bound");
    scheduler.binding_failed(&pod, Duration::ZERO);
    match scheduler.decide(Duration::from_secs(60), 0)? {
        Decision::Bind { pod, .. } => pod.pod.metadata.labels.get("a").map(ToString::to_string),
        other => panic!("{other:?}"),
    }
}

#[test]
fn binding_that_fails_has_the_pod_tried_as_it_is_by_then() {
    assert_eq!(tried_after(&pod_now("old", false)).as_deref(), Some("old"));
    assert_eq!(tried_after(&pod_now("new", false)).as_deref(), Some("new"));
    assert_eq!(tried_after(&pod_now("new", true)), None);
}

/// A change of a pod that is bound, before its node is seen, brings it back to no queue.
#[test]
fn bound_pod_that_changes_is_not_tried_again() {
    let mut scheduler = Scheduler::default();
    scheduler.node_changed("n", Some(&make_node(&json!({"name": "n"}))), Duration::ZERO);
    let pod = pod_now("old", false);
    scheduler.pod_changed(&pod.key, Some(&pod), Duration::ZERO);
    assert!(matches!(
        scheduler.decide(Duration::ZERO, 0),
        Some(Decision::Bind { .. })
    ));
    scheduler.bound(&pod);
    let changed = pod_now("new", false);
    scheduler.pod_changed(&pod.key, Some(&changed), Duration::ZERO);
    assert!(scheduler.decide(Duration::from_secs(60), 0).is_none());
}
