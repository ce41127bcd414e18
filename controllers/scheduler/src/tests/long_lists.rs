//! Lists that a tenant makes long cost one decoding per attempt, and keep no turn of others.

use super::*;
use crate::scheduler::SCHEDULER_NAME;
use crate::selector_counts::{MAX_COUNTER_BYTES, MAX_COUNTERS};

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
    assert!(attempt.steps() < 300, "{}", attempt.steps());
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
    let placed = world
        .algorithm
        .place(&attempt, &mut world.nodes, &world.nominations, 0);
    let FitError::Unfit { resolvable, .. } = placed.unwrap_err() else {
        panic!("no nodes")
    };
    let around = Surroundings {
        algorithm: &world.algorithm,
        nominations: &world.nominations,
        budgets: &Budgets::new(),
    };
    let mut dry_run = DryRun::begin(
        &pod,
        &world.nodes,
        &resolvable,
        0,
        DefaultPreemptionArgs::default(),
    )
    .unwrap();
    while !dry_run.advance(&attempt, &mut world.nodes, around, 0) {}
    assert_eq!(dry_run.end().unwrap().victims.len(), 4);
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

#[test]
fn large_shape_is_evaluated_and_not_kept() {
    let taints = json!([{"key": "b", "effect": "NoSchedule"}]);
    let mut world = World::new(json!([{"name": "a"}, {"name": "b", "taints": taints}]));
    for number in 0..3 {
        let mut spec = long_tolerations(1_000 + number);
        spec["cpu"] = "1".into();
        let placed = world.place(&make_pod("p", spec));
        assert_eq!(placed, Ok("a".to_owned()));
        assert_eq!(world.algorithm.evaluations().shapes(), 0);
    }
    world.place(&make_pod("p", json!({"cpu": "1"}))).unwrap();
    assert_eq!(world.algorithm.evaluations().shapes(), 1);
}

/// A pod that is not to be on a host with pods of each of the given apps.
fn avoids(apps: impl Iterator<Item = Vec<String>>) -> Value {
    let terms: Vec<Value> = apps
        .map(|apps| {
            let expressions = json!([{"key": "app", "operator": "In", "values": apps}]);
            json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": expressions}})
        })
        .collect();
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

#[test]
fn selectors_of_gone_pods_are_forgotten_by_bytes() {
    let mut world = World::new(json!([{"name": "a"}]));
    for number in 0..4 {
        let apps = (0..50_000).map(|app| format!("{number}-{app}")).collect();
        let pod = make_pod("p", avoids([apps].into_iter()));
        world.place(&pod).unwrap();
    }
    world.place(&make_pod("p", json!({}))).unwrap();
    let (count, bytes) = world.nodes.counts().kept();
    assert!(count >= 1 && bytes <= MAX_COUNTER_BYTES, "{count} of {bytes}");
}

#[test]
fn terms_beyond_the_counters_kept_are_respected() {
    let mut world = World::new(json!([{"name": "a"}, {"name": "b"}]));
    world.runs(json!({"labels": {"app": "x0"}}), "a");
    let pod = make_pod(
        "p",
        avoids((0..MAX_COUNTERS + 1).map(|app| vec![format!("x{app}")])),
    );
    assert_eq!(world.place(&pod), Ok("b".to_owned()));
    world.runs(json!({"labels": {"app": format!("x{MAX_COUNTERS}")}}), "b");
    assert!(world.place(&pod).is_err());
    world.place(&make_pod("p", json!({}))).unwrap();
    assert_eq!(world.nodes.counts().kept().0, MAX_COUNTERS);
}

#[test]
fn topologies_of_gone_pods_are_forgotten() {
    let labels: serde_json::Map<String, Value> = (0..300)
        .map(|number| (format!("key-{number}"), "v".into()))
        .collect();
    let mut world = World::new(json!([{"name": "a", "labels": labels}]));
    for number in 0..300 {
        let pod = make_pod("p", spread(&format!("key-{number}"), "ScheduleAnyway"));
        world.place(&pod).unwrap();
        assert!(world.nodes.topologies() < 150, "{}", world.nodes.topologies());
    }
}

#[test]
fn gates_hold_a_pod_however_many_there_are() {
    for count in [1, 16, 17, 3_000] {
        let gates: Vec<Value> = (0..count)
            .map(|number| json!({"name": format!("g{number}")}))
            .collect();
        let pod = make_pod("p", json!({"schedulingGates": gates}));
        let rows = default_plugins().pre_enqueue;
        let message = rows
            .iter()
            .find_map(|row| row.plugin.pre_enqueue(&pod, &NodeTable::default()).err())
            .unwrap();
        assert_eq!(
            message.matches('g').count(),
            count + "waiting scheduling gates".matches('g').count()
        );
    }
}
