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

/// A node with a pod of little importance, a pod that preempts it, and the pod that goes.
fn preempting() -> (Scheduler, Arc<PodInfo>, Arc<PodInfo>) {
    let mut scheduler = with_node();
    let running = make_pod("low", json!({"cpu": "4", "nodeName": "a"}));
    scheduler.pod_changed(&running.key, Some(&running), NOW);
    let pod = make_pod(
        "p",
        json!({"cpu": "4", "priority": 5, "schedulerName": SCHEDULER_NAME}),
    );
    scheduler.pod_changed(&pod.key, Some(&pod), NOW);
    assert_eq!(preempted_by(&mut scheduler, NOW), 1);
    (scheduler, pod, running)
}

/// Victims of the next decision, which places no pod.
fn preempted_by(scheduler: &mut Scheduler, now: Duration) -> usize {
    match scheduler.decide(now, 0) {
        Some(Decision::Reject { preemption, .. }) => preemption.map_or(0, |own| own.victims.len()),
        other => panic!("{other:?}"),
    }
}

/// The API has shown neither the nomination nor that the victim goes, when another node offers a victim too.
#[test]
fn nomination_made_here_counts_before_the_api_shows_it() {
    let (mut scheduler, _, running) = preempting();
    scheduler.node_changed("b", Some(&make_node(&json!({"name": "b"}))), NOW);
    let other = make_pod("other", json!({"cpu": "4", "nodeName": "b"}));
    scheduler.pod_changed(&other.key, Some(&other), NOW);
    let later = Duration::from_secs(60);
    let Some(Decision::Reject {
        preemption: None,
        nomination: Nomination::Kept,
        message,
        ..
    }) = scheduler.decide(later, 0)
    else {
        panic!("its victim is still going")
    };
    let why = "preemption: not eligible due to a terminating pod on the nominated node.";
    assert!(message.ends_with(why), "{message}");
    // The room is there once the victim is gone.
    scheduler.pod_changed(&running.key, None, later);
    let Some(Decision::Bind { node, .. }) = scheduler.decide(2 * later, 0) else {
        panic!("the victim is gone")
    };
    assert_eq!(&*node, "a");
}

#[test]
fn victim_that_could_not_be_deleted_may_be_chosen_again() {
    let (mut scheduler, pod, running) = preempting();
    let later = Duration::from_secs(60);
    scheduler.not_preempted(&pod, &[running], later);
    assert_eq!(preempted_by(&mut scheduler, later), 1);
}

#[test]
fn nominated_pod_that_goes_wakes_the_pods_that_respected_it() {
    let (mut scheduler, pod, running) = preempting();
    let lesser = json!({"cpu": "4", "priority": 1, "schedulerName": SCHEDULER_NAME});
    let lesser = make_pod("lesser", lesser);
    scheduler.pod_changed(&running.key, None, NOW);
    // It is tried before the nominated pod, whose turn is later.
    let later = Duration::from_secs(60);
    scheduler.queue.pop(NOW).unwrap();
    scheduler.pod_changed(&lesser.key, Some(&lesser), later);
    assert_eq!(preempted_by(&mut scheduler, later), 0);
    assert!(scheduler.queue.is_unschedulable(&lesser.key));
    scheduler.pod_changed(&pod.key, None, 2 * later);
    let decided = scheduler.decide(3 * later, 0);
    assert!(matches!(decided, Some(Decision::Bind { .. })), "{decided:?}");
}
