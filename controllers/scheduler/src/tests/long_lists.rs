//! Lists that a tenant makes long cost one decoding per attempt, and keep no turn of others.

use super::*;
use crate::scheduler::SCHEDULER_NAME;

/// A spec whose last toleration is that of the taint `a`.
fn long_tolerations(count: usize) -> Value {
    let key = |number: usize| {
        if number == 1 {
            "a".to_owned()
        } else {
            format!("k{number}")
        }
    };
    let tolerations: Vec<Value> = (1..=count)
        .rev()
        .map(|number| json!({"key": key(number), "operator": "Exists"}))
        .collect();
    json!({"cpu": "4", "priority": 5, "tolerations": tolerations})
}

#[test]
fn long_tolerations_are_decoded_for_a_taint_alone() {
    let pod = make_pod("p", long_tolerations(3_000));
    let attempt = Attempt::new(&pod);
    let mut world = World::new(json!([{"name": "a"}, {"name": "b"}]));
    let placed = world
        .algorithm
        .place(&attempt, &mut world.nodes, &world.nominations, 0);
    assert!(placed.is_ok());
    assert!(attempt.steps() < 100, "{}", attempt.steps());
}

#[test]
fn long_tolerations_are_decoded_once_for_all_nodes_and_victims() {
    let taints = json!([{"key": "a", "effect": "NoSchedule"}]);
    let names = ["a", "b", "c", "d", "e"];
    let mut world = World::new(
        names
            .map(|name| json!({"name": name, "taints": taints, "unschedulable": true}))
            .into(),
    );
    for name in names {
        for _ in 0..4 {
            world.runs(json!({"cpu": "1"}), name);
        }
    }
    let mut spec = long_tolerations(3_000);
    spec["tolerations"][0] = json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"});
    let pod = make_pod("p", spec);
    let attempt = Attempt::new(&pod);
    let World {
        algorithm,
        nodes,
        nominations,
        ..
    } = &mut world;
    let unplaced = algorithm.place(&attempt, nodes, nominations, 0).unwrap_err();
    let FitError::Unfit { resolvable, .. } = unplaced else {
        panic!("no nodes")
    };
    let found = preemption::find(
        algorithm,
        &attempt,
        nodes,
        &resolvable,
        nominations,
        &Budgets::new(),
    );
    assert_eq!(found.unwrap().victims.len(), 4);
    // Decoded, and looked through for either taint.
    let steps = attempt.steps();
    assert!((9_000..10_000).contains(&steps), "{steps}");
}

#[test]
fn burst_ends_by_work_done() {
    let pods_decided = |pods: usize, spec: &Value| {
        let mut scheduler = Scheduler::default();
        let node = make_node(&json!({"name": "n", "taints": [{"key": "x", "effect": "NoSchedule"}]}));
        scheduler.node_changed("n", Some(&node), Duration::ZERO);
        for number in 0..pods {
            let mut spec = spec.clone();
            spec["schedulerName"] = SCHEDULER_NAME.into();
            let pod = make_pod(&format!("p{number}"), spec);
            scheduler.pod_changed(&pod.key, Some(&pod), Duration::ZERO);
        }
        scheduler.decide_burst(Duration::ZERO, 100, || 0).len()
    };
    assert_eq!(pods_decided(20, &json!({})), 16);
    assert_eq!(pods_decided(2, &long_tolerations(70_000)), 1);
}
