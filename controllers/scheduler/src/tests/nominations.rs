//! The nominated node of a pod is cleared where preempting helps nowhere, and stays where nothing was looked at.

use super::*;
use crate::decision::Nomination;
use crate::scheduler::SCHEDULER_NAME;

const NOW: Duration = Duration::ZERO;

/// A pod that was nominated to node `a` before.
fn promised(mut spec: Value) -> Arc<PodInfo> {
    spec["schedulerName"] = SCHEDULER_NAME.into();
    spec["nominated"] = "a".into();
    make_pod("p", spec)
}

fn with_node() -> Scheduler {
    let mut scheduler = Scheduler::default();
    scheduler.node_changed("a", Some(&make_node(&json!({"name": "a"}))), NOW);
    scheduler
}

/// Asserts the end of the nomination, and that another pod may take the node where it is over.
#[track_caller]
fn check(mut scheduler: Scheduler, pod: Value, expected: Nomination) {
    let pod = promised(pod);
    scheduler.pod_changed(&pod.key, Some(&pod), NOW);
    let decided = scheduler.decide(NOW, 0);
    let Some(Decision::Reject {
        nomination,
        preemption: None,
        ..
    }) = decided
    else {
        panic!("{decided:?}")
    };
    assert_eq!(nomination, expected);
    scheduler.node_changed("a", Some(&make_node(&json!({"name": "a"}))), NOW);
    let other = make_pod("other", json!({"cpu": "3", "schedulerName": SCHEDULER_NAME}));
    scheduler.pod_changed(&other.key, Some(&other), NOW);
    let placed = matches!(scheduler.decide(NOW, 0), Some(Decision::Bind { .. }));
    assert_eq!(placed, expected == Nomination::Cleared, "{expected:?}");
}

#[test]
fn nomination_is_cleared_where_preempting_helps_nowhere() {
    check(
        with_node(),
        json!({"cpu": "5", "priority": 5}),
        Nomination::Cleared,
    );
    check(Scheduler::default(), json!({"priority": 5}), Nomination::Cleared);
}

#[test]
fn nomination_stays_where_the_pod_may_not_preempt() {
    let never = json!({"cpu": "5", "priority": 5, "preemptionPolicy": "Never"});
    check(with_node(), never, Nomination::Kept);
}

#[test]
fn nomination_goes_with_the_node_where_room_is_made() {
    let mut scheduler = with_node();
    let running = make_pod("low", json!({"cpu": "4", "nodeName": "a"}));
    scheduler.pod_changed(&running.key, Some(&running), NOW);
    let pod = make_pod(
        "p",
        json!({"cpu": "4", "priority": 5, "schedulerName": SCHEDULER_NAME}),
    );
    scheduler.pod_changed(&pod.key, Some(&pod), NOW);
    let Some(Decision::Reject {
        preemption: Some(made),
        message,
        ..
    }) = scheduler.decide(NOW, 0)
    else {
        panic!("somebody has to go")
    };
    assert_eq!(&*made.node, "a");
    assert_eq!(
        message,
        "0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement for pod on node a, \
         preempting 1 victims"
    );
}
